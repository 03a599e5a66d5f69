"""What turns a store into a broker: changes that are committed, wake-ups, and leases that end by themselves.

Owns the two tasks (writer, lease clock) and what follows a commit. Knows rows only by the events of ``_flow``.
``_broker`` and ``_mailbox`` are its faces; ``open_broker`` runs it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, final

import apsw
import trio

from . import _queries, _store
from ._applied import once
from ._database import Database
from ._errors import BrokerClosed, BrokerDamaged, BrokerUnavailable
from ._flow import FlowEvent, MessageSent, MessagesPopped, MessagesReturned
from ._guard import LoopBudgets
from ._types import WallClock
from ._watch import Watchers
from ._writer import Work, Writer

__all__ = ["Engine"]

T = TypeVar("T")

_log = logging.getLogger("hive_broker")

_RECHECK_SECONDS = 60
"""How long the lease clock sleeps at most while a lease is open: the wall clock may be set meanwhile."""


@final
class Engine:
    """The running parts behind one open database.

    Attributes:
        clock: gives unix seconds.
        lease_seconds: how long a row popped outside a turn stays in flight.
        max_deliveries: failed attempts after which a row is a dead letter.
        budgets: how much agents may write in an hour; None for as much as they want.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: WallClock,
        lease_seconds: float,
        max_deliveries: int,
        budgets: LoopBudgets | None,
    ) -> None:
        self.clock = clock
        self.lease_seconds = lease_seconds
        self.max_deliveries = max_deliveries
        self.budgets = budgets
        self._database = database
        self._writer = Writer(database, on_commit=self._follow_commit)
        self._watchers = Watchers()
        self._mail: dict[str, trio.Event] = {}
        self._lease_taken = trio.Event()
        self._closed = False

    @property
    def path(self) -> str:
        """The database file.

        Raises:
            BrokerClosed: it is nobody's to read any more.
        """
        self._require_open()
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
            nursery.start_soon(self._run_lease_clock)

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
            match event:
                case MessageSent(message=message):
                    self._wake(message.recipient)
                case MessagesReturned(agent=agent):
                    self._wake(agent)
                case MessagesPopped(turn_id=None):
                    self._lease_taken.set()
                case _:
                    pass

    def _wake(self, name: str) -> None:
        if (mail := self._mail.pop(name, None)) is not None:
            mail.set()

    async def _run_lease_clock(self) -> None:
        while True:
            self._lease_taken = trio.Event()
            try:
                wait_seconds = await self._end_due_leases()
            except BrokerClosed:
                await trio.sleep_forever()  # closing: cancelled next
            except (BrokerUnavailable, BrokerDamaged) as exc:
                _log.warning("leases that are over could not be ended, trying again in a minute: %s", exc)
                wait_seconds = _RECHECK_SECONDS
            with trio.move_on_after(wait_seconds):
                await self._lease_taken.wait()

    async def _end_due_leases(self) -> float:
        """End what is due by the wall clock, and return how long there is nothing to do: for ever without a lease."""
        await trio.lowlevel.checkpoint()
        while (ends_at := self._database.glance(_queries.next_expiry)) is not None:
            now = self.clock()
            if now < ends_at <= now + self.lease_seconds:
                return min(ends_at - now, _RECHECK_SECONDS)
            await self.change(
                partial(
                    _store.end_expired_leases,
                    now=now,
                    lease_seconds=self.lease_seconds,
                    max_deliveries=self.max_deliveries,
                )
            )
        return math.inf
