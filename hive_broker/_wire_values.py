"""Values as JSON has them, and back: what the lines of a mailbox's socket carry.

Owns how texts, values and enums look there. Pure: knows no method and no line.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import math
from enum import Enum
from typing import Any, final

import attrs
import cattrs

from ._rules import shown
from ._types import InboxSummary

__all__ = ["BadLine", "a_text", "dumps", "from_json", "to_json"]

_PACKED_FROM = 1024
"""Characters from which it is worth a look whether a text is shorter in base64."""

_SENDERS_SHOWN = 1000
"""Of a summary: anybody can make up labels, and all of them must fit into a line."""


@final
class BadLine(Exception):
    """A line that nothing can be done about; the sentence is for whoever wrote it.

    Attributes:
        request_id: of the request it was meant to be, where that can be told.
    """

    def __init__(self, sentence: str, *, request_id: int | None = None) -> None:
        super().__init__(sentence)
        self.request_id = request_id


def to_json(value: object) -> Any:
    """``value`` as JSON has it: attrs values as objects, texts packed where that is shorter."""
    if isinstance(value, InboxSummary):
        value = attrs.evolve(value, senders=value.senders[:_SENDERS_SHOWN])
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _packed(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # for whoever refuses it in words; JSON has no such numbers
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, frozenset | set):
        return [to_json(item) for item in sorted(value)]
    cls: type[Any] = type(value)
    if attrs.has(cls):
        return {field.name: to_json(getattr(value, field.name)) for field in attrs.fields(cls)}
    return value


def from_json(data: object, kind: Any) -> Any:
    """What ``to_json`` made of a ``kind``; fields this version does not know are passed over.

    Raises:
        BadLine: it does not have that shape.
    """
    try:
        return _converter().structure(data, kind)
    except Exception as exc:  # whatever the stranger's value makes the hooks of cattrs raise
        raise BadLine(f"the answer must have the shape of {getattr(kind, '__name__', kind)}, and it has not") from exc


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_structure_hook(str, lambda value, _: a_text(value))
    converter.register_structure_hook(type(None), lambda value, _: _nothing(value))
    return converter


def _nothing(value: object) -> None:
    if value is not None:
        raise ValueError("must be null")


def a_text(value: object) -> str:
    """A string, or what ``to_json`` made of one.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True).decode()
        except (binascii.Error, ValueError):
            raise ValueError("must be UTF-8 in base64 where it is not a string") from None
    raise ValueError(f"must be a string, got {shown(value)}")


def _packed(text: str) -> str | dict[str, str]:
    """A text whose escapes would take more room than base64, in base64: control characters take six bytes each."""
    if len(text) < _PACKED_FROM:
        return text
    try:
        raw = text.encode()
        written = len(dumps(text, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return text
    return text if written <= len(raw) * 4 // 3 else {"base64": base64.b64encode(raw).decode()}


def dumps(value: object, *, ensure_ascii: bool) -> str:
    """JSON without spaces, and nothing that is no JSON."""
    return json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"), allow_nan=False)
