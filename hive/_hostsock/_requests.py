"""The requests of the admin socket, from a line of bytes to a typed value (HOST-1).

Owns the verbs, their fields and every sentence that refuses a line. Pure: knows no socket and no hive.
"""

# ruff: noqa: RUF009  # required and optional are attrs.field with a rule; nothing mutable is made in a class body

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from hive._errors import RequestRefused
from hive._structure import (
    Misfit,
    a_boolean,
    a_text,
    a_whole_number,
    kind_of,
    nearest,
    optional,
    required,
    shown,
    structure,
)

__all__ = [
    "PROTOCOL_VERSION",
    "Ack",
    "AgentStatus",
    "Backup",
    "DropDeadLetter",
    "ListAgents",
    "ListDeadLetters",
    "LookIntoInbox",
    "NotInThisVersion",
    "Request",
    "RequeueDeadLetter",
    "Restart",
    "Scope",
    "Send",
    "ShowThread",
    "Shutdown",
    "Start",
    "Status",
    "Stop",
    "SubscribeAgentStatus",
    "Urls",
    "parse_request",
]

PROTOCOL_VERSION = 1

_MAX_DEPTH = 8  # our deepest request has 3 levels
_ROW_ID = a_whole_number(least=1, most=2**63 - 1)
_ANY_I64 = a_whole_number(least=-(2**63), most=2**63 - 1)
_NAME = a_text("an agent's name")
_PLACE = a_text("an absolute path", holds=lambda text: text.startswith("/") and "\0" not in text)
_ANY_TEXT = a_text("a string", holds=lambda _text: True)


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list of agents' names, got {shown(value)}")
    return tuple(dict.fromkeys(_NAME(name) for name in value))


@attrs.frozen(kw_only=True)
class Scope:
    """What a start or a stop is about: these agents, or all of them. The other parts are no parts of this hive."""

    agent_names: tuple[str, ...] = optional(_names, ())
    agents: bool = optional(a_boolean, False)
    ci: bool = optional(a_boolean, False)
    forge: bool = optional(a_boolean, False)
    gateway: bool = optional(a_boolean, False)
    matrix: bool = optional(a_boolean, False)


def _scope(value: object) -> Scope:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, got {shown(value)}")
    try:
        scope = structure(value, Scope)
    except Misfit as exc:
        raise ValueError("is wrong: " + "; ".join(f"{key} {problem}" for key, problem in exc.problems)) from None
    absent = [part for part in ("ci", "forge", "gateway", "matrix") if getattr(scope, part)]
    if absent:
        raise ValueError(f"must name agents only: this hive runs no {', no '.join(absent)}")
    if not scope.agents and not scope.agent_names:
        raise ValueError('must name something: {"agent_names":["…"]} for some agents, {"agents":true} for all of them')
    return scope


@attrs.frozen(kw_only=True)
class ListAgents:
    """``list``."""


@attrs.frozen(kw_only=True)
class AgentStatus:
    """``agent_status``."""


@attrs.frozen(kw_only=True)
class SubscribeAgentStatus:
    """``subscribe_agent_status``: pushes until the client goes."""


@attrs.frozen(kw_only=True)
class Urls:
    """``urls``."""


@attrs.frozen(kw_only=True)
class Restart:
    """``restart``."""

    name: str = required(_NAME)


@attrs.frozen(kw_only=True)
class Start:
    """``start``."""

    scope: Scope = required(_scope)


@attrs.frozen(kw_only=True)
class Stop:
    """``stop``."""

    scope: Scope = required(_scope)
    graceful: bool = optional(a_boolean, True)


@attrs.frozen(kw_only=True)
class Status:
    """``status``: the whole hive."""


@attrs.frozen(kw_only=True)
class Send:
    """``send``: as the operator. What may be sent to whom is the broker's to say."""

    to: str = required(_ANY_TEXT)
    body: str = required(_ANY_TEXT)
    in_reply_to: int | None = optional(_ROW_ID, None)


@attrs.frozen(kw_only=True)
class LookIntoInbox:
    """``inbox``: of an agent, or the operator's."""

    agent: str | None = optional(_NAME, None)
    limit: int = optional(a_whole_number(least=1, most=200), 20)
    unread: bool = optional(a_boolean, False)


@attrs.frozen(kw_only=True)
class Ack:
    """``ack``: the operator's rows."""

    up_to: int = required(_ROW_ID)


@attrs.frozen(kw_only=True)
class ShowThread:
    """``thread``."""

    id: int = required(_ROW_ID)


