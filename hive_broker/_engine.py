"""What turns a store into a broker: changes that are committed, wake-ups, and what is due by itself.

Owns the two tasks (writer, clock) and what follows a commit. Knows rows only by the events of ``_flow``.
``_broker`` and ``_mailbox`` are its faces; ``open_broker`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, final

import apsw
import trio

from . import _queries
from ._applied import once
from ._clock import DueClock, DueRules
from ._database import Database
from ._errors import BrokerClosed
from ._flow import FlowEvent, MessageSent, MessagesReturned
from ._guard import LoopBudgets
from ._timetable import local_zone
from ._types import WallClock
from ._watch import Watchers
from ._writer import Work, Writer

__all__ = ["Engine"]

T = TypeVar("T")


@final
class Engine:
    """The running parts behind one open database.

    Attributes:
        clock: gives unix seconds.
        lease_seconds: how long a row popped outside a turn stays in flight.
        max_deliveries: failed attempts after which a row is a dead letter.
        budgets: how much agents may write in an hour; None for as much as they want.
        manager: the agent that decides beside the operator, and is told where nobody else can be.
        max_pending_reminders: of one agent.
        zone: the time zone that a cron means.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: WallClock,
        lease_seconds: float,
        max_deliveries: int,
        budgets: LoopBudgets | None,
        manager: str,
        max_pending_reminders: int,
    ) -> None:
        self.clock = clock
        self.lease_seconds = lease_seconds
        self.max_deliveries = max_deliveries
        self.budgets = budgets
        self.manager = manager
        self.max_pending_reminders = max_pending_reminders
        self.zone = local_zone()
        self._database = database
        self._writer = Writer(database, on_commit=self._follow_commit)
        self._watchers = Watchers()
        self._mail: dict[str, trio.Event] = {}
        self._due = DueClock(
            DueRules(lease_seconds=lease_seconds, max_deliveries=max_deliveries, zone=self.zone),
            clock=clock,
            glance=database.glance,
            change=self.change,
        )
        self._closed = False

    @property
    def path(self) -> str:
        """The database file.

        Raises:
            BrokerClosed: it is nobody's to read any more.
            BrokerUnavailable: what is there now is not what this broker works on.
        """
        self._require_open()
        self._database.require_own_files()
        return self._database.path

    async def change(self, work: Work[T], *, size_bytes: int = 0) -> T:
        """Have one change committed; see ``Writer.submit`` for cancellation and errors."""
        return await self._writer.submit(once(work, now=self.clock()), size_bytes=size_bytes)

    async def look(self, question: Callable[[apsw.Connection], T]) -> T:
        """Ask a question that may take a while, off the loop, of the last commit.

        Raises:
            BrokerClosed: there is nobody to ask.
            BrokerUnavailable: the world said no.
        """
        self._require_open()
        return await self._database.run(question)

    async def wait_unread(self, name: str) -> None:
        """Return when the inbox has a row to pop, at once when it has one now (TURN-2).

        Raises:
            BrokerClosed: no row will come.
        """
        await trio.lowlevel.checkpoint()
        while True:
            self._require_open()
            mail = self._mail.setdefault(name, trio.Event())
            if self._database.glance(partial(_queries.has_unread, agent=name)):
                return
            await mail.wait()

    @contextmanager
    def watch(self) -> Iterator[trio.MemoryReceiveChannel[FlowEvent]]:
        """See ``Broker.watch``."""
        self._require_open()
        with self._watchers.watch() as events:
            yield events

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._writer.run)
            nursery.start_soon(self._due.run)

    def close(self) -> None:
        """Refuse all further calls, and let go of everybody who waits."""
        self._closed = True
        self._writer.close()
        self._watchers.close()
        for name in tuple(self._mail):
            self._mail.pop(name).set()

    def _require_open(self) -> None:
        if self._closed:
            raise BrokerClosed("the broker is closed: open it again, or call before it closes")

    def _follow_commit(self, flow: Sequence[FlowEvent]) -> None:
        self._watchers.publish(flow)
        for event in flow:
            self._due.follow(event)
            match event:
                case MessageSent(message=message):
                    self._wake(message.recipient)
                case MessagesReturned(agent=agent):
                    self._wake(agent)
                case _:
                    pass

    def _wake(self, name: str) -> None:
        if (mail := self._mail.pop(name, None)) is not None:
            mail.set()
