"""What can be asked of a mailbox over its socket: methods, their parameters, their answers.

Owns that table and the rules of parameters. A new method of the mailbox needs a row here and a method in ``_client``:
the server asks the mailbox by name. Knows no lines; ``_wire`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from ._approvals import Approval
from ._permissions import Permissions
from ._reminders import Reminder
from ._rules import shown
from ._schedule_requests import Fired, ScheduleEdit
from ._schedules import Schedule
from ._todos import Todo, TodosDone, TodoUpserted
from ._types import Acked, InboxSummary, Received, Sent, TurnClosed, TurnLease
from ._wire_values import BadLine, a_text, from_json

__all__ = ["ATTACH", "ATTACHING", "METHODS", "Method"]

Rule: TypeAlias = Callable[[object], Any]
"""Gives a parameter back in its own type, or raises ``ValueError`` with "must …"."""

_RECV_BYTES = 512 * 1024
"""Bodies in one answer to ``recv``: two of the largest, which take two thirds of a line in the worst encoding."""


def _a_whole_number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"must be a whole number, got {shown(value)}")


def _a_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"must be true or false, got {shown(value)}")


def _an_object(value: object) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"must be an object, got {shown(value)}")


def _a_client(value: object) -> str:
    if isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef"):
        return value
    raise ValueError(f"must be 32 hexadecimal digits, got {shown(value)}")


def _a_number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if value in ("nan", "inf", "-inf"):
        return float(str(value))
    raise ValueError(f"must be a number, got {shown(value)}")


def _a_list(rule: Rule) -> Rule:
    def each(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"must be a list, got {shown(value)}")
        return tuple(rule(item) for item in value)

    return each


def _an_edit(value: object) -> ScheduleEdit:
    try:
        return from_json(_an_object(value), ScheduleEdit)  # type: ignore[no-any-return]
    except BadLine:
        raise ValueError("must be an object with the keys of a schedule's edit") from None


def _or_null(rule: Rule) -> Rule:
    return lambda value: None if value is None else rule(value)


@attrs.frozen(kw_only=True)
class Method:
    """One method of a mailbox, as the wire has it.

    Attributes:
        params: its keyword arguments; one whose rule allows null may be left out.
        answer: what it returns; anything cattrs can make of JSON.
        changes: whether it changes something: then it is applied once however often it comes, and what it answers is
            the value of the one change it makes.
        of_turns: whether only the client that runs the agent's turns can ask for it.
        waits: whether it may take for ever: then it ends with its connection.
        fixed: arguments the server adds.
    """

    params: Mapping[str, Rule] = attrs.field(factory=dict)
    answer: Any
    changes: bool = False
    of_turns: bool = False
    waits: bool = False
    fixed: Mapping[str, Any] = attrs.field(factory=dict)


ATTACH = "attach"
"""The first request of every connection: who calls, and whether it runs the agent's turns."""

ATTACHING = Method(
    params={"name": a_text, "client": _a_client, "runs_turns": _a_boolean, "has_turn": _a_boolean},
    answer=type(None),
)

_A_TURN = _or_null(_a_whole_number)

_MAIL: Mapping[str, Method] = {
    "send": Method(
        params={"to": a_text, "body": a_text, "in_reply_to": _or_null(_a_whole_number), "turn_id": _A_TURN},
        answer=Sent,
        changes=True,
    ),
    "recv": Method(
        params={"limit": _a_whole_number, "turn_id": _A_TURN},
        answer=Received,
        changes=True,
        fixed={"limit_bytes": _RECV_BYTES},
    ),
    "ack_until": Method(params={"up_to": _a_whole_number}, answer=Acked, changes=True),
    "summary": Method(answer=InboxSummary),
    "wait_unread": Method(answer=type(None), waits=True),
    "open_turn": Method(params={"cause": a_text}, answer=TurnLease, changes=True, of_turns=True),
    "close_turn": Method(
        params={
            "turn_id": _a_whole_number,
            "acked": _a_boolean,
            "record": _an_object,
            "blameless": _a_boolean,
        },
        answer=TurnClosed,
        changes=True,
        of_turns=True,
    ),
}

_OPTIONAL_TEXT, _OPTIONAL_NUMBER = _or_null(a_text), _or_null(_a_number)

_RECORDS: Mapping[str, Method] = {
    "remind": Method(
        params={
            "message": a_text,
            "delay_seconds": _OPTIONAL_NUMBER,
            "at": _OPTIONAL_NUMBER,
            "spill_path": _OPTIONAL_TEXT,
        },
        answer=Reminder,
        changes=True,
    ),
    "reminders": Method(answer=tuple[Reminder, ...]),
    "cancel_reminder": Method(params={"reminder_id": _a_whole_number}, answer=Reminder, changes=True),
    "upsert_todo": Method(
        params={"subsystem": a_text, "key": a_text, "summary": a_text}, answer=TodoUpserted, changes=True
    ),
    "clear_todo": Method(params={"subsystem": a_text, "key": a_text}, answer=bool, changes=True),
    "todos": Method(answer=tuple[Todo, ...]),
    "mark_todos_done": Method(params={"ids": _a_list(_a_whole_number)}, answer=TodosDone, changes=True),
    "request_schedule": Method(
        params={
            "targets": _a_list(a_text),
            "body": a_text,
            "first_fire_at": _a_number,
            "interval_seconds": _OPTIONAL_NUMBER,
            "cron": _OPTIONAL_TEXT,
            "description": _OPTIONAL_TEXT,
        },
        answer=Schedule,
        changes=True,
    ),
    "edit_schedule": Method(params={"schedule_id": _a_whole_number, "edit": _an_edit}, answer=Schedule, changes=True),
    "cancel_schedule": Method(params={"schedule_id": _a_whole_number}, answer=Schedule, changes=True),
    "fire_schedule_now": Method(params={"schedule_id": _a_whole_number}, answer=Fired, changes=True),
    "schedules": Method(answer=tuple[Schedule, ...]),
    "pending_approvals": Method(answer=tuple[Approval, ...]),
    "cancel_approval": Method(
        params={"approval_id": _a_whole_number, "note": _OPTIONAL_TEXT}, answer=Approval, changes=True
    ),
    "permissions": Method(answer=Permissions | None),
}

METHODS: Mapping[str, Method] = MappingProxyType({**_MAIL, **_RECORDS})
"""Everything a client can ask of a mailbox."""
