"""What the admin socket controls, seen from the socket.

Owns the port ``HiveControl`` and the values that cross it. Knows no socket, no JSON and no hive: the server asks the
port, the composition root implements it, the client gives the same values back at the other end.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import attrs

from hive_broker import Acked, BackedUp, Message, Sent

__all__ = [
    "AgentDetail",
    "AgentStatusRow",
    "AgentStatusStream",
    "DeadLetters",
    "HiveControl",
    "HiveStatus",
    "Inbox",
    "Thread",
]

_PIDS = 1 << 31  # the kernel keeps one in 32 bits, with a sign


@attrs.frozen(kw_only=True)
class AgentStatusRow:
    """One managed agent, as desktop clients know it: names and order are those of the wire (HOST-1).

    The flags are independent of each other.

    Attributes:
        name: the agent.
        running: its task is alive.
        failed: it used up its restarts and was left (HOST-5).
        needs_update: it runs with another configuration than the one it should.
        needs_login: its runtime has no credentials that work.
        deployed_sha: the revision of its configuration.
        pending_reminders: how many have not fired yet.
        paused: no new turn starts (TURN-9).
        parent: the agent it belongs to.
        active_model: what its last turn ran on.
        status_text: what it last said about itself; not sent while it does not run (SELF-1).
        status_set_at: unix seconds, exactly when there is a ``status_text``.
        url: its page.
    """

    name: str
    running: bool
    failed: bool = False
    needs_update: bool = False
    needs_login: bool = False
    deployed_sha: str | None = None
    pending_reminders: int = 0
    paused: bool = False
    parent: str | None = None
    active_model: str | None = None
    status_text: str | None = None
    status_set_at: float | None = None
    url: str | None = None


@attrs.frozen(kw_only=True)
class AgentDetail(AgentStatusRow):
    """One managed agent with what an operator at a terminal wants beside the row.

    Attributes:
        turn_state: ``idle``, ``thinking``, ``compacting``; None while it does not run (TURN-1).
        turn_state_since: unix seconds, also on the wire (BUS-2).
        unread: rows its next ``recv`` could pop.
        turns: how many it has completed.
        last_outcome: of its last turn (TURN-5).
        note: why it does not go on by itself, in one sentence; None when nothing holds it.
    """

    turn_state: str | None = None
    turn_state_since: float | None = None
    unread: int = 0
    turns: int = 0
    last_outcome: str | None = None
    note: str | None = None


@attrs.frozen(kw_only=True)
class HiveStatus:
    """The whole hive at a glance.

    Attributes:
        hive: its name.
        pid: the process.
        started_at: unix seconds.
        operator_unread: messages to the operator that were not acked.
        agents: in the order of the configuration.
        warnings: what stands, one sentence each.
    """

    hive: str
    pid: int = attrs.field(validator=[attrs.validators.ge(1), attrs.validators.lt(_PIDS)])
    started_at: float
    operator_unread: int
    agents: tuple[AgentDetail, ...]
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Inbox:
    """An inbox as one looks into it, without popping anything.

    Attributes:
        owner: an agent, or ``operator``.
        unread: how many rows of it are unread, shown here or not.
        messages: oldest first; unread are those that are neither acked nor dead.
        left_out: how many of the asked-for messages, the oldest, had no room in one answer.
    """

    owner: str
    unread: int
    messages: tuple[Message, ...]
    left_out: int = 0


@attrs.frozen(kw_only=True)
class Thread:
    """A chain of replies (MSG-11).

    Attributes:
        id: of its first message.
        messages: oldest first.
        left_out: how many of them, the oldest, had no room in one answer.
    """

    id: int
    messages: tuple[Message, ...]
    left_out: int = 0


@attrs.frozen(kw_only=True)
class DeadLetters:
    """Messages of any inbox that were delivered too often without a good end (MSG-6).

    Attributes:
        messages: oldest first.
        left_out: how many of the asked-for messages, the oldest, had no room in one answer.
    """

    messages: tuple[Message, ...]
    left_out: int = 0


class AgentStatusStream(Protocol):
    """Rows of agents that changed, for one subscriber."""

    async def next_row(self) -> AgentStatusRow:
        """The newest row of an agent that changed since it was last given; waits for one.

        A subscriber that is slow misses rows in between, never an agent's last one.
        """
        ...


class HiveControl(Protocol):
    """What an operator may ask of a running hive.

    Every method may raise ``RequestRefused`` (or an error of the broker's): its sentence goes to the operator. Clients
    give up after 5 s, so a method that starts something long (a stop, a restart) returns once it is under way.
    """

    async def list_agents(self) -> tuple[str, ...]:
        """The names of the managed agents; the socket asks this before it passes a name on."""
        ...

    async def agent_status(self) -> tuple[AgentStatusRow, ...]:
        """One row per managed agent."""
        ...

    def subscribe_agent_status(self) -> AbstractContextManager[AgentStatusStream]:
        """Rows of agents that change from now on, until the block ends; ``AgentStatusFeed`` makes these."""
        ...

    async def hive_status(self) -> HiveStatus:
        """The whole hive."""
        ...

    async def start(self, names: tuple[str, ...]) -> None:
        """Start these managed agents; one that runs is left as it is."""
        ...

    async def stop(self, names: tuple[str, ...], *, graceful: bool) -> None:
        """Stop these managed agents: let them finish (STOP-1), or at once. One that is stopped is left as it is."""
        ...

    async def restart(self, name: str) -> None:
        """Stop and start one managed agent; also revives one that failed."""
        ...

    async def send(self, *, to: str, body: str, in_reply_to: int | None) -> Sent:
        """Store one message from the operator (MSG-1)."""
        ...

    async def inbox(self, *, agent: str | None, limit: int, unread_only: bool) -> Inbox:
        """The newest ``limit`` messages of a managed agent's inbox, or of the operator's for None; pops nothing."""
        ...

    async def ack(self, up_to: int) -> Acked:
        """Stamp the operator's rows with id <= ``up_to`` (MSG-7)."""
        ...

    async def thread(self, message_id: int) -> Thread:
        """The chain that ``message_id`` is part of; refused when there is no such message."""
        ...

    async def dead_letters(self, *, limit: int, before_id: int | None) -> DeadLetters:
        """The newest ``limit`` dead letters, older than ``before_id`` where it is given."""
        ...

    async def requeue_dead_letter(self, message_id: int) -> Message:
        """Make a dead letter unread again; refused when it is none."""
        ...

    async def drop_dead_letter(self, message_id: int) -> Message:
        """Put a dead letter aside for good, marked; refused when it is none."""
        ...

    async def backup(self, path: Path | None) -> BackedUp:
        """Write a backup to an absolute path, or beside the earlier ones for None; takes as long as the disk does.

        The one method that returns when all is done: a client that gives up earlier leaves a whole backup all the same.
        """
        ...

    async def shutdown(self, *, graceful: bool) -> None:
        """Begin to stop the whole hive: let turns finish (STOP-2), or at once. Asking again may only hasten it."""
        ...
