"""Why the post office in memory refuses a message, in the broker's sense and words (MSG-2, MSG-3, WAKE-2).

Owns the checks that need no row. Pure. Called by ``_desk``. No sentence carries a body.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

from hive_broker import MAX_BODY_BYTES, OPERATOR, RESERVED_NAMES, SYSTEM, MessageRefused

__all__ = ["check_body", "check_label", "check_recipient", "unknown_recipient"]

_SHOWN_CHARACTERS: Final = 80
"""Of a stranger's name that a sentence repeats."""

_LABEL_CHARACTERS: Final = 63
"""As long as a name may be."""


def check_body(body: str) -> None:
    """Accept text of 1 to ``MAX_BODY_BYTES``.

    Raises:
        MessageRefused: it is something else.
    """
    if not body.strip():
        raise MessageRefused("a message needs a body with something in it, got an empty one: write what to say")
    if "\0" in body:
        raise MessageRefused(f"a body cannot hold NUL characters, got one at {body.index(chr(0))}: leave it out")
    try:
        size_bytes = len(body.encode())
    except UnicodeEncodeError as exc:
        raise MessageRefused(f"a body must be unicode, got half a surrogate pair at {exc.start}: leave it out") from exc
    if size_bytes > MAX_BODY_BYTES:
        raise MessageRefused(
            f"a body can have at most {MAX_BODY_BYTES} bytes in UTF-8, this one has {size_bytes}: "
            "send the path of a file, or several parts"
        )


def check_label(label: str) -> None:
    """Accept ``system`` or a label that means nobody else.

    Raises:
        MessageRefused: it is not printable, too long, or reserved.
    """
    printable = label.isascii() and label.isprintable() and label == label.strip()
    if not printable or not 1 <= len(label) <= _LABEL_CHARACTERS:
        raise MessageRefused(
            f"a label must be 1 to {_LABEL_CHARACTERS} printable ASCII characters, got {_shown(label)}"
        )
    if label in RESERVED_NAMES and label != SYSTEM:
        raise MessageRefused(f"a label must not be reserved, got {label!r}: choose another one")


def check_recipient(to: str, allowed: Collection[str]) -> None:
    """Accept the operator always, else a name on the list that is not reserved; an empty list restricts nothing.

    Raises:
        MessageRefused: with who is allowed.
    """
    if to == OPERATOR:
        return
    if allowed and to not in allowed:
        names = ", ".join(sorted({*allowed, OPERATOR}))
        raise MessageRefused(f"you can write to {names} only, not to {_shown(to)}: choose one of these")
    if to in RESERVED_NAMES:
        raise MessageRefused(f"{to!r} is a reserved name without an inbox: write to an agent or to {OPERATOR!r}")


def unknown_recipient(to: str, agents: Collection[str]) -> MessageRefused:
    """The refusal of a name that nobody has, with the closest ones."""
    names = sorted({*agents, OPERATOR})
    close = difflib.get_close_matches(to[:_SHOWN_CHARACTERS], names)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
    return MessageRefused(f"there is no agent {_shown(to)} to write to: {hint}")


def _shown(text: str) -> str:
    quoted = repr(text)
    return quoted if len(quoted) <= _SHOWN_CHARACTERS else f"{quoted[:_SHOWN_CHARACTERS]}..."
