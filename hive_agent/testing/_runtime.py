"""A runtime in memory: turns that a test plays itself, with no process and no model.

Owns one implementation of the runtime seam, for tests of what stands on it. A turn is an async function of the test.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import final

import trio

from hive_agent._runtime import Run, RunLine, RunNote, RunReport, RunRequest, RunStarted
from hive_agent._turn import Outcome, Signal

__all__ = ["MemoryRuntime", "MemoryTurn"]


@final
class MemoryTurn:
    """One turn as its player sees it.

    Attributes:
        request: what the harness asked for.
        signals: what it was told so far, oldest first.
    """

    def __init__(self, request: RunRequest, events: trio.MemorySendChannel[RunStarted | RunLine | RunNote]) -> None:
        self.request = request
        self.signals: list[Signal] = []
        self._events = events
        self._told = trio.lowlevel.ParkingLot()

    @property
    def turn_id(self) -> int:
        """The turn, as the tools' header names it."""
        return int(self.request.mcp_servers["hyperhive"].headers["Hive-Turn"])

    async def say(self, data: Mapping[str, object] | None = None) -> None:
        """Print a line."""
        await self._events.send(RunLine(data=data if data is not None else {"type": "assistant"}))

    async def result(self) -> None:
        """Print the result."""
        await self._events.send(RunLine(data={"type": "result"}, result=True))

    async def note(self, text: str) -> None:
        """Leave a note, which is no sign of life."""
        await self._events.send(RunNote(text=text))

    async def wait_signal(self, signal: Signal) -> None:
        """Return once the turn was told ``signal``."""
        while signal not in self.signals:
            await self._told.park()

    def tell(self, signal: Signal) -> None:
        """For the runtime: a signal arrives."""
        self.signals.append(signal)
        self._told.unpark_all()


Player = Callable[[MemoryTurn], Awaitable[Outcome | RunReport]]


@final
class MemoryRuntime:
    """Runs turns by calling ``play``.

    A signal that is not in ``deaf`` ends the turn: INTERRUPT as interrupted, the harder ones as crashed. KILL always
    ends it.

    Args:
        play: plays one turn and says how it ended.
        deaf: signals the turn does not hear of itself.
        orphans: what ``end_orphans`` finds.

    Attributes:
        turns: all turns begun, oldest first.
        running: how many run now.
        most: how many ever ran at once.
    """

    def __init__(self, play: Player, *, deaf: frozenset[Signal] = frozenset(), orphans: tuple[int, ...] = ()) -> None:
        self._play = play
        self._deaf = deaf - {Signal.KILL}
        self._orphans = orphans
        self.turns: list[MemoryTurn] = []
        self.running = 0
        self.most = 0

    async def end_orphans(self) -> tuple[int, ...]:
        """See ``Runtime.end_orphans``."""
        await trio.lowlevel.checkpoint()
        return self._orphans

    @contextlib.asynccontextmanager
    async def open_run(self, request: RunRequest) -> AsyncIterator[Run]:
        """See ``Runtime.open_run``."""
        send, receive = trio.open_memory_channel[RunStarted | RunLine | RunNote](64)
        run = _MemoryRun(MemoryTurn(request, send), send, receive, self._play, self._deaf)
        self.turns.append(run.turn)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run.drive)
                try:
                    yield run
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            self.running -= 1


@final
class _MemoryRun:
    def __init__(
        self,
        turn: MemoryTurn,
        send: trio.MemorySendChannel[RunStarted | RunLine | RunNote],
        receive: trio.MemoryReceiveChannel[RunStarted | RunLine | RunNote],
        play: Player,
        deaf: frozenset[Signal],
    ) -> None:
        self.turn = turn
        self._send = send
        self._receive = receive
        self._play = play
        self._deaf = deaf
        self._ended_by: Signal | None = None
        self._scope = trio.CancelScope()
        self._report: RunReport | None = None

    async def next(self) -> RunStarted | RunLine | RunNote | None:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            return None

    def signal(self, signal: Signal) -> None:
        self.turn.tell(signal)
        if signal not in self._deaf:
            self._ended_by = signal
            self._scope.cancel()

    @property
    def report(self) -> RunReport:
        if self._report is None:
            raise RuntimeError("the run has not ended: call next() until it gives None")
        return self._report

    async def drive(self) -> None:
        async with self._send:
            await self._send.send(RunStarted(pid=0))
            ended: Outcome | RunReport = Outcome.CRASHED
            with self._scope:
                ended = await self._play(self.turn)
            if self._scope.cancelled_caught:
                ended = Outcome.INTERRUPTED if self._ended_by is Signal.INTERRUPT else Outcome.CRASHED
            self._report = ended if isinstance(ended, RunReport) else RunReport(outcome=ended, detail="")
