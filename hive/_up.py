"""``hive up``: a hive in the foreground, until a signal or ``hivectl stop`` ends it.

Owns signals, the terminal and the process's logging: everything that ``open_hive`` leaves alone (EMBED-1).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import attrs
import trio
from rich.console import Console
from rich.text import Text

from hive_broker import get_logger

from ._config import HiveConfig
from ._hive import AgentHappened, Hive, HiveEvent, open_hive
from ._one_error import one_error
from ._story import Line, Story
from .cli._log_lines import set_up_logging
from .cli._outlet import Outlet
from .cli._program import program, shown_path

__all__ = ["Screen", "hivectl_for", "run_up", "set_up_logging", "up"]

_log = get_logger("hive")

_CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)

_MARGIN = " " * 20
"""Below the words of a line: time and name take so much."""

_WIDEST = 120
"""Longer lines are hard to read, however wide the terminal is."""

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Screen:
    """Where a running hive is shown: standard output, which may be slow, full or gone without the hive's noticing.

    Args:
        json_lines: print each happening as one JSON object instead of words.
    """

    def __init__(self, *, json_lines: bool = False) -> None:
        self._json_lines = json_lines
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._outlet = Outlet(sys.stdout, gap=self._gap, troubled=_tell_of_trouble)
        self._colours: dict[str, str] = {"operator": "bold white", "system": "red"}

    def say(self, text: str, *, style: str = "") -> None:
        """A sentence of the hive itself; not part of the JSON lines."""
        if not self._json_lines:
            self._print(Text(text, style=style))

    def show(self, event: HiveEvent, lines: tuple[Line, ...]) -> None:
        """One happening, and its story in words."""
        if self._json_lines:
            self._outlet.put(self._json_line(_as_json(event)))
            return
        for line in lines:
            first, *others = self._wrapped(line.text)
            style = "dim" if line.quiet else ""
            who = (f"{line.who:<10}", self._colour(line.who))
            self._print(Text.assemble((line.clock, "dim"), "  ", who, (first, style)))
            for more in others:
                self._print(Text(f"{_MARGIN}{more}", style=style))
            for more in line.rest:
                for part in self._wrapped(more):
                    self._print(Text(f"{_MARGIN}{part}", style="bold"))

    def _print(self, text: Text) -> None:
        with self._console.capture() as laid_out:
            self._console.print(text)
        self._outlet.put(laid_out.get())

    def _json_line(self, row: Mapping[str, object]) -> str:
        # What UTF-8 has no bytes for (half of a surrogate pair) is escaped as JSON has it; other encodings' is not.
        return json.dumps(row, ensure_ascii=self._outlet.encoding.lower() not in {"utf-8", "utf8"}) + "\n"

    def _gap(self, lines: int) -> str:
        if self._json_lines:
            return self._json_line({"happening": "LinesLost", "lines": lines})
        return f"… {lines} line{'' if lines == 1 else 's'} could not be shown\n"

    def _wrapped(self, text: str) -> list[str]:
        width = max(min(self._console.width, _WIDEST) - len(_MARGIN), 30)
        return textwrap.wrap(text, width, replace_whitespace=False, drop_whitespace=False) or [""]

    def _colour(self, who: str) -> str:
        if who not in self._colours:
            self._colours[who] = _COLOURS[(len(self._colours) - 2) % len(_COLOURS)]
        return self._colours[who]


def run_up(config: HiveConfig, *, verbose: bool, json_lines: bool) -> int:
    """Run a hive until it is stopped; give the process's exit code.

    Args:
        config: the hive.
        verbose: log on stderr what the parts do, not only what is wrong.
        json_lines: print happenings as JSON objects, one a line.

    Raises:
        HiveError, hive_broker.BrokerError, hive_agent.AgentError: it cannot run; see ``open_hive``.
    """
    set_up_logging(verbose=verbose)
    trio.run(up, config, Screen(json_lines=json_lines))
    return 0


async def up(config: HiveConfig, screen: Screen, *, opening: Callable[[Hive], Awaitable[None]] | None = None) -> None:
    """Run a hive until a signal or ``hivectl stop``; a second signal hastens (STOP-3).

    Args:
        config: the hive.
        screen: where it is shown.
        opening: run beside the hive once everything answers.
    """
    stop = trio.CancelScope()
    current: list[Hive] = []
    with one_error(), trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heed_signals, signals, stop, current, screen, _patience(config))
            with stop:
                async with open_hive(config) as hive:
                    current.append(hive)
                    for warning in (*config.warnings, *_missing_credentials(config)):
                        screen.say(f"warning: {warning}", style="yellow")
                    screen.say(_greeting(config))
                    # Outside the hive's own tree, so that its last happenings are told too.
                    await nursery.start(_tell, hive, screen)  # noqa: ASYNC111 - on purpose
                    if opening is not None:
                        await opening(hive)
                    await hive.wait_shutdown()
                    screen.say(f"stopping: {_patience(config)}")
            screen.say("the hive has stopped")
            nursery.cancel_scope.cancel()


def _patience(config: HiveConfig) -> str:
    longest = max(settings.runtime.grace_seconds for settings in config.agents.values())
    return f"running turns may take {longest:g} s more"


def _missing_credentials(config: HiveConfig) -> tuple[str, ...]:
    """A sentence when agents have no way to log in that can be seen from here; else they say so at their first turn."""
    without = [
        name
        for name, settings in config.agents.items()
        if not any({**os.environ, **settings.runtime.env}.get(variable) for variable in _CREDENTIALS)
        and not (config.paths.agent_harness_dir(name) / "home" / ".claude" / ".credentials.json").exists()
    ]
    if not without:
        return ()
    who = ", ".join(without[:6]) + (" and more" if len(without) > 6 else "")
    sentence = (
        f"no credentials for {who}: set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN before `hive up`, or in env of "
        "[runtime] in hive.toml"
    )
    return (sentence,)


def _greeting(config: HiveConfig) -> str:
    names = list(config.agents)
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return (
        f"hive {config.name!r} is up: {shown}\n"
        f"in another terminal: {hivectl_for(config.state_dir)} status (or send, inbox, stop); here Ctrl-C stops it"
    )


def hivectl_for(state_dir: Path) -> str:
    """The words that begin a command to the hive in ``state_dir``, as typed where this process was started."""
    return f"{program('hivectl')} --state {shown_path(state_dir)}"


async def _heed_signals(
    signals: AsyncIterator[int], stop: trio.CancelScope, current: list[Hive], screen: Screen, patience: str
) -> None:
    first = True
    async for number in signals:
        name = signal.Signals(number).name
        if first:
            first = False
            screen.say(f"{name}: stopping, {patience}; once more to cut them off")
            stop.cancel()
        else:
            screen.say(f"{name} again: cutting running turns off")
            for hive in current:
                hive.hasten()


async def _tell(hive: Hive, screen: Screen, *, task_status: trio.TaskStatus[None]) -> None:
    story = Story()
    is_first = True
    while True:
        with hive.watch() as happenings:
            if is_first:
                is_first = False
                task_status.started()
            async for event in happenings:
                screen.show(event, tuple(story.lines(event)))
        screen.say("so much happened at once that some of it is not shown", style="yellow")


def _tell_of_trouble(what: str) -> None:
    _log.warning(f"standard output {what}: not all that happens is shown; the hive goes on")


def _as_json(event: HiveEvent) -> dict[str, object]:
    def plain(_inst: type, _field: attrs.Attribute[object], value: object) -> object:
        return value.value if hasattr(value, "value") else value

    kind = "agent" if isinstance(event, AgentHappened) else type(event).__name__
    return {"happening": kind, **attrs.asdict(event, value_serializer=plain)}
