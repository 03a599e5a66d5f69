"""What can be told of a request without looking at the database: texts, words, instants.

Owns the checks that reminders, schedules, todos, approvals, permissions and notices share, and the wording of their
refusals. Knows no storage. No sentence repeats a text that was given to be kept.
"""

from __future__ import annotations

import time

from ._errors import RequestRefused
from ._rules import shown

__all__ = ["FURTHEST_SECONDS", "check_instant", "check_text", "check_word", "utc_text"]

FURTHEST_SECONDS = 10 * 366 * 86_400
"""How far ahead an instant may lie: ten years. What lies further is milliseconds taken for seconds."""


def check_text(text: str, *, what: str, limit_bytes: int, hint: str) -> None:
    """Accept a text that can be stored and has something in it.

    Args:
        text: what was given.
        what: what to call it in a sentence, with its article.
        limit_bytes: longest in UTF-8.
        hint: what to do about one that is longer.

    Raises:
        RequestRefused: it is blank, no unicode, has a NUL, or is too long.
    """
    if not text.strip():
        raise RequestRefused(f"{what} needs something in it; this one was empty: write what it is about")
    if "\0" in text:
        raise RequestRefused(f"{what} must be text without NUL characters, got one at {text.index(chr(0))}: remove it")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as exc:
        raise RequestRefused(
            f"{what} must be valid unicode, got half a surrogate pair at {exc.start}: remove it or give the whole pair"
        ) from exc
    if size_bytes > limit_bytes:
        raise RequestRefused(f"{what} can have at most {limit_bytes} bytes in UTF-8, this one has {size_bytes}: {hint}")


def check_word(word: str, *, what: str, limit: int) -> None:
    """Accept one line of printable text without space at its ends.

    Raises:
        RequestRefused: it is something else.
    """
    if not (1 <= len(word) <= limit and word.isprintable() and word.strip() == word):
        raise RequestRefused(
            f"{what} must have 1 to {limit} printable characters on one line and no space at an end, "
            f"got {shown(word)}: choose such a one"
        )


def check_instant(at: float, *, what: str, now: float) -> None:
    """Accept an instant of this age.

    Raises:
        RequestRefused: it is no number, before 1970, or more than ten years ahead.
    """
    # Compared as it is, whatever its size: an integer of a stranger's may be too large for a float.
    if not at >= 0:
        raise RequestRefused(f"{what} must be unix seconds, got {shown(at)}: it is now {now:.0f}")
    if at > now + FURTHEST_SECONDS:
        raise RequestRefused(
            f"{what} must be unix seconds and at most ten years ahead, got {shown(at)} and it is now {now:.0f}: "
            "give seconds, not milliseconds"
        )


def utc_text(at: float) -> str:
    """An instant as people read it, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
