"""The broker: durable messages between named agents, over one SQLite writer.

It knows messages, leases, acks and agents' names; no agent process, MCP, HTTP or Claude.
"""

from __future__ import annotations

from ._backup import BackedUp
from ._broker import Broker, open_broker
from ._doctor import DatabaseReport, examine_database
from ._errors import (
    BrokerClosed,
    BrokerDamaged,
    BrokerError,
    BrokerLocked,
    BrokerUnavailable,
    MessageRefused,
    RequestRefused,
    SchemaTooNew,
    TurnOver,
)
from ._flow import (
    FlowEvent,
    MessagesAcked,
    MessagesDied,
    MessageSent,
    MessagesPopped,
    MessagesReturned,
)
from ._guard import LoopBudgets
from ._log import get_logger
from ._mailbox import BrokerMailbox
from ._owner import owner_of
from ._restore import Restored, restore_database
from ._types import (
    MAX_BODY_BYTES,
    OPERATOR,
    RECV_CAP,
    RESERVED_NAMES,
    SYSTEM,
    Acked,
    Delivery,
    InboxCounts,
    InboxSummary,
    JsonObject,
    Message,
    Received,
    Sent,
    TurnClosed,
    TurnLease,
    WallClock,
    is_agent_name,
)

__all__ = [
    "MAX_BODY_BYTES",
    "OPERATOR",
    "RECV_CAP",
    "RESERVED_NAMES",
    "SYSTEM",
    "Acked",
    "BackedUp",
    "Broker",
    "BrokerClosed",
    "BrokerDamaged",
    "BrokerError",
    "BrokerLocked",
    "BrokerMailbox",
    "BrokerUnavailable",
    "DatabaseReport",
    "Delivery",
    "FlowEvent",
    "InboxCounts",
    "InboxSummary",
    "JsonObject",
    "LoopBudgets",
    "Message",
    "MessageRefused",
    "MessageSent",
    "MessagesAcked",
    "MessagesDied",
    "MessagesPopped",
    "MessagesReturned",
    "Received",
    "RequestRefused",
    "Restored",
    "SchemaTooNew",
    "Sent",
    "TurnClosed",
    "TurnLease",
    "TurnOver",
    "WallClock",
    "examine_database",
    "get_logger",
    "is_agent_name",
    "open_broker",
    "owner_of",
    "restore_database",
]
