"""Lines from a byte stream, one at a time and none too long (REL-4).

Owns the framing of every unix socket of a hive, for both of its ends. Knows no JSON.
"""

from __future__ import annotations

from typing import final

import trio

__all__ = ["LineCut", "LineReader", "LineTooLong"]

_CHUNK_BYTES = 64 * 1024
"""One read of a local socket."""


@final
class LineTooLong(Exception):
    """A line went over the limit; it was skipped, and the next one can be read."""


@final
class LineCut(Exception):
    """The stream ended inside a line."""


@final
class LineReader:
    """Reads a stream line by line and holds one line and one chunk at most."""

    def __init__(self, stream: trio.abc.ReceiveStream, *, limit_bytes: int) -> None:
        self._stream = stream
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._skipping = False

    async def next_line(self) -> bytes | None:
        """Give the next line without its newline, None when the stream ended after one.

        A cancelled call loses nothing: the next one goes on where it was.

        Raises:
            LineTooLong: it has more bytes than the limit; it was read to its end and thrown away.
            LineCut: the stream ended before the line did.
            trio.BrokenResourceError: the stream broke.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            self._skipping |= len(self._buffer) > self._limit_bytes
            if self._skipping:
                self._buffer.clear()
            searched = len(self._buffer)
            chunk = await self._stream.receive_some(_CHUNK_BYTES)
            if not chunk:
                cut, self._skipping = bool(self._buffer) or self._skipping, False
                self._buffer.clear()
                if cut:
                    raise LineCut
                return None
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if self._skipping or len(line) > self._limit_bytes:
            self._skipping = False
            raise LineTooLong
        return line
