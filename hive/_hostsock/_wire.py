"""The answers of the admin socket, as lines of bytes and back (HOST-1).

Owns how values look on the wire: a version on every line, absent optional fields left out, instants (fields whose
names end in ``_at``) as RFC 3339 in UTC. Pure: knows no socket.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import attrs
import cattrs
from cattrs.errors import BaseValidationError
from cattrs.gen import make_dict_structure_fn, override

from hive._errors import HiveUnintelligible
from hive_broker import Acked, BackedUp, Message, Sent

from ._control import AgentDetail, AgentStatusRow, DeadLetters, HiveStatus, Inbox, Thread
from ._requests import PROTOCOL_VERSION

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_REQUEST_BYTES",
    "answer_line",
    "from_json",
    "messages_that_fit",
    "read_answer",
    "refusal_line",
    "request_line",
    "to_json",
]

MAX_REQUEST_BYTES = 1 << 20
"""One line of a peer's (REL-4): four times the longest message."""

MAX_ANSWER_BYTES = 8 << 20
"""One line of a hive's: what ``messages_that_fit`` lets through, and the rest with room to spare."""

_MESSAGES_BYTES = 4 << 20  # of one answer; the longest message, with every character escaped, has 1.5 MiB

T = TypeVar("T")


def answer_line(payload: Mapping[str, object]) -> bytes:
    """A success with what was asked for."""
    return _line({"version": PROTOCOL_VERSION, "ok": True, **payload})


def request_line(request: Mapping[str, object]) -> bytes:
    """A request, with the version it is of."""
    return _line({"version": PROTOCOL_VERSION, **request})


def refusal_line(sentence: str) -> bytes:
    """A refusal in words."""
    return _line({"version": PROTOCOL_VERSION, "ok": False, "error": sentence})


def _line(value: Mapping[str, object]) -> bytes:
    # Escaped to ASCII: a newline, a lone surrogate or a terminal's control bytes in a body stay inside their string.
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def to_json(value: object) -> Any:
    """``value`` as JSON would have it."""
    if isinstance(value, AgentStatusRow) and (not value.running or value.status_text is None):
        value = attrs.evolve(value, status_text=None, status_set_at=None)
    cls: type[Any] = type(value)
    if attrs.has(cls):
        pairs = ((field.name, getattr(value, field.name)) for field in attrs.fields(cls))
        return {name: _field(name, item) for name, item in pairs if item is not None}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def _field(name: str, value: object) -> Any:
    return _instant(value) if name.endswith("_at") and isinstance(value, int | float) else to_json(value)


def _instant(unix_seconds: float) -> str:
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def messages_that_fit(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The newest of ``messages`` that fit into one answer, in their order."""
    room = _MESSAGES_BYTES
    for index in range(len(messages) - 1, -1, -1):
        room -= len(_line(to_json(messages[index])))
        if room < 0:
            return messages[index + 1 :]
    return messages


def read_answer(line: bytes) -> Mapping[str, Any]:
    """The object on a hive's line.

    Raises:
        HiveUnintelligible: it is not an answer of this version of the protocol.
    """
    try:
        answer = json.loads(line, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as exc:
        raise HiveUnintelligible("what answers on the socket does not speak JSON lines: it is no hive") from exc
    if not isinstance(answer, dict) or "ok" not in answer:
        raise HiveUnintelligible("what answers on the socket does not answer as a hive does")
    version = answer.get("version")
    if version != PROTOCOL_VERSION:
        raise HiveUnintelligible(
            f"the hive speaks version {version!r:.20} of the protocol, this program version {PROTOCOL_VERSION}; "
            "use the hivectl that was installed with the hive"
        )
    return answer


def _whole(digits: str) -> int:
    number = int(digits)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("a whole number must fit into 64 bits")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number must be finite")
    return number


def from_json(value: object, cls: type[T]) -> T:
    """A ``cls`` of what ``to_json`` made of one; fields of a later version are passed over.

    Raises:
        HiveUnintelligible: it does not have the shape of one.
    """
    try:
        return _converter().structure(value, cls)
    except (BaseValidationError, TypeError, ValueError, AttributeError) as exc:
        raise HiveUnintelligible(f"the hive's answer does not have the shape of {cls.__name__}") from exc


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    for cls in (Message, Sent, Acked, BackedUp, AgentStatusRow, AgentDetail, Inbox, Thread, DeadLetters, HiveStatus):
        converter.register_structure_hook(cls, _lenient(cls, converter))
    return converter


def _lenient(cls: type[Any], converter: cattrs.Converter) -> Callable[[Any, type[Any]], Any]:
    fields = attrs.fields(cls)
    hooks: dict[str, Any] = {
        field.name: override(struct_hook=_read_instant) for field in fields if field.name.endswith("_at")
    }
    structure = make_dict_structure_fn(cls, converter, **hooks)
    absent = {field.name: None for field in fields if field.default is attrs.NOTHING and "None" in str(field.type)}
    return lambda value, kind: structure({**absent, **cast("dict[str, Any]", value)}, kind)


def _read_instant(value: object, _type: object) -> float | None:
    return None if value is None else datetime.fromisoformat(str(value)).timestamp()
