"""A post office in memory: mailboxes of several agents with the broker's semantics and nothing on disk.

Owns one implementation of the mailbox port, for tests of what stands on a mailbox. Every method decides synchronously
after one checkpoint, so two runs of a test see the same order. The rules are in ``_desk``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
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
    """The post office: makes mailboxes as a broker does, holds all messages, and lets a test look at them.

    Args:
        agents: names of the agents there are.
        wall_clock: unix seconds for the dates; leases run by trio's clock.
        lease_seconds: how long a row popped outside a turn stays in flight.

    Raises:
        ValueError: a name cannot be an agent's.
    """

    def __init__(
        self,
        agents: Collection[str] = (),
        *,
        wall_clock: WallClock = time.time,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._desk = Desk(wall_clock=wall_clock, lease_seconds=lease_seconds)
        self._set_agents(agents)

    async def set_agents(self, names: Collection[str]) -> None:
        """Make ``names`` the agents; earlier ones keep their rows and can neither send nor be written to.

        Raises:
            ValueError: a name cannot be an agent's.
        """
        await trio.lowlevel.checkpoint()
        self._set_agents(names)

    def _set_agents(self, names: Collection[str]) -> None:
        for name in names:
            _require_agent_name(name)
        self._desk.set_agents(names)

    def mailbox(self, name: str, *, allowed_recipients: Collection[str] = ()) -> MemoryMailbox:
        """The mailbox of an agent or of the operator; two of one name share everything but whom they may write to.

        Args:
            name: the agent's name, or ``operator``.
            allowed_recipients: the only names it may write to beside ``operator``; empty for no restriction (MSG-2).

        Raises:
            ValueError: nobody can have that name.
        """
        if name != OPERATOR:
            _require_agent_name(name)
        return MemoryMailbox(self._desk, name, frozenset(allowed_recipients))

    async def deliver(self, sender: str, to: str, body: str) -> Sent:
        """Store a message of the hive itself, or of a label (SYS-1, WAKE-2).

        Raises:
            MessageRefused: nothing was stored; the sentence says why.
        """
        await trio.lowlevel.checkpoint()
        return self._desk.deliver(sender, to, body)

    def put(self, *, to: str, body: str, sender: str = OPERATOR) -> Message:
        """Arrange a test's mail without a checkpoint: from the operator, the hive (``system``) or a label.

        Raises:
            MessageRefused: nothing was stored; the sentence says why.
        """
        if sender == OPERATOR:
            self._desk.send(OPERATOR, to=to, body=body)
        else:
            self._desk.deliver(sender, to, body)
        return self._desk.messages(to)[-1]

    def messages(self, recipient: str) -> tuple[Message, ...]:
        """Everything that was ever sent to an agent or to ``operator``, oldest first, as it stands now."""
        return self._desk.messages(recipient)

    @property
    def records(self) -> tuple[Mapping[str, object], ...]:
        """The records that turns were closed with, oldest first (TURN-7)."""
        return self._desk.records


def _require_agent_name(name: str) -> None:
    if not is_agent_name(name):
        raise ValueError(f"an agent's name must be [a-z0-9-], 1 to 63 long and not reserved, got {name!r}")


@final
class MemoryMailbox:
    """One agent's mailbox in a `MemoryPost`, which makes it; see the mailbox port for what each method promises."""

    def __init__(self, desk: Desk, name: str, allowed: frozenset[str]) -> None:
        self._desk = desk
        self._name = name
        self._allowed = allowed

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
        return self._desk.send(
            self._name, to=to, body=body, in_reply_to=in_reply_to, turn_id=turn_id, allowed=self._allowed
        )

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

    async def close_turn(
        self, turn_id: int, *, acked: bool, record: Mapping[str, object], blameless: bool = False
    ) -> TurnClosed:
        """Close a turn and ack or return what it popped (MSG-5); a closed one stays as it is.

        Raises:
            TurnOver: this agent never had such a turn.
        """
        await trio.lowlevel.checkpoint()
        return self._desk.close_turn(self._name, turn_id, acked, record, blameless)
