"""What makes a message acceptable, as far as it can be told without looking at the database.

Owns the checks of bodies, labels and ids, and the wording of their refusals (MSG-3, WAKE-2). Knows no storage; the
store asks the rest. No sentence carries a body.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from ._errors import MessageRefused
from ._types import MAX_BODY_BYTES, OPERATOR, RESERVED_NAMES, SYSTEM, is_agent_name

__all__ = [
    "check_body",
    "check_label",
    "check_limit",
    "check_recipient",
    "is_row_id",
    "refuse_unknown_recipient",
    "require_agent_name",
    "shown",
]

_MAX_ROW_ID = 2**63 - 1
"""SQLite's largest integer."""

_PAGE_CAP = 1000
"""Rows one call can give at most: messages with bodies of the largest size are 256 MiB already."""

_SHOWN_CHARS = 80
"""Longest piece of a stranger's input that a sentence repeats."""

_NAMES_LISTED = 8
"""Names a refusal offers when none is close."""

_MAX_NAME_CHARS = 63
"""As long as an agent's name may be; labels stand in the same column, so they may be as long."""


def shown(value: object) -> str:
    """``repr`` of a stranger's value, short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def is_row_id(value: int) -> bool:
    """Whether ``value`` could be the id of a row at all."""
    return 1 <= value <= _MAX_ROW_ID


def check_limit(limit: int) -> None:
    """Accept the size of a page.

    Raises:
        ValueError: it is not 1 to a thousand.
    """
    if not 1 <= limit <= _PAGE_CAP:
        raise ValueError(f"limit must be 1 to {_PAGE_CAP}, got {limit!r}: page on with before_id")


def require_agent_name(name: str) -> None:
    """Accept a name that an agent can have.

    Raises:
        ValueError: it is none (SEC-4).
    """
    if not is_agent_name(name):
        raise ValueError(
            f"an agent's name must be [a-z0-9-], 1 to 63 bytes, no hyphen at an end, not reserved, got {shown(name)}"
        )


def check_body(body: str) -> int:
    """Length of an acceptable body in UTF-8 bytes (MSG-3).

    Raises:
        MessageRefused: it is empty, not text, or over ``MAX_BODY_BYTES``.
    """
    if not body.strip():
        raise MessageRefused("a message needs a body with something in it; this one was empty: write what to say")
    if "\0" in body:
        raise MessageRefused(f"a body must be text without NUL characters, got one at {body.index(chr(0))}: remove it")
    try:
        size_bytes = len(body.encode())
    except UnicodeEncodeError as exc:
        raise MessageRefused(
            f"a body must be valid unicode, got half a surrogate pair at {exc.start}: remove it or send the whole pair"
        ) from exc
    if size_bytes > MAX_BODY_BYTES:
        raise MessageRefused(
            f"a body can have at most {MAX_BODY_BYTES} bytes in UTF-8, this one has {size_bytes}: "
            "put the text in a file and send its path, or send it in parts"
        )
    return size_bytes


def check_label(label: str) -> None:
    """Accept a sender that is no agent: ``system``, or the label of a wake (WAKE-2).

    Raises:
        MessageRefused: the label is not 1 to 63 printable ASCII characters, or means somebody else.
    """
    if not (1 <= len(label) <= _MAX_NAME_CHARS and label.isascii() and label.isprintable() and label.strip() == label):
        raise MessageRefused(
            f"a label must have 1 to {_MAX_NAME_CHARS} printable ASCII characters and no space at an end, "
            f"got {shown(label)}: choose such a label"
        )
    if label in RESERVED_NAMES and label != SYSTEM:
        raise MessageRefused(f"a label must not be a reserved name, got {label!r}: choose another label")


def check_recipient(to: str, *, allowed: Collection[str]) -> None:
    """Refuse a recipient that cannot exist or that the sender may not write to (MSG-2, MSG-3).

    Args:
        to: what the sender asked for.
        allowed: the only names it may write to beside ``operator``; empty for no restriction.

    Raises:
        MessageRefused: with who is allowed, or what a name looks like.
    """
    if to == OPERATOR:
        return
    if allowed and to not in allowed:
        names = ", ".join(sorted({*allowed, OPERATOR}))
        raise MessageRefused(f"you can write to {names} only, not to {shown(to)}: choose one of them")
    if to in RESERVED_NAMES:
        raise MessageRefused(f"{to!r} is a reserved name and has no inbox: write to an agent or to {OPERATOR!r}")


def refuse_unknown_recipient(to: str, known: Iterable[str]) -> MessageRefused:
    """The refusal for a name that is no agent's, with the closest that are (MSG-3)."""
    names = sorted({*known, OPERATOR})
    close = difflib.get_close_matches(to[:_MAX_NAME_CHARS].lower(), names, n=3, cutoff=0.6)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    else:
        more = len(names) - _NAMES_LISTED
        hint = f"there are {', '.join(names[:_NAMES_LISTED])}{f' and {more} more' if more > 0 else ''}"
    return MessageRefused(f"there is no agent {shown(to)} to write to: {hint}")
