"""A mailbox in lines of JSON: what a client asks over the socket and what it is answered (WAKE-2).

Owns the shape of every line and the limits a line obeys (REL-4). Every line of the protocol carries ``version``; a
request has an ``id`` of its client's choice and is answered exactly once, not necessarily in order. Pure: knows no
socket, no time and no database. ``_methods`` has what can be asked for; ``_server`` and ``_client`` are the two ends.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import attrs

from . import _errors
from ._errors import BrokerError, BrokerLocked, BrokerUnavailable, SchemaTooNew
from ._methods import ATTACH, ATTACHING, METHODS, Method
from ._rules import shown
from ._types import Sent
from ._wire_values import BadLine, a_text, dumps, from_json, to_json

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

PROTOCOL_VERSION = 1
"""Grows when an older end could misread a line; fields may be added without that."""

MAX_LINE_BYTES = 1 << 20
"""One line, either way, without its newline (REL-4)."""

_MAX_DEPTH = 32
"""Lists and objects within one another: a turn's record has four."""

_SENTENCE_CHARACTERS = 1024
"""Of an error's sentence, at most; our own are shorter."""

_MAX_ID = 2**63 - 1
"""SQLite's largest integer."""


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
        text = json.dumps([self.method, {name: to_json(value) for name, value in self.params.items()}], sort_keys=True)
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
    packed = {name: to_json(value) for name, value in params.items()}
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
    method = ATTACHING if name == ATTACH else METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        raise BadLine(f"there is no method {shown(name)}; {_nearest(str(name))}", request_id=request_id)
    try:
        given = data.get("params", {})
        if not isinstance(given, dict):
            raise ValueError(f"params must be an object, got {shown(given)}")
        params = _params(method, given)
        done = data.get("done", 0)
        if not isinstance(done, int):
            raise ValueError(f"done must be a whole number, got {shown(done)}")
    except ValueError as exc:
        raise BadLine(f"the request {name} cannot be carried out: {exc}", request_id=request_id) from None
    return Request(id=request_id, method=str(name), params=params, done=done)


def answer_line(request_id: int, method: str, value: object) -> bytes:
    """What a method returned; where that has no room in a line, of a list its beginning, else a refusal."""
    line = _line({"version": PROTOCOL_VERSION, "id": request_id, "ok": True, "result": to_json(value)})
    if len(line) > MAX_LINE_BYTES and isinstance(value, tuple) and len(value) > 1:
        return answer_line(request_id, method, value[: len(value) // 2])
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
        return dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
        return dumps(value, ensure_ascii=True).encode() + b"\n"


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
        return Wake(label=a_text(data.get("from")), body=a_text(data.get("body")))
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
    close = difflib.get_close_matches(name[:_SENTENCE_CHARACTERS], METHODS, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(METHODS)}"


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= _SENTENCE_CHARACTERS else sentence[:_SENTENCE_CHARACTERS] + "…"
