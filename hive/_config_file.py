"""hive.toml and the environment, read into a ``HiveConfig``.

Owns the file's tables and keys, the inheritance between them, and the collecting of everything that is wrong into one
error. A key exists here only if it has an effect; an unknown one is refused with the nearest name. The rules of the
values are those of ``hive._config``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from ._config import DEFAULT_MANAGER, AgentSettings, HiveConfig, RuntimeConfig, agent_name, flag_word
from ._errors import ConfigInvalid, SocketPathTooLong
from ._structure import Misfit, Rule, nearest, seconds, shown, structure

__all__ = ["load_config", "parse_config"]

_MAX_FILE_BYTES = 1 << 20  # a thousand agents fit; what is larger is no configuration
_TABLES = ("hive", "runtime", "defaults", "agents")
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})
_TOML_PLACE = re.compile(
    r"(?P<what>.*?) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)\Z", re.DOTALL
)


def _table_class(name: str, *sources: tuple[type[Any], tuple[str, ...]]) -> type[Any]:
    """A class for one table, in which every key may be absent and obeys the rule of the field it is for."""
    keys = {
        key: attrs.field(default=None, metadata=attrs.fields_dict(cls)[key].metadata)
        for cls, names in sources
        for key in names
    }
    return attrs.make_class(name, keys, frozen=True, kw_only=True)


_OF_RUNTIME = (
    RuntimeConfig,
    (
        "kind",
        "command",
        "model",
        "effort",
        "grace_seconds",
        "turn_silence_seconds",
        "turn_total_seconds",
        "post_result_seconds",
        "env",
    ),
)
_OF_AGENT = (AgentSettings, ("allowed_recipients", "sandbox", "runs"))
_OF_HIVE = (
    HiveConfig,
    (
        "name",
        "state_dir",
        "manager",
        "runtime_dir",
        "mcp_port",
        "pair_messages_per_hour",
        "sender_messages_per_hour",
        "hive_messages_per_hour",
    ),
)
_HiveTable = _table_class("_HiveTable", _OF_HIVE)
_RuntimeTable = _table_class("_RuntimeTable", _OF_RUNTIME)
_DefaultsTable = _table_class("_DefaultsTable", _OF_AGENT)
_AgentTable = _table_class("_AgentTable", _OF_RUNTIME, _OF_AGENT)


def _seconds_in_text(text: object) -> float:
    try:
        return seconds(float(str(text)))
    except ValueError:
        return seconds(text)


_OVERRIDES: Mapping[str, tuple[str, Rule]] = {
    "HIVE_DEFAULT_MODEL": ("model", flag_word),
    "HIVE_SESSION_TITLE": ("session_title", flag_word),
    "HIVE_RATE_LIMIT_SLEEP_SECS": ("rate_limit_sleep_seconds", _seconds_in_text),
}


def load_config(path: Path, *, environ: Mapping[str, str] = _NO_ENVIRONMENT) -> HiveConfig:
    """Read the configuration at ``path``.

    Args:
        path: a hive.toml; relative paths in it are relative to its folder.
        environ: where the ``HIVE_*`` overrides are looked up; nothing else of it is read.

    Raises:
        ConfigInvalid: the file is absent, unreadable or damaged, or something in it must hold and does not.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigInvalid((f"there is no {path}; make one with `hive init`, or name yours by --config",)) from None
    except OSError as exc:
        raise ConfigInvalid((f"{path} must be a readable file: {exc.strerror}",)) from exc
    if len(raw) > _MAX_FILE_BYTES:
        raise ConfigInvalid((f"must have at most {_MAX_FILE_BYTES} bytes",), source=str(path))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise ConfigInvalid((f"line {line} must be UTF-8, byte {exc.start} is not",), source=str(path)) from None
    return parse_config(text, base=path.absolute().parent, environ=environ, source=str(path))


