"""Strict structuring of strangers' mappings into frozen attrs values.

Owns the rules for single fields and the collecting of everything that is wrong. A rule is a function that gives a
field's value back in its own type or raises ``ValueError`` with "must …, got …"; it is kept at the field, so that a
value made in code and one read from a file or a socket obey the same one. Knows no file format and no socket.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

__all__ = [
    "Misfit",
    "Rule",
    "a_boolean",
    "a_text",
    "a_whole_number",
    "kind_of",
    "nearest",
    "optional",
    "required",
    "rule_of",
    "seconds",
    "shown",
    "structure",
    "unset_or",
]

T = TypeVar("T", bound=attrs.AttrsInstance)
Rule = Callable[[object], Any]

_RULE = "hive.rule"
_SHOWN_CHARACTERS = 60  # enough to recognise what was written, too little to flood a terminal
_MAX_SECONDS = 7 * 24 * 3600  # a week: a longer wait is a slip of the unit
_CONVERTER = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
_KINDS: Mapping[type[object], str] = {int: "a number", list: "a list", dict: "a table", type(None): "null"}


class Misfit(Exception):
    """A mapping does not fit its class.

    Attributes:
        problems: pairs of key and sentence ("must …", "is not known …"), in the order of the class's fields.
    """

    def __init__(self, problems: tuple[tuple[str, str], ...]) -> None:
        super().__init__("; ".join(f"{key} {problem}" for key, problem in problems))
        self.problems = problems


def rule_of(rule: Rule) -> dict[str, Rule]:
    """Metadata that binds ``rule`` to an attrs field."""
    return {_RULE: rule}


def required(rule: Rule) -> Any:
    """An attrs field that must be given and obeys ``rule``."""
    return attrs.field(metadata=rule_of(rule))


def optional(rule: Rule, default: Any) -> Any:
    """An attrs field that may be absent and obeys ``rule`` when it is there; null is absent if that is None."""
    return attrs.field(default=default, metadata=rule_of(unset_or(rule) if default is None else rule))


def unset_or(rule: Rule) -> Rule:
    """The rule of what may be None beside what ``rule`` allows."""
    return lambda value: None if value is None else rule(value)


def structure(data: Mapping[str, object], cls: type[T]) -> T:
    """Make a ``cls`` of ``data``; every field of it carries a rule.

    Raises:
        Misfit: with every unknown, missing and wrong key of ``data``.
    """
    try:
        return cast("T", _maker(cast("Any", cls))(data, cls))
    except ClassValidationError as exc:
        raise Misfit(tuple(_problems(exc, list(attrs.fields_dict(cls))))) from None


@functools.cache
def _maker(cls: type[Any]) -> Callable[[Mapping[str, object], type[Any]], Any]:
    # cattrs compiles a function for the class; once is enough.
    hooks: dict[str, Any] = {
        field.name: override(struct_hook=_hook(field.metadata[_RULE])) for field in attrs.fields(cls)
    }
    return make_dict_structure_fn(cls, _CONVERTER, **hooks)


def _hook(rule: Rule) -> Callable[[object, object], Any]:
    return lambda value, _type: rule(value)


def _problems(exc: ClassValidationError, known: list[str]) -> Iterable[tuple[str, str]]:
    noted, others = exc.group_exceptions()
    for problem, note in noted:
        yield note.name, "is missing" if isinstance(problem, KeyError) else str(problem)
    for other in others:
        if not isinstance(other, ForbiddenExtraKeysError):
            raise other
        for key in sorted(other.extra_fields):
            yield key, f"is not known; {nearest(key, known)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence's end that offers the likeliest of ``known``, or all of them."""
    words = sorted(known)
    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(words)}" if words else "none is known here"


def shown(value: object) -> str:
    """``value`` for an error sentence: short, on one line; containers by their kind only."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN_CHARACTERS else value[: _SHOWN_CHARACTERS - 1] + "…")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 64):
        return repr(value)
    return kind_of(value)


def kind_of(value: object) -> str:
    """What ``value`` is, without a word of what is in it (SEC-5)."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def a_text(what: str, *, holds: Callable[[str], bool] = bool) -> Rule:
    """The rule of a string for which ``holds``; ``what`` finishes "must be"."""

    def rule(value: object) -> str:
        if not isinstance(value, str) or not _is_unicode(value) or not holds(value):
            raise ValueError(f"must be {what}, got {shown(value)}")
        return value

    return rule


def _is_unicode(text: str) -> bool:
    # JSON can spell half of a surrogate pair, which no database, terminal or pipe can take.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def a_whole_number(*, least: int, most: int) -> Rule:
    """The rule of an integer between ``least`` and ``most``, both included."""

    def rule(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, got {shown(value)}")
        return value

    return rule


def a_boolean(value: object) -> bool:
    """The rule of true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {shown(value)}")
    return value


def seconds(value: object) -> float:
    """The rule of a duration: finite, above 0, a week at most."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MAX_SECONDS:
        return float(value)
    raise ValueError(f"must be a number of seconds above 0 and at most {_MAX_SECONDS}, got {shown(value)}")
