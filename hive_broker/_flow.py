"""What happens to messages and to what is kept beside them, as values: told to watchers after the commit, in its order.

Owns the events' shapes. Knows no storage and no event loop; ``_store`` makes them, ``_watch`` hands them out.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeAlias, TypeVar

import attrs

from ._types import Message

__all__ = [
    "Done",
    "FlowEvent",
    "MessageSent",
    "MessagesAcked",
    "MessagesDied",
    "MessagesPopped",
    "MessagesReturned",
    "RecordKind",
    "RecordsChanged",
]

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class MessageSent:
    """One message was stored (MSG-1); a repeated send within a turn makes none (MSG-9)."""

    message: Message


@attrs.frozen(kw_only=True)
class MessagesPopped:
    """Rows went in flight (MSG-5).

    Attributes:
        agent: whose inbox.
        turn_id: the turn they are popped under, None when a timed lease holds them.
        messages: the rows, oldest first, with this delivery counted.
    """

    agent: str
    turn_id: int | None
    messages: tuple[Message, ...]


@attrs.frozen(kw_only=True)
class MessagesAcked:
    """Rows were handled, or dropped as dead letters, and never come back (MSG-5, MSG-6, MSG-7)."""

    agent: str
    ids: tuple[int, ...]


@attrs.frozen(kw_only=True)
class MessagesReturned:
    """Rows that were in flight, or dead letters, are unread again (MSG-5, MSG-6)."""

    agent: str
    ids: tuple[int, ...]


@attrs.frozen(kw_only=True)
class MessagesDied:
    """Rows became dead letters: delivered too often without a good end (MSG-6)."""

    agent: str
    ids: tuple[int, ...]


class RecordKind(Enum):
    """What the broker keeps beside messages."""

    AGENTS = "agents"
    REMINDERS = "reminders"
    SCHEDULES = "schedules"
    APPROVALS = "approvals"
    TODOS = "todos"
    PERMISSIONS = "permissions"
    NOTICES = "notices"


@attrs.frozen(kw_only=True)
class RecordsChanged:
    """Something kept beside messages is not what it was: whoever shows or serves it looks again.

    Attributes:
        kind: what changed.
        agent: whose; None where it is the hive's.
    """

    kind: RecordKind
    agent: str | None = None


FlowEvent: TypeAlias = MessageSent | MessagesPopped | MessagesAcked | MessagesReturned | MessagesDied | RecordsChanged
"""Anything ``Broker.watch`` can hand out."""


@attrs.frozen
class Done(Generic[T]):
    """What one piece of work did to the database: the caller's answer, and the events of it."""

    value: T
    flow: tuple[FlowEvent, ...] = ()
