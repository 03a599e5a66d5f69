"""Lines from a byte stream, one at a time and none too long.

Owns the framing of the admin socket for both of its ends. Knows no JSON.
"""

from __future__ import annotations

from typing import final

import trio

__all__ = ["LineCut", "LineReader", "LineTooLong"]

_CHUNK_BYTES = 64 * 1024  # one read of a local socket


@final
class LineTooLong(Exception):
    """A line went over the limit; it was skipped, and the next one can be read."""


@final
class LineCut(Exception):
    """The stream ended inside a line."""


@final
class LineReader:
    """Reads a stream line by line, holding one line and one chunk at most (REL-4)."""

    def __init__(self, stream: trio.abc.ReceiveStream, *, limit_bytes: int) -> None:
        self._stream = stream
        self._limit = limit_bytes
        self._buffer = bytearray()
        self._skipping = False

    async def next_line(self) -> bytes | None:
        """The next line without its newline; None when the stream ended after one.

        A cancelled call loses nothing: the next one goes on where it was.

        Raises:
            LineTooLong: the line had more bytes than the limit; it was read to its end and thrown away.
            LineCut: the stream ended before the line did.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            if len(self._buffer) > self._limit:
                self._skipping = True
            if self._skipping:
                self._buffer.clear()
            searched = len(self._buffer)
            chunk = await self._stream.receive_some(_CHUNK_BYTES)
            if not chunk:
                self._end()
                return None
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if self._skipping or len(line) > self._limit:
            self._skipping = False
            raise LineTooLong
        return line

    def _end(self) -> None:
        if self._buffer or self._skipping:
            self._buffer.clear()
            self._skipping = False
            raise LineCut
