"""A mailbox in lines of JSON: what a client asks over the socket and what it is answered (WAKE-2).

Owns the methods that can be asked for, the shape of every line, and the limits a line obeys (REL-4). Every line of the
protocol carries ``version``; a request has an ``id`` of its client's choice and is answered exactly once, not
necessarily in order. Pure: knows no socket, no time and no database. ``_server`` and ``_client`` are its two ends.

A new method of the mailbox needs a row in ``METHODS`` and a method in ``_client``: ``_server`` asks by name.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, TypeVar, final

import attrs
import cattrs

from . import _errors
from ._errors import BrokerError, BrokerLocked, BrokerUnavailable, SchemaTooNew
from ._rules import shown
from ._types import Acked, InboxSummary, Received, Sent, TurnClosed, TurnLease

__all__ = [
    "ATTACH",
    "MAX_LINE_BYTES",
    "METHODS",
    "PROTOCOL_VERSION",
    "Answer",
    "BadLine",
    "Method",
    "Request",
    "Wake",
    "answer_line",
    "error_of",
    "from_json",
    "parse_answer",
    "parse_request",
    "refusal_line",
    "refusal_of",
    "request_line",
    "to_json",
    "wake_answer_line",
]

T = TypeVar("T")

Rule: TypeAlias = Callable[[object], Any]
"""Gives a parameter back in its own type, or raises ``ValueError`` with "must …"."""

PROTOCOL_VERSION = 1
"""Grows when an older end could misread a line; fields may be added without that."""

MAX_LINE_BYTES = 1 << 20
"""One line, either way, without its newline (REL-4)."""

_MAX_DEPTH = 32
"""Lists and objects within one another: a turn's record has four."""

_RECV_BYTES = 512 * 1024
"""Bodies in one answer to ``recv``: two of the largest, which take two thirds of a line in the worst encoding."""

_PACKED_FROM = 1024
"""Characters from which it is worth a look whether a text is shorter in base64."""

_SENDERS_SHOWN = 1000
"""Of a summary: anybody can make up labels, and all of them must fit into a line."""

_MAX_ID = 2**63 - 1
"""SQLite's largest integer."""


@final
class BadLine(Exception):
    """A line that nothing can be done about; the sentence is for whoever wrote it.

    Attributes:
        request_id: of the request it was meant to be, where that can be told.
    """

    def __init__(self, sentence: str, *, request_id: int | None = None) -> None:
        super().__init__(sentence)
        self.request_id = request_id


def _a_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True).decode()
        except (binascii.Error, ValueError):
            raise ValueError("must be UTF-8 in base64 where it is not a string") from None
    raise ValueError(f"must be a string, got {shown(value)}")


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

_ATTACH = Method(
    params={"name": _a_text, "client": _a_client, "runs_turns": _a_boolean, "has_turn": _a_boolean},
    answer=type(None),
)

_A_TURN = _or_null(_a_whole_number)

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "send": Method(
            params={"to": _a_text, "body": _a_text, "in_reply_to": _or_null(_a_whole_number), "turn_id": _A_TURN},
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
        "open_turn": Method(params={"cause": _a_text}, answer=TurnLease, changes=True, of_turns=True),
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
)
"""Everything a client can ask of a mailbox."""


