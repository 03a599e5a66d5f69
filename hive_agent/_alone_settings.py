"""What ``hive-agent`` is told: the environment over one file (HOST-6).

Owns the keys, their variables and their rules, and collects everything that is wrong into one error. Reads nothing else
of the environment.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from hive_broker import is_agent_name

from ._config import AgentConfig, ClaudeSettings
from ._errors import SettingsInvalid

__all__ = ["AloneSettings", "read_settings"]

DEFAULT_BROKER_SOCKET = Path("/run/hive/mcp.sock")
"""Where a container finds the socket's folder of its agent."""

_MAX_FILE_BYTES = 1 << 20
"""What is larger is no configuration."""

_MAX_SECONDS = 7 * 24 * 3600
"""A week: a longer wait is a slip of the unit."""

_SHOWN_CHARACTERS = 60

Rule = Callable[[object], Any]


@attrs.frozen(kw_only=True)
class AloneSettings:
    """One agent that runs by itself.

    Attributes:
        agent: the agent.
        broker_socket: where its mailbox is served.
        port: of its tools' listener; 0 picks a free one once and keeps it (SURF-1).
    """

    agent: AgentConfig
    broker_socket: Path
    port: int


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _name(value: object) -> str:
    if isinstance(value, str) and is_agent_name(value):
        return value
    raise ValueError(f"must be an agent's name, [a-z0-9-] and 1 to 63 bytes, got {_shown(value)}")


def _path(value: object) -> Path:
    if isinstance(value, str) and value and "\0" not in value and Path(value).is_absolute():
        return Path(value)
    raise ValueError(f"must be an absolute path, got {_shown(value)}")


def _command(value: object) -> str:
    if isinstance(value, str) and value and "\0" not in value:
        return value
    raise ValueError(f"must be the path or name of an executable, got {_shown(value)}")


def _word(value: object) -> str:
    # It becomes one word of a command line: it must not look like an option (SEC-4).
    is_line = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value.strip() == value
    if isinstance(value, str) and is_line and not value.startswith("-"):
        return value
    raise ValueError(f'must be one line of 1 to 200 characters that does not begin with "-", got {_shown(value)}')


def _port(value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= 65535:
        return number
    raise ValueError(f"must be a whole number from 0 to 65535, got {_shown(value)}")


def _seconds(value: object) -> float:
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        number = math.nan
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= _MAX_SECONDS:
        return float(number)
    raise ValueError(f"must be a number of seconds above 0 and at most {_MAX_SECONDS}, got {_shown(value)}")


def _variables(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError("must be a table of names and strings")
    for name, text in value.items():
        if not name or "=" in name or "\0" in name or not isinstance(text, str) or "\0" in text:
            raise ValueError(f"must be a table of names and strings, {_shown(name)} is not (it may be a secret)")
    return dict(value)


_KEYS: Mapping[str, tuple[str | None, Rule]] = {
    "name": ("HIVE_NAME", _name),
    "state_dir": ("HIVE_STATE_DIR", _path),
    "broker_socket": ("HIVE_BROKER_SOCKET", _path),
    "port": ("HIVE_PORT", _port),
    "command": (None, _command),
    "model": ("HIVE_DEFAULT_MODEL", _word),
    "effort": (None, _word),
    "session_title": ("HIVE_SESSION_TITLE", _word),
    "grace_seconds": (None, _seconds),
    "turn_silence_seconds": (None, _seconds),
    "turn_total_seconds": (None, _seconds),
    "post_result_seconds": (None, _seconds),
    "rate_limit_sleep_seconds": ("HIVE_RATE_LIMIT_SLEEP_SECS", _seconds),
    "env": (None, _variables),
}
"""Every key of the file, and the variable that is over it, if there is one."""

_OF_CLAUDE = ("command", "model", "effort", "env")


def read_settings(path: Path | None, *, environ: Mapping[str, str]) -> AloneSettings:
    """Read what one agent is told.

    Args:
        path: the file (TOML), or None for none.
        environ: the environment; a variable that is there and not empty is over the file's key.

    Raises:
        SettingsInvalid: with a sentence for everything that is wrong.
    """
    problems: list[str] = []
    table = {} if path is None else _table(path)
    problems += [f"{path}: {key} is not known; {_nearest(key)}" for key in sorted(set(table) - set(_KEYS))]
    found: dict[str, Any] = {}
    for key, (variable, rule) in _KEYS.items():
        text = environ.get(variable) if variable is not None else None
        given, whose = (text, variable) if text else (table.get(key), f"{path}: {key}")
        try:
            if given is not None:
                found[key] = rule(given)
            elif key in ("name", "state_dir"):
                problems.append(f"{key} must be given: set {variable}, or {key} in the file of --config")
        except ValueError as exc:
            problems.append(f"{whose} {exc}")
    if problems:
        raise SettingsInvalid("\n".join(problems))
    return _settings(found)


def _settings(found: dict[str, Any]) -> AloneSettings:
    folder: Path = found.pop("state_dir")
    broker_socket, port = found.pop("broker_socket", DEFAULT_BROKER_SOCKET), found.pop("port", 0)
    claude = ClaudeSettings(**{key: found.pop(key) for key in _OF_CLAUDE if key in found})
    # The same folders as inside a hive: an agent can move out, and back in.
    agent = AgentConfig(
        state_dir=folder / "state",
        harness_dir=folder / "harness",
        config_dir=folder / "config",
        claude=claude,
        **found,
    )
    return AloneSettings(agent=agent, broker_socket=broker_socket, port=port)


def _table(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise SettingsInvalid(f"{path} must be a readable file: {exc.strerror}") from exc
    if len(raw) > _MAX_FILE_BYTES:
        raise SettingsInvalid(f"{path} must have at most {_MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as exc:
        raise SettingsInvalid(f"{path} must be UTF-8, byte {exc.start} is not") from None
    except (ValueError, RecursionError) as exc:
        raise SettingsInvalid(f"{path} must be TOML: {exc}") from None


def _nearest(key: str) -> str:
    close = difflib.get_close_matches(key, _KEYS, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(_KEYS)}"
