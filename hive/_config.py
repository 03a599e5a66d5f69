"""What a hive is told before it starts.

Owns the configuration's values, their defaults and what must hold of them, whether they were made in code by an
embedder (EMBED-1) or read from a file by ``hive._config_file``. Knows no file format, environment or event loop.
"""

# ruff: noqa: RUF009  # _obeys is attrs.field with a rule; nothing mutable is made in a class body

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

import hive_broker

from ._errors import ConfigInvalid
from ._paths import HivePaths
from ._structure import Rule, a_text, a_whole_number, kind_of, nearest, rule_of, seconds, shown, unset_or

__all__ = [
    "DEFAULT_MANAGER",
    "DEFAULT_SESSION_TITLE",
    "AgentSettings",
    "HiveConfig",
    "Runs",
    "RuntimeConfig",
    "RuntimeKind",
    "Sandbox",
]

DEFAULT_MANAGER = "ruth"
DEFAULT_SESSION_TITLE = "hive-session"

_LATER_RUNTIMES = frozenset({"acp"})
_LATER_SANDBOXES = frozenset({"bwrap", "podman"})


class RuntimeKind(Enum):
    """What runs an agent's turns."""

    CLAUDE = "claude"


class Runs(Enum):
    """Who runs an agent's turns.

    ``OUTSIDE`` is a ``hive-agent`` that somebody else starts, in a container for instance: the hive serves its mailbox
    and no more (HOST-6).
    """

    INLINE = "inline"
    OUTSIDE = "outside"


class Sandbox(Enum):
    """What an agent's processes are kept in (HOST-4).

    ``AUTO`` asks for the best this host and this version can do, which is none yet; ``HiveConfig.warnings`` says so.
    """

    NONE = "none"
    AUTO = "auto"


def _one_of(kind: type[Enum], *, later: frozenset[str]) -> Rule:
    words = " or ".join(f'"{member.value}"' for member in kind)

    def rule(value: object) -> Enum:
        if isinstance(value, kind):
            return value
        if isinstance(value, str) and value in later:
            raise ValueError(f'must be {words}; "{value}" is not available in this version')
        for member in kind:
            if member.value == value:
                return member
        raise ValueError(f"must be {words}, got {shown(value)}")

    return rule


def _is_flag_safe(text: str) -> bool:
    # It becomes one word of a command line: it must neither look like an option nor break a log line (SEC-4).
    return 0 < len(text) <= 200 and not text.startswith("-") and text.isprintable() and text.strip() == text


def _is_path_text(text: str) -> bool:
    return bool(text) and "\0" not in text


