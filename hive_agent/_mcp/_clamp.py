"""How much text one answer may hold, counted the way its reader counts.

Owns the limit and the cut. Pure; knows no tool.
"""

from __future__ import annotations

__all__ = ["TEXT_LIMIT", "clamp", "cut", "width"]

TEXT_LIMIT = 45_000
"""Characters in one answer: the CLI stops showing a result in place at about 49,000 (SURF-3)."""

_CUT_NOTE = "\n[cut: {left:,} more characters were left out of this answer]"
_NOTE_WIDTH = 80


def width(text: str) -> int:
    """Characters as the CLI counts them: UTF-16 units, so one outside the basic plane counts twice."""
    return len(text) + sum(1 for char in text if char > "\uffff") if not text.isascii() else len(text)


def cut(text: str, limit: int) -> str:
    """The longest beginning of ``text`` that is at most ``limit`` wide; it never splits a character."""
    head = text[:limit]
    while (excess := width(head) - limit) > 0:
        head = head[: len(head) - max(1, excess // 2)]
    return head


def clamp(text: str) -> str:
    """``text``, or its beginning and how much was left out when it is over ``TEXT_LIMIT`` (SURF-3)."""
    if width(text) <= TEXT_LIMIT:
        return text
    shown = cut(text, TEXT_LIMIT - _NOTE_WIDTH)
    return shown + _CUT_NOTE.format(left=len(text) - len(shown))
