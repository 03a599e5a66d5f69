"""The broker: durable messages between named agents, over one SQLite writer.

It knows messages, leases, acks and agents' names; no agent process, MCP, HTTP or Claude.
"""

from __future__ import annotations

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
from ._types import (
    MAX_BODY_BYTES,
    OPERATOR,
    RECV_CAP,
    RESERVED_NAMES,
    SYSTEM,
    Acked,
    Delivery,
    InboxSummary,
    Message,
    Received,
    Sent,
    TurnClosed,
    TurnLease,
    is_agent_name,
)

__all__ = [
    "MAX_BODY_BYTES",
    "OPERATOR",
    "RECV_CAP",
    "RESERVED_NAMES",
    "SYSTEM",
    "Acked",
    "BrokerClosed",
    "BrokerDamaged",
    "BrokerError",
    "BrokerLocked",
    "BrokerUnavailable",
    "Delivery",
    "InboxSummary",
    "Message",
    "MessageRefused",
    "Received",
    "SchemaTooNew",
    "Sent",
    "TurnClosed",
    "TurnLease",
    "TurnOver",
    "is_agent_name",
]