@attrs.frozen(kw_only=True)
class ListDeadLetters:
    """``dead_letters``."""

    limit: int = optional(a_whole_number(least=1, most=200), 20)
    before_id: int | None = optional(_ROW_ID, None)


@attrs.frozen(kw_only=True)
class RequeueDeadLetter:
    """``requeue_dead_letter``."""

    id: int = required(_ROW_ID)


@attrs.frozen(kw_only=True)
class DropDeadLetter:
    """``drop_dead_letter``."""

    id: int = required(_ROW_ID)


@attrs.frozen(kw_only=True)
class Backup:
    """``backup``: to a place on the hive's host, or beside the earlier ones."""

    path: str | None = optional(_PLACE, None)


@attrs.frozen(kw_only=True)
class Shutdown:
    """``shutdown``: the whole hive."""

    graceful: bool = optional(a_boolean, True)


@attrs.frozen(kw_only=True)
class _SetPaused:
    name: str = required(_NAME)
    paused: bool = required(a_boolean)


@attrs.frozen(kw_only=True)
class _Pending:
    pass


@attrs.frozen(kw_only=True)
class _Decision:
    id: int = required(_ANY_I64)


@attrs.frozen(kw_only=True)
class NotInThisVersion:
    """A well-formed request of the protocol for which this version has no answer."""

    verb: str


Request = (
    ListAgents
    | AgentStatus
    | SubscribeAgentStatus
    | Urls
    | Restart
    | Start
    | Stop
    | Status
    | Send
    | LookIntoInbox
    | Ack
    | ShowThread
    | ListDeadLetters
    | RequeueDeadLetter
    | DropDeadLetter
    | Backup
    | Shutdown
    | NotInThisVersion
)

_VERBS: Mapping[str, type[Any]] = {
    "list": ListAgents,
    "agent_status": AgentStatus,
    "subscribe_agent_status": SubscribeAgentStatus,
    "urls": Urls,
    "restart": Restart,
    "start": Start,
    "stop": Stop,
    "status": Status,
    "send": Send,
    "inbox": LookIntoInbox,
    "ack": Ack,
    "thread": ShowThread,
    "dead_letters": ListDeadLetters,
    "requeue_dead_letter": RequeueDeadLetter,
    "drop_dead_letter": DropDeadLetter,
    "backup": Backup,
    "shutdown": Shutdown,
}
_LATER: Mapping[str, type[Any]] = {
    "set_paused": _SetPaused,
    "pending": _Pending,
    "approve": _Decision,
    "deny": _Decision,
}


def parse_request(line: bytes) -> Request:
    """What one line asks for.

    Raises:
        RequestRefused: it is no request; the sentence is for whoever wrote it.
    """
    fields = dict(_json_object(line))
    version = fields.pop("version", PROTOCOL_VERSION)
    if version != PROTOCOL_VERSION or isinstance(version, bool):
        raise RequestRefused(f"version must be {PROTOCOL_VERSION}, got {shown(version)}; this hive speaks no other")
    verb = fields.pop("cmd", None)
    if not isinstance(verb, str):
        raise RequestRefused(f'a request must have a string "cmd", got {shown(verb)}')
    cls = _VERBS.get(verb) or _LATER.get(verb)
    if cls is None:
        raise RequestRefused(f"there is no cmd {shown(verb)}; {nearest(verb, [*_VERBS, *_LATER])}")
    try:
        request = structure(fields, cls)
    except Misfit as exc:
        problems = "; ".join(f"{key} {problem}" for key, problem in exc.problems)
        raise RequestRefused(f"{verb}: {problems}") from None
    return NotInThisVersion(verb=verb) if verb in _LATER else request


def _json_object(line: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
        too_deep = _deeper_than(_MAX_DEPTH, value)
    except RecursionError:
        too_deep, value = True, None
    except ValueError as exc:
        what = f"{exc.msg} at character {exc.pos}" if isinstance(exc, json.JSONDecodeError) else _reason(exc)
        raise RequestRefused(f"a request must be one JSON object on one line: {what}") from None
    if too_deep:
        raise RequestRefused(f"a request must not be nested deeper than {_MAX_DEPTH} levels")
    if not isinstance(value, dict):
        raise RequestRefused(f"a request must be one JSON object on one line, got {kind_of(value)}")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _reason(exc: ValueError) -> str:
    return "it must be UTF-8" if isinstance(exc, UnicodeDecodeError) else str(exc).split(";")[0]


def _deeper_than(levels: int, value: object) -> bool:
    if isinstance(value, dict):
        inner: Any = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return False
    return levels == 0 or any(_deeper_than(levels - 1, item) for item in inner)
