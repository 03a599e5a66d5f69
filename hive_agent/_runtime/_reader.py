"""What one process of the CLI says: passed on as events, and kept as the facts its end is judged by.

Owns the two pipes from the first byte to what was said before the exit. Knows no command line and no session.
"""

from __future__ import annotations

import fcntl
import sys
import termios
from collections.abc import Callable, Mapping
from typing import final

import attrs
import trio

from ._outcome import LOGIN_REFUSALS_BORNE, RunFacts, is_final
from ._port import McpServer, RunLine, RunNote, RunStarted
from ._process import ChildProcess
from ._stream import Garbage, LineFramer, Oversized, StreamLine

__all__ = ["RunReader"]

_RETRIES_TOLD = (1, 4, 8)
"""Attempts of the runtime that people are told of: the first, and that it goes on."""

GARBAGE_NOTED = 20
"""Unreadable lines of one run that are kept; the rest are counted."""

STDERR_TAIL_BYTES = 8 * 1024


@attrs.define
class _Pipe:
    """How far one pipe of a process was read."""

    received_bytes: int = 0
    handled_bytes: int = 0
    ended: bool = False


@final
class RunReader:
    """Reads what one process says, passes it on, and keeps the facts its end is judged by."""

    def __init__(
        self,
        events: trio.MemorySendChannel[RunStarted | RunLine | RunNote],
        servers: Mapping[str, McpServer],
        *,
        interrupt: Callable[[], None],
    ) -> None:
        self._events = events
        self._required = frozenset(name for name, server in servers.items() if server.required)
        self._optional = frozenset(servers) - self._required
        self._interrupt = interrupt
        self._facts = RunFacts()
        self._framer = LineFramer()
        self._stderr = bytearray()
        self._garbage = 0
        self._out = _Pipe()
        self._err = _Pipe()
        self._progress = trio.Event()

    async def read_stdout(self, child: ChildProcess) -> None:
        async for chunk in child.stdout:
            self._out.received_bytes += len(chunk)
            for item in self._framer.feed(bytes(chunk)):
                await self._take(item)
            self._note_progress(self._out)
        self._note_progress(self._out, ended=True)

    async def read_stderr(self, child: ChildProcess) -> None:
        async for chunk in child.stderr:
            self._err.received_bytes += len(chunk)
            self._stderr += chunk
            del self._stderr[:-STDERR_TAIL_BYTES]
            self._note_progress(self._err)
        self._note_progress(self._err, ended=True)

    async def wait_drained(self, child: ChildProcess) -> None:
        """Wait until all is handled that was said by now, just after the exit.

        What it started may hold its pipes open for ever, and may go on printing; nobody waits for that.
        """
        ends = [
            (pipe, pipe.received_bytes + _waiting_bytes(stream))
            for pipe, stream in ((self._out, child.stdout), (self._err, child.stderr))
        ]
        while any(not pipe.ended and pipe.handled_bytes < end for pipe, end in ends):
            self._progress = trio.Event()
            await self._progress.wait()

    async def finish(self) -> None:
        """Take what an unfinished last line holds."""
        for item in self._framer.finish():
            await self._take(item)

    def facts(self, exit_code: int) -> RunFacts:
        """All that is known once the process is gone."""
        stderr = self._stderr.decode("utf-8", "backslashreplace").strip()
        return attrs.evolve(self._facts, exit_code=exit_code, stderr_tail=stderr, garbage_lines=self._garbage)

    def _note_progress(self, pipe: _Pipe, *, ended: bool = False) -> None:
        pipe.handled_bytes = pipe.received_bytes
        pipe.ended = ended
        self._progress.set()

    async def _take(self, item: StreamLine | Garbage | Oversized) -> None:
        match item:
            case StreamLine():
                self._facts = self._facts.with_line(item, required=self._required)
                await self._events.send(RunLine(data=item.data, result=is_final(item)))
                if item.type == "system" and item.subtype == "init":
                    await self._check_servers(item)
                elif item.type == "system" and item.subtype == "api_retry":
                    await self._tell_retry(item)
            case Oversized(size_bytes=size):
                await self._events.send(RunNote(text=f"a line of {size} bytes from the runtime was dropped"))
            case Garbage(text=text):
                self._garbage += 1
                if self._garbage <= GARBAGE_NOTED:
                    await self._events.send(RunNote(text=f"the runtime printed a line that is not JSON: {text}"))

    async def _check_servers(self, init: StreamLine) -> None:
        # SURF-7: the CLI goes on without a server that did not connect, and the model then claims what it did not do.
        optional = RunFacts().with_line(init, required=self._optional).missing_servers
        for name in (*self._facts.missing_servers, *optional):
            await self._events.send(RunNote(text=f"the tool server {name} did not connect"))
        if self._facts.missing_servers:
            self._interrupt()

    async def _tell_retry(self, retry: StreamLine) -> None:
        # The CLI can retry for minutes without another word; people should not have to wait for its last one.
        attempt = retry.data.get("attempt")
        if attempt in _RETRIES_TOLD:
            why = retry.data.get("error_status") or retry.data.get("error") or "no answer"
            tries = f"{attempt} of {retry.data.get('max_retries')}"
            text = f"the model's service answered {why}; the runtime tries again ({tries})"
            await self._events.send(RunNote(text=text))
        if self._facts.login_refusals == LOGIN_REFUSALS_BORNE + 1:
            self._interrupt()


def _waiting_bytes(stream: trio.lowlevel.FdStream) -> int:
    """How much lies in a pipe and was not read yet."""
    return int.from_bytes(fcntl.ioctl(stream.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
