"""A post office in memory: mailboxes of several agents with the broker's semantics and nothing on disk.

Owns one implementation of the mailbox port, for tests of what stands on a mailbox. Every method decides synchronously
after one checkpoint, so two runs of a test see the same order. The rules are in ``_desk``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import final

import trio

from hive_agent._ports import WallClock
from hive_agent.testing._desk import LEASE_SECONDS, Desk
from hive_broker import (
    OPERATOR,
    Acked,
    InboxSummary,
    Message,
    Received,
    Sent,
    TurnClosed,
    TurnLease,
    is_agent_name,
)

__all__ = ["MemoryMailbox", "MemoryPost"]


@final
class MemoryPost:
    """The post office: makes mailboxes, holds all messages, and lets a test look at them.

    Args:
        agents: names of the agents there are.
        allowed_recipients: for an agent, the only names it may write to beside the operator; none or empty is no
            restriction (MSG-2).
        wall_clock: unix seconds for the dates; leases run by trio's clock.
        lease_seconds: how long a row popped outside a turn stays in flight.

    Raises:
        ValueError: a name cannot be an agent's.
    """

    def __init__(
        self,
        agents: Iterable[str],
        *,
        allowed_recipients: Mapping[str, Collection[str]] | None = None,
        wall_clock: WallClock = time.time,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._agents = tuple(agents)
        for name in self._agents:
            if not is_agent_name(name):
                raise ValueError(f"an agent's name must be [a-z0-9-], 1 to 63 long and not reserved, got {name!r}")
        self._desk = Desk(
            self._agents,
            allowed_recipients=dict(allowed_recipients or {}),
            wall_clock=wall_clock,
            lease_seconds=lease_seconds,
        )

    def mailbox(self, name: str) -> MemoryMailbox:
        """The mailbox of one agent; two of one name share everything.

        Raises:
            ValueError: there is no such agent.
        """
        if name not in self._agents:
            raise ValueError(f"a mailbox belongs to one of {', '.join(self._agents)}, got {name!r}")
        return MemoryMailbox(self._desk, name)

    @property
    def records(self) -> tuple[Mapping[str, object], ...]:
        """The records that turns were closed with, oldest first (TURN-7)."""
        return self._desk.records

    def messages(self, recipient: str) -> tuple[Message, ...]:
        """Everything that was ever sent to an agent or to ``operator``, oldest first, as it stands now."""
        return self._desk.messages(recipient)

    def put(self, *, to: str, body: str, sender: str = OPERATOR) -> Message:
        """Put a message into an agent's inbox from somebody who has no mailbox: operator, system, a wake's label.

        Raises:
            ValueError: ``to`` is no agent here, or ``sender`` is one.
        """
        if to not in self._agents or sender in self._agents:
            raise ValueError(f"put() takes mail for one of {', '.join(self._agents)} and from none of them")
        return self._desk.store(sender=sender, recipient=to, body=body, parent=None)


@final
class MemoryMailbox:
    """One agent's mailbox in a `MemoryPost`, which makes it; see the mailbox port for what each method promises."""

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk = desk
        self._name = name

    @property
    def name(self) -> str:
        """The agent this mailbox belongs to."""
        return self._name

    async def send(self, *, to: str, body: str, in_reply_to: int | None = None, turn_id: int | None = None) -> Sent:
        """Store one message, once within a turn (MSG-1, MSG-9).

        Raises:
            MessageRefused: nothing was stored; the sentence says why (MSG-2, MSG-3).
            TurnOver: ``turn_id`` is not this agent's open turn.
        """
        await trio.lowlevel.checkpoint()
        return self._desk.send(self._name, to, body, in_reply_to, turn_id)

    async def recv(self, *, limit: int = 1, turn_id: int | None = None) -> Received:
        """Pop up to ``limit`` unread rows, oldest first (MSG-4, MSG-5).

        Raises:
            TurnOver: ``turn_id`` is not this agent's open turn; nothing was popped.
            ValueError: ``limit`` is out of bounds.
        """
        await trio.lowlevel.checkpoint()
        return self._desk.recv(self._name, limit, turn_id)

    async def ack_until(self, up_to: int) -> Acked:
        """Stamp every unacked row with id <= ``up_to`` (MSG-7)."""
        await trio.lowlevel.checkpoint()
        return self._desk.ack_until(self._name, up_to)

    async def summary(self) -> InboxSummary:
        """Look at the unread rows without popping any."""
        await trio.lowlevel.checkpoint()
        return self._desk.summary(self._name)

    async def wait_unread(self) -> None:
        """Return as soon as there is an unread row, at once when there is one (TURN-2)."""
        await trio.lowlevel.checkpoint()
        await self._desk.wait_unread(self._name)

    async def open_turn(self, *, cause: str) -> TurnLease:
        """Open this agent's turn (TURN-4); ``cause`` is for the broker's records and not kept here.

        Raises:
            TurnOver: the previous one is still open.
        """
        await trio.lowlevel.checkpoint()
        return self._desk.open_turn(self._name)

    async def close_turn(self, turn_id: int, *, acked: bool, record: Mapping[str, object]) -> TurnClosed:
        """Close a turn and ack or return what it popped (MSG-5); a closed one stays as it is."""
        await trio.lowlevel.checkpoint()
        return self._desk.close_turn(self._name, turn_id, acked, record)