@attrs.frozen(kw_only=True)
class Request:
    """One request as the server gets it.

    Attributes:
        id: the client's number for it; asking again with the same one is asking for the same answer.
        method: a key of ``METHODS``, or ``ATTACH``.
        params: its arguments, each in its own type.
        done: the client has the answers of all its requests up to this id, and will not ask for them again.
    """

    id: int
    method: str
    params: Mapping[str, Any]
    done: int

    @property
    def digest(self) -> str:
        """What was asked, in short: a number that is used for something else must not get the first one's answer."""
        text = json.dumps([self.method, dict(self.params)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@attrs.frozen(kw_only=True)
class Wake:
    """``{"cmd":"wake","from":"<label>","body":"…"}``: somebody beside the agent wants it to look (WAKE-2)."""

    label: str
    body: str


@attrs.frozen(kw_only=True)
class Answer:
    """One answer as the client gets it.

    Attributes:
        id: of the request; None where the server could not tell which one it was.
        result: what the method returned, as JSON; None where it failed.
        kind: the name of the error, None when there is none.
        error: its sentence.
    """

    id: int | None
    result: Any = None
    kind: str | None = None
    error: str = ""


def request_line(request_id: int, method: str, params: Mapping[str, object], *, done: int) -> bytes:
    """A request.

    Raises:
        TypeError, ValueError: a parameter is not JSON.
    """
    packed = {name: _packed(value) if isinstance(value, str) else value for name, value in params.items()}
    return _line({"version": PROTOCOL_VERSION, "id": request_id, "method": method, "params": packed, "done": done})


def parse_request(line: bytes) -> Request | Wake:
    """Read a request.

    Raises:
        BadLine: it is none.
    """
    data = _object_in(line)
    if "cmd" in data:
        return _wake(data)
    request_id = data.get("id")
    if not isinstance(request_id, int) or isinstance(request_id, bool) or not 1 <= request_id <= _MAX_ID:
        raise BadLine(f"a request must have an id, a whole number from 1 on, got {shown(request_id)}")
    _check_version(data, request_id)
    name = data.get("method")
    method = _ATTACH if name == ATTACH else METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        raise BadLine(f"there is no method {shown(name)}; {_nearest(str(name))}", request_id=request_id)
    try:
        params = _params(method, _an_object(data.get("params", {})))
        done = _a_whole_number(data.get("done", 0))
    except ValueError as exc:
        raise BadLine(f"the request {name} cannot be carried out: {exc}", request_id=request_id) from None
    return Request(id=request_id, method=str(name), params=params, done=done)


def answer_line(request_id: int, method: str, value: object) -> bytes:
    """What a method returned; a refusal instead where that has no room in a line."""
    line = _line({"version": PROTOCOL_VERSION, "id": request_id, "ok": True, "result": to_json(value)})
    if len(line) > MAX_LINE_BYTES:
        sentence = f"the answer to {method} has more than {MAX_LINE_BYTES} bytes and cannot be given: ask for less"
        return refusal_line(request_id, BrokerUnavailable(sentence))
    return line


def refusal_line(request_id: int | None, error: Exception) -> bytes:
    """Why a request was not carried out: the kind of the error and its sentence."""
    return _line({"version": PROTOCOL_VERSION, "id": request_id, "ok": False, **refusal_of(error)})


def refusal_of(error: Exception) -> dict[str, object]:
    """An error's kind and sentence, as ``error_of`` takes them."""
    kind = next((name for name, cls in _ERRORS.items() if isinstance(error, cls)), type(error).__name__)
    return {"kind": kind, "error": _short(str(error))}


def wake_answer_line(sent: Sent) -> bytes:
    """A wake was stored."""
    return _line({"version": PROTOCOL_VERSION, "ok": True, "sent": to_json(sent)})


def parse_answer(line: bytes) -> Answer:
    """Read an answer.

    Raises:
        BadLine: it is none of this version.
    """
    data = _object_in(line)
    _check_version(data, None)
    request_id = data.get("id")
    if request_id is not None and (not isinstance(request_id, int) or isinstance(request_id, bool)):
        raise BadLine(f"an answer must have the id of its request, got {shown(request_id)}")
    if data.get("ok") is True:
        return Answer(id=request_id, result=data.get("result"))
    return Answer(id=request_id, kind=str(data.get("kind")), error=str(data.get("error")))


def error_of(answer: Answer) -> Exception:
    """A fresh error of the kind that was raised at the other end; of a kind unknown here, ``BrokerUnavailable``."""
    return _ERRORS.get(answer.kind or "", BrokerUnavailable)(answer.error)


def to_json(value: object) -> Any:
    """``value`` as JSON has it: attrs values as objects, texts packed where that is shorter."""
    if isinstance(value, InboxSummary):
        value = attrs.evolve(value, senders=value.senders[:_SENDERS_SHOWN])
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _packed(value)
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    cls: type[Any] = type(value)
    if attrs.has(cls):
        return {field.name: to_json(getattr(value, field.name)) for field in attrs.fields(cls)}
    return value


def from_json(data: object, kind: type[T]) -> T:
    """What ``to_json`` made of a ``kind``; fields this version does not know are passed over.

    Raises:
        BadLine: it does not have that shape.
    """
    try:
        return _converter().structure(data, kind)
    except Exception as exc:  # whatever the stranger's value makes the hooks of cattrs raise
        raise BadLine(f"the answer must have the shape of {kind.__name__}, and it has not") from exc


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_structure_hook(str, lambda value, _: _a_text(value))
    converter.register_structure_hook(type(None), lambda value, _: _nothing(value))
    return converter


def _nothing(value: object) -> None:
    if value is not None:
        raise ValueError("must be null")


_NOT_RAISED_BY_CALLS = (BrokerError, BrokerLocked, SchemaTooNew)
"""Of opening a database only."""

_ERRORS: Mapping[str, type[Exception]] = {
    **{
        name: found
        for name in _errors.__all__
        if isinstance(found := getattr(_errors, name), type) and found not in _NOT_RAISED_BY_CALLS
    },
    "ValueError": ValueError,
    "TypeError": TypeError,
}
"""Errors that keep their type across the socket, by the name they have on it; each is made of its sentence."""


def _line(value: Mapping[str, object]) -> bytes:
    try:
        return _dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
        return _dumps(value, ensure_ascii=True).encode() + b"\n"


def _dumps(value: object, *, ensure_ascii: bool) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"), allow_nan=False)


def _packed(text: str) -> str | dict[str, str]:
    """A text whose escapes would take more room than base64, in base64: control characters take six bytes each."""
    if len(text) < _PACKED_FROM:
        return text
    try:
        raw = text.encode()
        written = len(_dumps(text, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return text
    return text if written <= len(raw) * 4 // 3 else {"base64": base64.b64encode(raw).decode()}


def _object_in(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as exc:
        raise BadLine(f"a line must be UTF-8, byte {exc.start} of this one is not: send JSON in UTF-8") from None
    except RecursionError:
        raise BadLine(f"a line can have at most {_MAX_DEPTH} lists and objects within one another") from None
    except ValueError:
        raise BadLine("a line must be one JSON object, this one is no JSON: send an object and a newline") from None
    if not isinstance(data, dict):
        raise BadLine(f"a line must be one JSON object, got {shown(data)}")
    if _is_deep(data):
        raise BadLine(f"a line can have at most {_MAX_DEPTH} lists and objects within one another")
    return data


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_deep(data: object) -> bool:
    level: list[object] = [data]
    for _ in range(_MAX_DEPTH):
        level = [inner for outer in level for inner in _items(outer) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _items(data: object) -> list[object]:
    if isinstance(data, dict):
        return list(data.values())
    return data if isinstance(data, list) else []


def _check_version(data: Mapping[str, object], request_id: int | None) -> None:
    version = data.get("version")
    if version != PROTOCOL_VERSION or isinstance(version, bool):
        raise BadLine(
            f"every line must have version {PROTOCOL_VERSION}, got {shown(version)}: have one hyperhive at both ends",
            request_id=request_id,
        )


def _wake(data: Mapping[str, object]) -> Wake:
    if data["cmd"] != "wake":
        raise BadLine(f'there is no command {shown(data["cmd"])}: a line with "cmd" must be {{"cmd":"wake",…}}')
    try:
        return Wake(label=_a_text(data.get("from")), body=_a_text(data.get("body")))
    except ValueError:
        raise BadLine('a wake must have a string "from", its label, and a string "body"') from None


def _params(method: Method, given: Mapping[str, object]) -> dict[str, Any]:
    unknown = sorted(set(given) - set(method.params))
    if unknown:
        known = ", ".join(method.params) or "none"
        raise ValueError(f"its params are {known}, got {shown(unknown[0])}")
    params = {}
    for name, rule in method.params.items():
        try:
            params[name] = rule(given.get(name))
        except ValueError as exc:
            raise ValueError(f"{name} {exc}") from None
    return params


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name[:_PACKED_FROM], METHODS, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(METHODS)}"


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= _PACKED_FROM else sentence[:_PACKED_FROM] + "…"
