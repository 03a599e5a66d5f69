"""The values that cross the broker's front door.

Owns their shapes and the rule for names. Knows no time, storage or event loop: instants come in as unix seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

__all__ = [
    "MAX_BODY_BYTES",
    "OPERATOR",
    "RECV_CAP",
    "REMINDER",
    "RESERVED_NAMES",
    "SCHEDULE",
    "SYSTEM",
    "Acked",
    "Delivery",
    "InboxCounts",
    "InboxSummary",
    "JsonObject",
    "Message",
    "Received",
    "Sent",
    "TurnClosed",
    "TurnLease",
    "WallClock",
    "is_agent_name",
]

OPERATOR = "operator"
"""The person. Always reachable (MSG-2)."""

SYSTEM = "system"
"""Sender of the hive's own messages (SYS-1)."""

REMINDER = "reminder"
"""Sender of a reminder that fired (INB-3). Like ``SCHEDULE`` reserved: no agent and no label can pass for it."""

SCHEDULE = "schedule"
"""Sender of a scheduled prompt (SCHED-1)."""

RESERVED_NAMES = frozenset({OPERATOR, SYSTEM, REMINDER, SCHEDULE, "graceful-stop", "hyperhive"})
"""Names no agent can have: each already means something in an inbox."""

MAX_BODY_BYTES = 256 * 1024
"""One message's body, in UTF-8 bytes: a long document still fits, a runaway dump does not (MSG-3)."""

RECV_CAP = 5
"""Rows one ``recv`` can pop at most (MSG-4)."""

_AGENT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


def is_agent_name(name: str) -> bool:
    """Whether ``name`` can name an agent: ``[a-z0-9-]``, 1 to 63 bytes, no hyphen at an end, not reserved (SEC-4)."""
    return _AGENT_NAME.match(name) is not None and name not in RESERVED_NAMES


@attrs.frozen(kw_only=True)
class Message:
    """One stored message (MSG-1).

    Attributes:
        id: broker row id, never reused (REL-5).
        sender: an agent's name, ``operator``, ``system``, or the label of a wake (WAKE-2).
        recipient: an agent's name or ``operator``.
        body: the text, at most ``MAX_BODY_BYTES`` in UTF-8.
        in_reply_to: the id this answers, if any.
        thread_id: the id of the first message of its chain (its own id where it starts one) (MSG-11).
        sent_at: unix seconds.
        attempts: how often it has been popped so far.
        acked_at: unix seconds, or None while it is unhandled.
        dead_at: unix seconds at which it became a dead letter (MSG-6), else None.
        dropped_at: unix seconds at which the operator dropped it as a dead letter, else None; ``acked_at`` is the same.
    """

    id: int
    sender: str
    recipient: str
    body: str
    in_reply_to: int | None
    thread_id: int
    sent_at: float
    attempts: int = 0
    acked_at: float | None = None
    dead_at: float | None = None
    dropped_at: float | None = None


@attrs.frozen(kw_only=True)
class Delivery:
    """A message as one ``recv`` handed it out (MSG-5).

    Attributes:
        message: the row; its ``attempts`` counts this delivery.
        attempt: 1 for the first delivery.
    """

    message: Message
    attempt: int

    @property
    def redelivered(self) -> bool:
        """True when an earlier turn popped this row and did not end well."""
        return self.attempt > 1


@attrs.frozen(kw_only=True)
class Sent:
    """What ``send`` returns once the row survives ``kill -9`` (MSG-1).

    Attributes:
        id: the row.
        duplicate: True when the same send was made earlier in this turn and ``id`` is that one's (MSG-9).
    """

    id: int
    duplicate: bool = False


@attrs.frozen(kw_only=True)
class Received:
    """What one ``recv`` popped, oldest first, and how many unread rows are left (MSG-4)."""

    deliveries: tuple[Delivery, ...]
    remaining: int


@attrs.frozen(kw_only=True)
class Acked:
    """What ``ack_until`` stamped (MSG-7).

    Attributes:
        acked: rows stamped now.
        never_read: how many of those had never been popped.
    """

    acked: int
    never_read: int


@attrs.frozen(kw_only=True)
class InboxSummary:
    """An inbox at a glance, for a wake prompt: nothing is popped by reading it.

    Attributes:
        unread: rows that a ``recv`` could pop now.
        redelivered: how many of those were popped before.
        senders: sender and number of unread rows, the sender of the oldest row first.
        oldest_sent_at: unix seconds of the oldest unread row, None when there is none.
    """

    unread: int
    redelivered: int
    senders: tuple[tuple[str, int], ...]
    oldest_sent_at: float | None


@attrs.frozen(kw_only=True)
class TurnLease:
    """An open turn: what is popped under it is in flight until it is closed (MSG-5).

    Attributes:
        id: never reused.
        agent: whose turn.
        opened_at: unix seconds.
    """

    id: int
    agent: str
    opened_at: float


@attrs.frozen(kw_only=True)
class TurnClosed:
    """What closing a turn did to the rows it had popped (MSG-5, MSG-6)."""

    acked: tuple[int, ...]
    returned: tuple[int, ...]
    dead: tuple[int, ...]


@attrs.frozen(kw_only=True)
class InboxCounts:
    """An inbox in three figures, for whoever watches the hive.

    Attributes:
        unread: rows that a ``recv`` could pop now.
        in_flight: rows popped and neither acked nor returned yet (MSG-5).
        dead: dead letters (MSG-6).
    """

    unread: int = 0
    in_flight: int = 0
    dead: int = 0


JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object kept for its writer: the broker does not look inside."""

WallClock: TypeAlias = Callable[[], float]
"""Returns unix seconds; ``time.time`` in production, injected once."""
