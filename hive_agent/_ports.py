"""The seams of an agent: its mailbox, the hour, and what its tools may touch.

Owns the seams; knows no implementation. ``hive_broker`` offers a mailbox in process and over a socket,
``hive_agent.testing`` one in memory, and one contract suite runs over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from hive_broker import Acked, InboxSummary, Received, Sent, TurnClosed, TurnLease

__all__ = ["Mailbox", "ToolServices", "WallClock"]

WallClock = Callable[[], float]
"""Returns unix seconds; ``time.time`` in production, injected once."""


class Mailbox(Protocol):
    """One agent's door to the broker. Who calls is fixed when it is made (SURF-5).

    Every method that changes something returns after its commit. A caller that is cancelled either gets
    ``trio.Cancelled`` and nothing happened, or gets its answer.
    """

    @property
    def name(self) -> str:
        """The agent this mailbox belongs to."""
        ...

    async def send(self, *, to: str, body: str, in_reply_to: int | None = None, turn_id: int | None = None) -> Sent:
        """Store one message (MSG-1, MSG-2, MSG-3); within a turn the same send twice is one message (MSG-9).

        Raises:
            MessageRefused: with the reason and what to do; nothing was stored.
        """
        ...

    async def recv(self, *, limit: int = 1, turn_id: int | None = None) -> Received:
        """Pop up to ``limit`` (1 to ``RECV_CAP``) unread rows, oldest first, without waiting for any (MSG-4, MSG-5).

        Args:
            limit: rows at most; a caller clamps it before.
            turn_id: the open turn the rows are popped under; None pops them under a lease of its own, which
                ends after ``lease_seconds``.

        Raises:
            TurnOver: ``turn_id`` is not an open turn of this agent; nothing was popped.
        """
        ...

    async def ack_until(self, up_to: int) -> Acked:
        """Stamp every unacked row of this agent with id <= ``up_to`` (MSG-7)."""
        ...

    async def summary(self) -> InboxSummary:
        """Look at the unread rows without popping any."""
        ...

    async def wait_unread(self) -> None:
        """Return as soon as there is an unread row; at once when there is one already (TURN-2)."""
        ...

    async def open_turn(self, *, cause: str) -> TurnLease:
        """Open this agent's turn; at most one is open at a time (TURN-4).

        Raises:
            TurnOver: this agent's previous turn is still open: close it first.
        """
        ...

    async def close_turn(
        self, turn_id: int, *, acked: bool, record: Mapping[str, object], blameless: bool = False
    ) -> TurnClosed:
        """Close a turn: ack what it popped or give it back, in one transaction with its record (MSG-5, TURN-7).

        Closing a turn that is already closed changes nothing and answers with empty tuples.

        Args:
            turn_id: from ``open_turn``.
            acked: True when the turn ended well.
            record: JSON object with the turn's statistics, kept as it is.
            blameless: the turn did not fail over what it popped (no login, a rate limit, a stop): the attempt brings
                none of it nearer to being a dead letter (MSG-6).
        """
        ...


class ToolServices(Protocol):
    """What the built-in tools of one agent may touch: that agent and nothing else."""

    @property
    def name(self) -> str:
        """The agent."""
        ...

    @property
    def mailbox(self) -> Mailbox:
        """Its inbox and outbox."""
        ...

    @property
    def turn_id(self) -> int | None:
        """The turn that is open now, if one is."""
        ...

    @property
    def stop_notice(self) -> str | None:
        """While the inbox is fenced for a stop, the text that ``recv`` gives instead of mail (STOP-1); else None."""
        ...

    def set_status(self, text: str) -> None:
        """Keep and show a status line; ``""`` clears it (SELF-1).

        Raises:
            ValueError: more than one line, or over 200 characters; the sentence is for the caller.
        """
        ...
