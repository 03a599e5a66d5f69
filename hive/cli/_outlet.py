"""Text on its way to a terminal, a pipe or a file that may take it late, or never.

Owns one thread for one descriptor, so that nobody else ever waits for it, and the count of the lines that were lost.
Knows no event loop and no layout; ``hive up`` shows what happens through one, and logs through another.
"""

from __future__ import annotations

import atexit
import io
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO, final

from ._streams import wait_writable

__all__ = ["Outlet"]

_LIMIT_BYTES = 1 << 20
"""What may wait to be written: hours of a paused terminal, and no memory to speak of."""

_DRAIN_SECONDS = 1.0
"""For what is left at exit: a reader that reads takes it at once."""


@final
class Outlet:
    """Writes to one stream's descriptor, in order, behind everybody's back.

    Whatever the reader does, ``put`` neither blocks nor raises. Lines that do not fit, or cannot be written, are lost;
    where they would have been is said once something can be written again. What waits at exit is written, within a
    second.

    Args:
        stream: whose descriptor and encoding to use; without a descriptor everything goes nowhere.
        gap: the words for so many lost lines.
        troubled: told once, in words, when lines begin to be lost; from any thread, and must neither block nor raise.
    """

    def __init__(
        self, stream: TextIO | None, *, gap: Callable[[int], str], troubled: Callable[[str], object] = lambda _: None
    ) -> None:
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        self._gap = gap
        self._troubled = troubled
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._lost_lines = 0
        self._has_told = False
        if (descriptor := _descriptor_of(stream)) is not None:
            # A daemon: a reader that never reads must not keep the process from its end.
            threading.Thread(target=self._write_on, args=(descriptor,), name="outlet", daemon=True).start()
            atexit.register(self.drain)
        self._is_open = descriptor is not None

    def put(self, text: str) -> None:
        """Have ``text`` written, whole lines; what the encoding has no bytes for is escaped."""
        if not self._is_open:
            return
        with self._changed:
            lines = text.count("\n")
            is_lost = self._waiting_bytes >= _LIMIT_BYTES
            if is_lost:
                self._lost_lines += lines
            else:
                if self._lost_lines:
                    text = self._gap(self._lost_lines) + text
                    lines, self._lost_lines = lines + self._lost_lines, 0
                data = text.encode(self.encoding, "backslashreplace")
                self._waiting.append((data, lines))
                self._waiting_bytes += len(data)
                self._changed.notify_all()
        if is_lost:
            self._tell("does not take what is written")

    def drain(self) -> None:
        """Wait until all of it is written, for a second at most."""
        if self._lost_lines:
            self.put("")
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, _DRAIN_SECONDS)

    def _write_on(self, descriptor: int) -> None:
        was_cut = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                data, lines = self._waiting[0]
            written, fault = _write(descriptor, b"\n" + data if was_cut else data)
            was_cut = fault is not None and (was_cut or written > 0)
            if fault is not None:
                self._tell(f"cannot be written ({fault.strerror})")
            with self._changed:
                self._waiting.popleft()
                self._waiting_bytes -= len(data)
                if fault is not None:
                    self._lost_lines += lines
                elif not self._waiting:
                    self._has_told = False  # it has caught up
                self._changed.notify_all()

    def _tell(self, what: str) -> None:
        if not self._has_told:
            self._has_told = True
            self._troubled(what)


def _write(descriptor: int, data: bytes) -> tuple[int, OSError | None]:
    """How many bytes were taken, and what kept the rest."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            wait_writable(descriptor)  # somebody we share the terminal with made it non-blocking
        except OSError as exc:
            return len(data) - len(left), exc
    return len(data), None


def _descriptor_of(stream: TextIO | None) -> int | None:
    if stream is None:
        return None
    try:
        return stream.fileno()
    except (io.UnsupportedOperation, ValueError):
        return None
