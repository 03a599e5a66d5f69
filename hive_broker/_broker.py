"""The broker's front door: opening it, and what the hive itself may do with it.

Owns the order in which things open and close, and ``Broker``. Knows no rows and no transactions: ``_engine`` does the
work. Agents use ``BrokerMailbox``.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import final

import outcome
import tricycle
import trio

from . import _dead_letters, _queries, _store
from ._backup import BackedUp, write_backup
from ._database import Database, open_database
from ._engine import Engine
from ._flow import FlowEvent
from ._guard import LoopBudgets
from ._hive_records import HiveRecords
from ._mailbox import BrokerMailbox
from ._owner import own_database
from ._rules import check_body, check_label, check_limit, is_row_id, require_agent_name
from ._set_aside import SetAside
from ._types import OPERATOR, InboxCounts, Message, Sent, WallClock, is_agent_name
from ._writer import commit

__all__ = ["Broker", "open_broker"]


@final
class Broker(HiveRecords):
    """Durable messages between the agents of one hive; made by ``open_broker``.

    What is said of calls and cancellation at ``BrokerMailbox`` holds here too.
    """

    async def set_agents(self, names: Collection[str]) -> None:
        """Make ``names`` the agents that can send and be written to; earlier ones keep their rows.

        Raises:
            ValueError: a name is not one an agent can have (SEC-4).
        """
        for name in names:
            require_agent_name(name)
        await self._engine.change(partial(_store.set_agents, names=tuple(names)))

    async def end_held_turns(self, *, keep: Collection[str] = ()) -> None:
        """End what clients of mailboxes' sockets have open for agents other than ``keep``; their rows are unread again.

        Opening the broker leaves those turns alone: their clients may live and come back to them. For an agent that
        has no such client any more nobody would ever close one (TURN-4).
        """
        work = partial(
            _store.end_held_turns, now=self._engine.clock(), keep=keep, max_deliveries=self._engine.max_deliveries
        )
        await self._engine.change(work)

    def mailbox(self, name: str, *, allowed_recipients: Collection[str] = ()) -> BrokerMailbox:
        """The mailbox of an agent or of the operator.

        Args:
            name: the agent's name, or ``operator``.
            allowed_recipients: the only names it may write to beside ``operator``; empty for no restriction (MSG-2).

        Raises:
            ValueError: nobody can have that name.
        """
        if name != OPERATOR:
            require_agent_name(name)
        return BrokerMailbox(self._engine, name, allowed_recipients)

    async def deliver(self, sender: str, to: str, body: str) -> Sent:
        """Store a message of the hive itself, or of a label that is nobody's name (SYS-1, WAKE-2).

        Whoever lets strangers choose the label keeps ``system`` from them.

        Args:
            sender: ``system``, or a label: 1 to 63 printable ASCII characters.
            to: an agent of this hive or ``operator``.
            body: at most ``MAX_BODY_BYTES`` in UTF-8.

        Raises:
            MessageRefused: with the reason and what to do; nothing was stored.
        """
        check_label(sender)
        size_bytes = check_body(body)
        work = partial(_store.deliver, now=self._engine.clock(), sender=sender, to=to, body=body)
        return await self._engine.change(work, size_bytes=size_bytes)

    async def inbox(
        self, name: str, *, limit: int = 50, before_id: int | None = None, unread_only: bool = False
    ) -> tuple[Message, ...]:
        """Messages to one name, newest first, handled ones included; nothing is popped.

        Args:
            name: an agent of now or of earlier, or ``operator``; anybody else's inbox is empty.
            limit: messages at most.
            before_id: only older ones than this id, to page on.
            unread_only: only those that a ``recv`` could pop now.
        """
        check_limit(limit)
        if name != OPERATOR and not is_agent_name(name):
            await trio.lowlevel.checkpoint()
            return ()
        return await self._engine.look(
            partial(_queries.inbox, agent=name, limit=limit, before_id=before_id, unread_only=unread_only)
        )

    async def thread(self, message_id: int) -> tuple[Message, ...]:
        """The chain a message belongs to, oldest first, at most its newest thousand; empty for no such id (MSG-11)."""
        if not is_row_id(message_id):
            await trio.lowlevel.checkpoint()
            return ()
        return await self._engine.look(partial(_queries.thread, message_id=message_id))

    async def history(self, *, limit: int = 50, before_id: int | None = None) -> tuple[Message, ...]:
        """Messages of everybody, newest first.

        Args:
            limit: messages at most.
            before_id: only older ones than this id, to page on.
        """
        check_limit(limit)
        return await self._engine.look(partial(_queries.history, limit=limit, before_id=before_id))

    async def dead_letters(self, *, limit: int = 50, before_id: int | None = None) -> tuple[Message, ...]:
        """Messages to anybody that were delivered too often without a good end, newest first (MSG-6).

        Args:
            limit: messages at most.
            before_id: only older ones than this id, to page on.
        """
        check_limit(limit)
        return await self._engine.look(partial(_queries.dead_letters, limit=limit, before_id=before_id))

    async def requeue_dead_letter(self, message_id: int) -> Message:
        """Make a dead letter unread again, with all its attempts before it; its recipient is woken (MSG-6).

        Raises:
            RequestRefused: it is no dead letter, or its recipient is no agent any more; nothing was changed.
        """
        return await self._engine.change(partial(_dead_letters.requeue, message_id=message_id))

    async def drop_dead_letter(self, message_id: int) -> Message:
        """Ack a dead letter for its recipient, marked as dropped; it is kept (MSG-6).

        Raises:
            RequestRefused: it is no dead letter; nothing was changed.
        """
        work = partial(_dead_letters.drop, now=self._engine.clock(), message_id=message_id)
        return await self._engine.change(work)

    async def backup(self, destination: str | os.PathLike[str]) -> BackedUp:
        """Write a checked copy of the whole database as of now, while everybody goes on; ``restore_database`` reads it.

        A call that is cancelled leaves no file.

        Args:
            destination: where it is to be (0600); nothing may be there. Its folder is made (0700) where there is none.

        Raises:
            BrokerClosed: there is nothing to copy any more.
            RequestRefused: something is at the destination already.
            BrokerDamaged: the copy contradicts itself, so the database does.
            BrokerUnavailable: the disk said no, or the database was taken away; nothing was left behind.
        """
        return await write_backup(self._engine.path, destination, now=self._engine.clock())

    async def counts(self) -> Mapping[str, InboxCounts]:
        """Figures of every inbox: the agents, the operator, and earlier agents with rows left behind."""
        return await self._engine.look(_queries.counts)

    def watch(self) -> AbstractContextManager[trio.MemoryReceiveChannel[FlowEvent]]:
        """A block with a channel of all that happens to messages, each event after its commit, in commit order.

        A watcher that falls 1024 events behind is not waited for: its channel ends after what it holds, and it has
        to look at the present state and watch again. The channel also ends when the broker closes.

        Raises:
            BrokerClosed: nothing will happen any more.
        """
        return self._engine.watch()


@asynccontextmanager
async def open_broker(
    path: str | os.PathLike[str],
    *,
    owner: str,
    clock: WallClock = time.time,
    lease_seconds: float = 600,
    max_deliveries: int = 5,
    budgets: LoopBudgets | None = None,
    manager: str = "ruth",
    max_pending_reminders: int = 50,
) -> AsyncIterator[Broker]:
    """Open the broker over one database file, which it alone owns until the block is left (EMBED-1, REL-2).

    Turns and leases that an earlier process left open end first: their rows are unread again (REL-1).

    The broker works while the block unwinds, cancelled or not. On leaving, the commit that is running is finished and
    answered, all other calls get ``BrokerClosed``, the log is folded into the file and the claim is let go. What
    leaves the block is what its body raised, as it was.

    Args:
        path: the database file; it is made (0600), and its folder (0700), where there is none.
        owner: what to call this process to whoever comes second.
        clock: gives unix seconds.
        lease_seconds: how long a row popped outside a turn stays in flight (MSG-5).
        max_deliveries: failed attempts after which a row is a dead letter (MSG-6).
        budgets: how much agents may write in an hour; None lets them write as much as they want (MSG-10).
        manager: the agent that may see and cancel approvals, and hears of those whose submitter is gone (SYS-2).
        max_pending_reminders: of one agent (INB-3).

    Raises:
        BrokerLocked: another live process owns the file, and is named.
        SchemaTooNew: a newer hyperhive wrote the file.
        BrokerDamaged: the file is no database of ours, or contradicts itself. A file over 64 MiB is not read through.
        BrokerUnavailable: the disk or the folder says no.
        ValueError: ``lease_seconds`` or ``max_deliveries`` is not above zero, or ``max_pending_reminders`` is below.
    """
    if not 0 < lease_seconds < float("inf"):
        raise ValueError(f"lease_seconds must be above zero and finite, got {lease_seconds!r}")
    if max_deliveries < 1:
        raise ValueError(f"max_deliveries must be 1 or more, got {max_deliveries!r}")
    if max_pending_reminders < 0:
        raise ValueError(f"max_pending_reminders must be 0 or more, got {max_pending_reminders!r}")
    with own_database(path, owner=owner) as ownership:
        async with open_database(ownership) as database:
            await _end_previous_life(database, now=clock(), max_deliveries=max_deliveries)
            engine = Engine(
                database,
                clock=clock,
                lease_seconds=lease_seconds,
                max_deliveries=max_deliveries,
                budgets=budgets,
                manager=manager,
                max_pending_reminders=max_pending_reminders,
            )
            body = SetAside()
            # Shielded once the body is left: what remains is the commit that is running.
            with trio.CancelScope() as closing:
                async with tricycle.open_service_nursery() as nursery:
                    nursery.start_soon(engine.run)
                    with body:
                        yield Broker(engine)
                    closing.shield = True
                    engine.close()
                    nursery.cancel_scope.cancel()
            body.raise_again()


async def _end_previous_life(database: Database, *, now: float, max_deliveries: int) -> None:
    work = partial(_store.end_previous_life, now=now, max_deliveries=max_deliveries)
    with trio.CancelScope(shield=True):
        (answer,) = await database.run(partial(commit, works=[work], before_commit=database.note_ids))
    if isinstance(answer, outcome.Error):
        raise answer.error
