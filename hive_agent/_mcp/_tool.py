"""A tool as a value: what the model reads, what it may pass, what runs.

Owns the JSON schema and the checking of arguments, both from one attrs class. Knows no MCP and no tool.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar, final

import attrs
import cattrs

from hive_agent._errors import ToolRefused
from hive_agent._ports import ToolServices

from ._popped import PoppedRows

__all__ = ["Arguments", "Tool", "ToolAnswer", "ToolCall", "argument"]

MAX_INTEGER = 2**63 - 1
"""The largest number a row id can be."""

_SHOWN_VALUE = 40
"""Characters of a wrong value that are repeated in the sentence about it."""

ArgsT = TypeVar("ArgsT")


@attrs.frozen(kw_only=True)
class ToolCall:
    """Who calls, from where.

    Attributes:
        services: the calling agent's.
        turn_id: the turn of the calling runtime; None for a caller outside any turn.
        popped: rows of this agent that are still to be shown.
        is_wanted: False once the caller has gone: an answer given now reaches nobody.
    """

    services: ToolServices
    turn_id: int | None
    popped: PoppedRows
    is_wanted: Callable[[], bool]


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """What a tool says: ``text`` for a model, and the same facts as JSON for a program (SURF-3)."""

    text: str
    data: Mapping[str, object]


def argument(description: str, *, example: object, minimum: int | None = None, default: Any = attrs.NOTHING) -> Any:
    """One argument of a tool, as an attrs field.

    Args:
        description: for a model that has never seen a hive.
        example: shown in the schema and in the sentence about a wrong value.
        minimum: smallest whole number allowed.
        default: makes it optional; a null means the same as leaving it out.
    """
    metadata = {"description": description, "example": example, "minimum": minimum}
    return attrs.field(default=default, metadata=metadata)


@attrs.frozen
class Arguments(Generic[ArgsT]):
    """Checked arguments, and the names that were passed but mean nothing to this tool."""

    value: ArgsT
    ignored: tuple[str, ...]


@final
@attrs.frozen(kw_only=True, slots=False)
class Tool(Generic[ArgsT]):
    """One tool (SURF-3).

    Attributes:
        name: as in ``mcp__hyperhive__<name>``.
        title: for people.
        description: for a model that has never seen a hive.
        input_type: attrs class whose fields come from `argument`.
        handler: runs it; raises `ToolRefused` with a sentence.
        read_only: it changes nothing anywhere.
        idempotent: the same call again changes nothing more.
    """

    name: str
    title: str
    description: str
    input_type: type[ArgsT]
    handler: Callable[[ToolCall, ArgsT], Awaitable[ToolAnswer]]
    read_only: bool = False
    idempotent: bool = False

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of ``input_type``."""
        fields = _fields(self.input_type)
        return {
            "type": "object",
            "properties": {field.name: _property_schema(field, type_) for field, type_, _ in fields},
            "required": [field.name for field, _, _ in fields if field.default is attrs.NOTHING],
        }

    def check(self, arguments: Mapping[str, Any]) -> Arguments[ArgsT]:
        """Arguments as a model writes them, turned into ``input_type``.

        Whole numbers may come as text or with a zero fraction, optional ones as null; unknown names are ignored.

        Raises:
            ToolRefused: the first wrong one: its name, its rule and an example.
        """
        values: dict[str, Any] = {}
        fields = _fields(self.input_type)
        for field, type_, optional in fields:
            raw = arguments.get(field.name)
            if raw is None and field.default is not attrs.NOTHING:
                continue
            if raw is None and not optional:
                raise ToolRefused(f"`{field.name}` is missing: it must be {_rule(field, type_)}; {_example(field)}")
            values[field.name] = _value(field, type_, raw)
        known = {field.name for field, _, _ in fields}
        return Arguments(self.input_type(**values), tuple(sorted(name for name in arguments if name not in known)))


def _fields(input_type: type[Any]) -> list[tuple[attrs.Attribute[Any], type[Any], bool]]:
    """Each field with its type, None taken out of it, and whether None was in it."""
    found = []
    hints = typing.get_type_hints(input_type)
    for field in attrs.fields(input_type):
        hint, optional = hints[field.name], False
        if isinstance(hint, types.UnionType):
            (hint,) = [arg for arg in hint.__args__ if arg is not types.NoneType]
            optional = True
        found.append((field, hint, optional))
    return found


_JSON_TYPES = {str: "string", int: "integer"}


def _property_schema(field: attrs.Attribute[Any], type_: type[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _JSON_TYPES[type_], "description": field.metadata["description"]}
    if field.metadata["minimum"] is not None:
        schema["minimum"] = field.metadata["minimum"]
    schema["examples"] = [field.metadata["example"]]
    return schema


def _value(field: attrs.Attribute[Any], type_: type[Any], raw: object) -> Any:
    try:
        value = _converter.structure(raw, type_)
    except ValueError:
        raise _wrong(field, type_, raw) from None
    minimum = field.metadata["minimum"]
    if isinstance(value, int) and not (minimum if minimum is not None else -MAX_INTEGER) <= value <= MAX_INTEGER:
        raise _wrong(field, type_, raw)
    return value


def _wrong(field: attrs.Attribute[Any], type_: type[Any], raw: object) -> ToolRefused:
    return ToolRefused(
        f"`{field.name}` must be {_rule(field, type_)}, but {_describe(raw)} was given; {_example(field)}"
    )


def _rule(field: attrs.Attribute[Any], type_: type[Any]) -> str:
    if type_ is str:
        return "text (a JSON string of valid Unicode)"
    minimum = field.metadata["minimum"]
    return "a whole number" if minimum is None else f"a whole number, {minimum} or more"


def _example(field: attrs.Attribute[Any]) -> str:
    return f"for example {field.metadata['example']!r}"


def _describe(raw: object) -> str:
    """A wrong value without its content where that could be long or nested."""
    if isinstance(raw, Mapping):
        return "an object"
    if isinstance(raw, list):
        return "a list"
    if isinstance(raw, int) and raw.bit_length() > 128:
        return "a number that is far too large"
    shown = ascii(raw)
    return shown if len(shown) <= _SHOWN_VALUE else shown[:_SHOWN_VALUE] + "…"


def _structure_text(raw: object, _: object) -> str:
    if not isinstance(raw, str):
        raise ValueError("not a string")
    raw.encode()  # half a surrogate pair is a UnicodeEncodeError, which is a ValueError
    return raw


def _structure_integer(raw: object, _: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ValueError("not a number")
    if isinstance(raw, float):
        if not raw.is_integer():
            raise ValueError("not whole")
        return int(raw)
    if isinstance(raw, str) and not raw.strip().isascii():
        raise ValueError("not a number")
    return int(raw)


_converter = cattrs.Converter()
_converter.register_structure_hook(str, _structure_text)
_converter.register_structure_hook(int, _structure_integer)