def _environment(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a table of names and strings, got {kind_of(value)}")
    for key, text in value.items():
        if not isinstance(key, str) or not key or "=" in key or "\0" in key:
            raise ValueError(f"must have names without '=' and NUL, got the name {shown(key)}")
        if not isinstance(text, str):
            raise ValueError(f"must be strings: put the value of {key} in quotes (it is not shown: it may be a secret)")
        if "\0" in text:
            raise ValueError(f"must have values without NUL, the value of {key} has one")
    return MappingProxyType(dict(value))


def _recipients(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of agents' names, got {shown(value)}")
    for name in value:
        if not isinstance(name, str) or not (name == hive_broker.OPERATOR or hive_broker.is_agent_name(name)):
            raise ValueError(f'must be agents\' names or "{hive_broker.OPERATOR}", got {shown(name)}')
    return tuple(dict.fromkeys(value))


def _instance(kind: type[object]) -> Rule:
    def rule(value: object) -> object:
        if not isinstance(value, kind):
            raise ValueError(f"must be a {kind.__name__}, got {shown(value)}")
        return value

    return rule


def _path(value: object) -> Path:
    if not isinstance(value, str | Path) or not _is_path_text(str(value)):
        raise ValueError(f"must be the path of a folder, got {shown(value)}")
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"must be the path of a folder; this host knows no such home: {shown(value)}") from None


def _obeys(rule: Rule, default: Any = attrs.NOTHING, **more: Any) -> Any:
    """A field whose value, given in code or in a file, is what ``rule`` makes of it."""

    def convert(value: object, _self: object, field: attrs.Attribute[Any]) -> Any:
        try:
            return rule(value)
        except ValueError as exc:
            raise ConfigInvalid((f"{field.name} {exc}",)) from None

    converter = attrs.Converter(convert, takes_self=True, takes_field=True)
    return attrs.field(default=default, converter=converter, metadata=rule_of(rule), **more)


flag_word = a_text('one line of 1 to 200 characters that does not begin with "-"', holds=_is_flag_safe)
"""The rule of what becomes one word of the runtime's command line (SEC-4)."""

_budget = a_whole_number(least=1, most=1_000_000)

_command = a_text("the path or name of an executable", holds=_is_path_text)


@attrs.frozen(kw_only=True)
class RuntimeConfig:
    """How an agent's turns are run; the ``[runtime]`` table of hive.toml.

    Attributes:
        kind: what runs them.
        command: the executable, a path or a name on PATH; None takes the one that is installed.
        model: what the runtime is asked for; None leaves it to the runtime.
        effort: likewise.
        grace_seconds: how long a running turn may go on once a stop was asked (STOP-2).
        turn_silence_seconds: a turn without output for so long is ended (TURN-6).
        turn_total_seconds: a turn is ended after so long whatever it does (TURN-6).
        post_result_seconds: how long the process may live on after its result (TURN-6).
        session_title: the constant title turns resume (TURN-3); from ``HIVE_SESSION_TITLE``, no key of hive.toml.
        rate_limit_sleep_seconds: the wait after a rate limit that names no reset time (TURN-5); from
            ``HIVE_RATE_LIMIT_SLEEP_SECS``, no key of hive.toml.
        env: variables of the child process; values are kept out of the repr (SEC-5).
    """

    kind: RuntimeKind = _obeys(_one_of(RuntimeKind, later=_LATER_RUNTIMES), RuntimeKind.CLAUDE)
    command: str | None = _obeys(unset_or(_command), None)
    model: str | None = _obeys(unset_or(flag_word), None)
    effort: str | None = _obeys(unset_or(flag_word), None)
    grace_seconds: float = _obeys(seconds, 30.0)
    turn_silence_seconds: float = _obeys(seconds, 600.0)
    turn_total_seconds: float = _obeys(seconds, 3600.0)
    post_result_seconds: float = _obeys(seconds, 20.0)
    session_title: str = _obeys(flag_word, DEFAULT_SESSION_TITLE)
    rate_limit_sleep_seconds: float = _obeys(seconds, 300.0)
    env: Mapping[str, str] = _obeys(_environment, attrs.Factory(dict), repr=lambda env: f"<{', '.join(env)}>")


@attrs.frozen(kw_only=True)
class AgentSettings:
    """All that one agent is told, with nothing left to inherit.

    Attributes:
        runtime: how its turns are run.
        allowed_recipients: whom it may write to beside the operator; empty leaves it free (MSG-2).
        sandbox: what its processes are kept in (HOST-4).
        runs: who runs its turns.
    """

    runtime: RuntimeConfig = _obeys(_instance(RuntimeConfig), attrs.Factory(RuntimeConfig))
    allowed_recipients: tuple[str, ...] = _obeys(_recipients, ())
    sandbox: Sandbox = _obeys(_one_of(Sandbox, later=_LATER_SANDBOXES), Sandbox.AUTO)
    runs: Runs = _obeys(_one_of(Runs, later=frozenset()), Runs.INLINE)


def _agents(value: object) -> Mapping[str, AgentSettings]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("must name at least one agent: a hive without agents has nothing to run")
    for name, settings in value.items():
        agent_name(name)
        if not isinstance(settings, AgentSettings):
            raise ValueError(f"must map names to AgentSettings, got {shown(settings)} for {name}")
    return MappingProxyType(dict(value))


agent_name = a_text(
    f"[a-z0-9-], 1 to 63 bytes, no hyphen at an end, and none of {', '.join(sorted(hive_broker.RESERVED_NAMES))}",
    holds=hive_broker.is_agent_name,
)
"""The rule of an agent's name (SEC-4)."""

folder: Callable[[object], Path] = _path
"""The rule of a folder's path; the value comes back absolute."""


def _usual_manager(config: HiveConfig) -> str:
    return DEFAULT_MANAGER if DEFAULT_MANAGER in config.agents else next(iter(config.agents))


@attrs.frozen(kw_only=True)
class HiveConfig:
    """A whole hive, ready to open: ``HiveConfig(state_dir=…, agents={"ruth": AgentSettings()})``.

    Attributes:
        name: of the hive, for people; it stands beside agents' names and obeys the same rule.
        state_dir: everything durable; made absolute.
        manager: the agent that is told of crashes and sees approvals; must be one of ``agents``. Unset it is ``ruth``,
            or the first agent where there is no ruth.
        runtime_dir: where the sockets are, for a ``state_dir`` whose path is too long for one; None puts them in it.
        mcp_port: of the agents' listener on 127.0.0.1; 0 picks a free one once and keeps it (SURF-1).
        pair_messages_per_hour: between two agents, both directions together, before the loop guard stops them (MSG-10).
        sender_messages_per_hour: of one agent to others, likewise.
        hive_messages_per_hour: of all agents together, likewise.
        agents: by name, in the order they are shown.

    Raises:
        ConfigInvalid: something must hold and does not.
        SocketPathTooLong: a socket has no room in the folder it would be in.
    """

    name: str = _obeys(agent_name, "hive")
    state_dir: Path = _obeys(folder)
    runtime_dir: Path | None = _obeys(unset_or(folder), None)
    mcp_port: int = _obeys(a_whole_number(least=0, most=65535), 0)
    pair_messages_per_hour: int = _obeys(_budget, hive_broker.LoopBudgets().pair_messages_per_hour)
    sender_messages_per_hour: int = _obeys(_budget, hive_broker.LoopBudgets().sender_messages_per_hour)
    hive_messages_per_hour: int = _obeys(_budget, hive_broker.LoopBudgets().hive_messages_per_hour)
    agents: Mapping[str, AgentSettings] = _obeys(_agents)
    manager: str = _obeys(agent_name, attrs.Factory(_usual_manager, takes_self=True))

    def __attrs_post_init__(self) -> None:
        problems = tuple(self._disagreements())
        if problems:
            raise ConfigInvalid(problems)
        for name in self.agents:
            self.paths.broker_sock(name)

    def _disagreements(self) -> list[str]:
        problems = []
        if self.manager not in self.agents:
            problems.append(
                f"manager must be one of the agents ({', '.join(self.agents)}), got {self.manager!r}; "
                "name one of them, or add that agent"
            )
        for name, settings in self.agents.items():
            problems += [
                f"allowed_recipients of {name} must be agents of this hive, got {peer!r}; {nearest(peer, self.agents)}"
                for peer in settings.allowed_recipients
                if peer not in self.agents and peer != hive_broker.OPERATOR
            ]
        return problems

    @property
    def paths(self) -> HivePaths:
        """The place of every file of this hive."""
        return HivePaths(state_dir=self.state_dir, runtime_dir=self.runtime_dir)

    @property
    def budgets(self) -> hive_broker.LoopBudgets:
        """How much agents may write in an hour."""
        return hive_broker.LoopBudgets(
            pair_messages_per_hour=self.pair_messages_per_hour,
            sender_messages_per_hour=self.sender_messages_per_hour,
            hive_messages_per_hour=self.hive_messages_per_hour,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Standing warnings: what was asked for and is not so, one sentence each, for the log and the operator."""
        names = [
            name
            for name, settings in self.agents.items()
            if settings.sandbox is Sandbox.AUTO and settings.runs is Runs.INLINE
        ]
        if not names:
            return ()
        run = "runs" if len(names) == 1 else "run"
        warning = (
            f"this version has no sandbox: {', '.join(names)} {run} with your own rights on this host; give them only "
            'work you would run yourself (sandbox = "none" says that you know)'
        )
        return (warning,)
