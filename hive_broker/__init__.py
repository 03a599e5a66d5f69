"""The broker: durable messages between named agents, over one SQLite writer.

It knows messages, leases, acks and agents' names; no agent process, MCP, HTTP or Claude.
"""

from __future__ import annotations

from ._broker import Broker, open_broker
from ._errors import (
    BrokerClosed,
    BrokerDamaged,
    BrokerError,
    BrokerLocked,
    BrokerUnavailable,
    MessageRefused,
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
from ._log import get_logger
from ._mailbox import BrokerMailbox
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
    "Broker",
    "BrokerClosed",
    "BrokerDamaged",
    "BrokerError",
    "BrokerLocked",
    "BrokerMailbox",
    "BrokerUnavailable",
    "Delivery",
    "FlowEvent",
    "InboxCounts",
    "InboxSummary",
    "JsonObject",
    "Message",
    "MessageRefused",
    "MessageSent",
    "MessagesAcked",
    "MessagesDied",
    "MessagesPopped",
    "MessagesReturned",
    "Received",
    "SchemaTooNew",
    "Sent",
    "TurnClosed",
    "TurnLease",
    "TurnOver",
    "WallClock",
    "get_logger",
    "is_agent_name",
    "open_broker",
]
