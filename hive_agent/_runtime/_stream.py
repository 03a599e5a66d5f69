"""Lines out of a byte stream, and JSON objects out of lines, within bounds.

Owns the framing of stream-json. Knows no process and no event loop: bytes go in, values come out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, final

import attrs

__all__ = ["LINE_LIMIT_BYTES", "Garbage", "LineFramer", "Oversized", "StreamLine"]

LINE_LIMIT_BYTES = 1024 * 1024
"""REL-4: a longer line is counted and dropped, never kept."""

DEPTH_LIMIT = 64
"""REL-4: a more deeply nested line is not read: whoever writes or shows it later would run out of stack."""

_GARBAGE_SHOWN = 200


@attrs.frozen
class StreamLine:
    """One JSON object the runtime printed."""

    data: dict[str, Any]

    @property
    def type(self) -> str:
        """Its ``type`` member, or ``""``: new types will come and are passed on."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else ""

    @property
    def subtype(self) -> str:
        """Its ``subtype`` member, or ``""``."""
        kind = self.data.get("subtype")
        return kind if isinstance(kind, str) else ""


@attrs.frozen
class Garbage:
    """A line that is not a JSON object within the limits: its beginning, for the event log."""

    text: str


@attrs.frozen
class Oversized:
    """A line over the limit: how many bytes were dropped."""

    size_bytes: int


@final
class LineFramer:
    """Cuts a byte stream into lines and reads each as a JSON object.

    Memory is bounded by the limit whatever comes in. Empty lines are passed over.

    Args:
        limit_bytes: longest line that is kept.
    """

    def __init__(self, *, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._dropped_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[StreamLine | Garbage | Oversized]:
        """Take the next bytes and give what they complete."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield from self._close_line(chunk[start:end])
            start = end + 1
        self._keep(chunk[start:])

    def finish(self) -> Iterator[StreamLine | Garbage | Oversized]:
        """Give what an unfinished last line holds: a process can die within one."""
        yield from self._close_line(b"")

    def _keep(self, part: bytes) -> None:
        if self._dropped_bytes or len(self._buffer) + len(part) > self._limit_bytes:
            self._dropped_bytes += len(self._buffer) + len(part)
            self._buffer.clear()
        else:
            self._buffer += part

    def _close_line(self, part: bytes) -> Iterator[StreamLine | Garbage | Oversized]:
        self._keep(part)
        dropped, line = self._dropped_bytes, bytes(self._buffer)
        self._dropped_bytes = 0
        self._buffer.clear()
        if dropped:
            yield Oversized(dropped)
        elif line.strip():
            yield _read(line)


def _read(line: bytes) -> StreamLine | Garbage:
    try:
        value = json.loads(line.decode(), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and not _too_deep(value):
        return StreamLine(value)
    return Garbage(line[:_GARBAGE_SHOWN].decode("utf-8", "backslashreplace").strip())


def _finite(text: str) -> float:
    """Read a number. What Python calls NaN or infinite is not JSON, and no browser would read it back."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number must be finite")
    return number


def _too_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: object) -> list[object]:
    members = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [member for member in members if isinstance(member, dict | list)]
