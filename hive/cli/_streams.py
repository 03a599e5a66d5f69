"""Standard output and standard error of our programs, whose own faults are told from every other fault.

Owns what happens when nothing can be written: an answer that is lost is an error, a lost error sentence is not. Used by
``run_group``; ``hive up`` writes through an ``Outlet``.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO, final

from typing_extensions import override

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputLost", "prepare_streams", "wait_writable"]


@final
class OutputLost(Exception):
    """Standard output does not take what is written; ``__cause__`` is the system's word on it."""


@final
class _Descriptor(io.FileIO):
    """What is written to ends up here; the first fault is raised if it matters, whatever follows is dropped."""

    def __init__(self, descriptor: int, *, faults_matter: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._faults_matter = faults_matter
        self._has_failed = False

    @override
    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        while not self._has_failed:
            try:
                # None: somebody we share the terminal with has made it non-blocking.
                if (written := super().write(data)) is not None:
                    return written
                wait_writable(self.fileno())
            except OSError as exc:
                self._has_failed = True
                if self._faults_matter:
                    raise OutputLost(f"the output cannot be written ({exc.strerror})") from exc
        return size


def prepare_streams() -> None:
    """Put streams of ours in the place of ``sys.stdout`` and ``sys.stderr``, which are None where they are closed.

    A character that they cannot show is escaped.
    """
    sys.stdout = _stream(sys.stdout, faults_matter=True)
    sys.stderr = _stream(sys.stderr, faults_matter=False)


def _stream(former: TextIO | None, *, faults_matter: bool) -> TextIO:
    if former is None:
        # Open, so that no other file gets the number, and not for writing, so that every write fails as it should.
        descriptor, encoding, line_buffering = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), "utf-8", False
    else:
        former.flush()
        descriptor, encoding, line_buffering = former.fileno(), former.encoding, bool(former.line_buffering)
    buffer = io.BufferedWriter(_Descriptor(descriptor, faults_matter=faults_matter))
    return io.TextIOWrapper(buffer, encoding=encoding, errors="backslashreplace", line_buffering=line_buffering)


def wait_writable(descriptor: int) -> None:
    """Block until a non-blocking descriptor takes something, or has failed."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()
