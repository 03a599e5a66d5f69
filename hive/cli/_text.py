"""Strangers' text, made fit for a terminal (DASH-2).

Owns what a terminal must never get: control characters, and those that reorder what is read. Pure.
"""

from __future__ import annotations

import unicodedata

__all__ = ["age", "on_terminal", "size"]

_JOINER = "\u200d"  # holds emoji of several people or parts together; it moves nothing
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def on_terminal(text: str, *, lines: bool = False) -> str:
    """``text`` with everything a terminal would act on spelled out; newlines are kept only if ``lines``."""
    return "".join(_shown(character, lines=lines) for character in text.replace("\r\n", "\n"))


def _shown(character: str, *, lines: bool) -> str:
    if character == "\n" and lines:
        return character
    if character == "\t":
        return "    "
    if unicodedata.category(character) in _HIDDEN and character != _JOINER:
        return character.encode("unicode_escape").decode("ascii")
    return character


def age(seconds: float) -> str:
    """A duration in its largest whole unit, as people say it: "3 min"."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"


def size(size_bytes: int) -> str:
    """A number of bytes in the unit people would take: "1.2 MB"."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"
