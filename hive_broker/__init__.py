"""The broker: durable messages between named agents, over one SQLite writer, and what is kept beside them.

It knows messages, leases, acks, agents' names and what is due at an hour; no agent process, MCP, HTTP or Claude.
"""

from __future__ import annotations

from ._approvals import Approval, ApprovalKind, ApprovalStatus
from ._backup import BackedUp
from ._broker import Broker, open_broker
from ._client import SocketMailbox, open_mailbox_client
from ._doctor import DatabaseReport, examine_database
from ._errors import (
    BrokerClosed,
    BrokerDamaged,
    BrokerError,
    BrokerLocked,
    BrokerUnavailable,
    MailboxSocketRefused,
    MailboxSocketUnusable,
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
    RecordKind,
    RecordsChanged,
)
from ._guard import LoopBudgets
from ._lines import LineCut, LineReader, LineTooLong
from ._log import get_logger
from ._mailbox import BrokerMailbox
from ._notices import Noted, Notice
from ._owner import owner_of
from ._permissions import Permissions
from ._reminders import REMINDER_LIMIT_BYTES, Reminder
from ._restore import Restored, restore_database
from ._schedule_requests import SCHEDULE_LIMIT_BYTES, Fired, ScheduleEdit
from ._schedules import Schedule, ScheduleStatus, ScheduleTarget
from ._server import serve_mailbox
from ._socket_file import serve_unix_socket
from ._timetable import Timetable
from ._todos import Todo, TodoChange, TodosDone, TodoUpserted
from ._types import (
    MAX_BODY_BYTES,
    OPERATOR,
    RECV_CAP,
    REMINDER,
    RESERVED_NAMES,
    SCHEDULE,
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
    "REMINDER",
    "REMINDER_LIMIT_BYTES",
    "RESERVED_NAMES",
    "SCHEDULE",
    "SCHEDULE_LIMIT_BYTES",
    "SYSTEM",
    "Acked",
    "Approval",
    "ApprovalKind",
    "ApprovalStatus",
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
    "Fired",
    "FlowEvent",
    "InboxCounts",
    "InboxSummary",
    "JsonObject",
    "LineCut",
    "LineReader",
    "LineTooLong",
    "LoopBudgets",
    "MailboxSocketRefused",
    "MailboxSocketUnusable",
    "Message",
    "MessageRefused",
    "MessageSent",
    "MessagesAcked",
    "MessagesDied",
    "MessagesPopped",
    "MessagesReturned",
    "Noted",
    "Notice",
    "Permissions",
    "Received",
    "RecordKind",
    "RecordsChanged",
    "Reminder",
    "RequestRefused",
    "Restored",
    "Schedule",
    "ScheduleEdit",
    "ScheduleStatus",
    "ScheduleTarget",
    "SchemaTooNew",
    "Sent",
    "SocketMailbox",
    "Timetable",
    "Todo",
    "TodoChange",
    "TodoUpserted",
    "TodosDone",
    "TurnClosed",
    "TurnLease",
    "TurnOver",
    "WallClock",
    "examine_database",
    "get_logger",
    "is_agent_name",
    "open_broker",
    "open_mailbox_client",
    "owner_of",
    "restore_database",
    "serve_mailbox",
    "serve_unix_socket",
]