def parse_config(
    text: str, *, base: Path, environ: Mapping[str, str] = _NO_ENVIRONMENT, source: str = "hive.toml"
) -> HiveConfig:
    """Make a configuration of hive.toml's text.

    Args:
        text: TOML.
        base: the folder relative paths are relative to.
        environ: where the ``HIVE_*`` overrides are looked up.
        source: what error sentences call the text.

    Raises:
        ConfigInvalid: with one sentence for everything that is wrong.
    """
    document = _toml(text, source)
    reader = _Reader(base.absolute())
    tables = {name: reader.sub_table(document, name) for name in _TABLES}
    reader.problems += [
        f"[{key}] is not known; {nearest(key, _TABLES)}" for key in sorted(document) if key not in _TABLES
    ]
    hive = reader.keys("hive", tables["hive"], _HiveTable)
    runtime = {**reader.keys("runtime", tables["runtime"], _RuntimeTable), **reader.environment(environ)}
    defaults = reader.keys("defaults", tables["defaults"], _DefaultsTable)
    agents = {name: reader.agent(name, tables["agents"], runtime, defaults) for name in tables["agents"]}
    if not tables["agents"]:
        reader.problems.append(f"[agents.<name>] must be there at least once; add [agents.{DEFAULT_MANAGER}]")
    if reader.problems:
        raise ConfigInvalid(tuple(reader.problems), source=source)
    hive.setdefault("state_dir", reader.base / "hive-state")
    try:
        return HiveConfig(agents=agents, **hive)
    except ConfigInvalid as exc:
        raise ConfigInvalid(exc.problems, source=source) from None
    except SocketPathTooLong as exc:
        raise ConfigInvalid((f"[hive] {exc}",), source=source) from None


def _toml(text: str, source: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigInvalid(("values must not be nested this deep",), source=source) from None
    except ValueError as exc:
        place = _TOML_PLACE.match(str(exc))
        what = place["what"] if place else str(exc)
        line, column = (place["line"], place["column"]) if place and place["line"] else (None, None)
        where = f"line {line}, column {column}" if line else "at its end" if place else "somewhere"
        raise ConfigInvalid((f"the file must be TOML; {where}: {what[:1].lower()}{what[1:]}",), source=source) from None


class _Reader:
    """Reads tables and remembers what was wrong with them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.problems: list[str] = []

    def sub_table(self, parent: Mapping[str, object], key: str, *, within: str = "") -> Mapping[str, object]:
        """The table at ``key``; empty when it is absent or something else stands there."""
        value = parent.get(key, {})
        if isinstance(value, dict):
            return value
        self.problems.append(f"[{within}{key}] must be a table, got {shown(value)}")
        return {}

    def keys(self, title: str, table: Mapping[str, object], cls: type[Any]) -> dict[str, Any]:
        """What ``table`` sets, in its own types; empty when anything in it is wrong."""
        try:
            read = structure(table, cls)
        except Misfit as exc:
            self.problems += [f"[{title}] {key} {problem}" for key, problem in exc.problems]
            return {}
        return {key: self._placed(key, getattr(read, key), table[key]) for key in table}

    def _placed(self, key: str, value: Any, written: object) -> Any:
        if key in ("state_dir", "runtime_dir"):
            return self.base / Path(str(written)).expanduser()
        if key == "command" and ("/" in value or value.startswith("~")):
            return str(self.base / Path(value).expanduser())
        return value

    def agent(
        self, name: str, agents: Mapping[str, object], runtime: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> AgentSettings:
        """One agent's settings: its own keys over ``[runtime]`` and ``[defaults]``; variables are merged one by one."""
        try:
            agent_name(name)
        except ValueError as exc:
            self.problems.append(f"[agents.{name}] {exc}")
        own = self.keys(f"agents.{name}", self.sub_table(agents, name, within="agents."), _AgentTable)
        of_agent = {**defaults, **{key: own.pop(key) for key in _OF_AGENT[1] if key in own}}
        env = {**runtime.get("env", {}), **own.get("env", {})}
        return AgentSettings(runtime=RuntimeConfig(**{**runtime, **own, "env": env}), **of_agent)

    def environment(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """What the environment sets in place of ``[runtime]``; an empty variable counts as absent."""
        found: dict[str, Any] = {}
        for variable, (key, rule) in _OVERRIDES.items():
            text = environ.get(variable)
            if not text:
                continue
            try:
                found[key] = rule(text)
            except ValueError as exc:
                self.problems.append(f"{variable} of the environment {exc}")
        return found
