"""The Claude CLI as a runtime: one ``claude --print`` process a turn (TURN-3, SURF-7, PERM-3).

Owns the command line, the built environment, the files the CLI is given, and the order of a run. How a process is kept
is ``_process``, how it is listened to ``_reader``, how a run is judged ``_outcome``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal as signals
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import final

import trio

from hive_agent._config import AgentConfig
from hive_agent._errors import RuntimeUnavailable
from hive_agent._files import write_private
from hive_agent._turn import Signal
from hive_broker import get_logger

from ._orphans import RuntimeMark
from ._outcome import RunFacts, SessionTrouble, classify, listed_sessions, session_trouble
from ._port import McpServer, Run, RunLine, RunNote, RunReport, RunRequest, RunStarted
from ._process import ChildProcess, SpawnFailed, open_child
from ._reader import RunReader
from ._session import Session, SessionFile

__all__ = ["ClaudeRuntime", "find_claude"]

_log = get_logger("hive_agent.runtime")

BUILT_IN_TOOLS = ("Edit", "Glob", "Grep", "Read", "Skill", "Write")
"""The CLI's own tools that exist in a turn (PERM-3)."""

TRAFFIC_SWITCHES = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
"""A fleet speaks to the model's service and to nobody else, and does not replace its own binary (SEC-1)."""

PASSED_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "LANG",
    "LC_ALL",
    "SSL_CERT_FILE",
    "TZ",
)
"""All that a turn's process inherits from ours, besides PATH: how to reach the model, and how to write dates."""

EVENTS_AHEAD = 8
"""Events of a run that may wait for their reader: a line can hold a mebibyte, and many times that once it is read."""

HEALINGS = 2
"""A title may fail, and then the id it stood for; a third start makes a new session."""

_SIGNALS = {Signal.INTERRUPT: signals.SIGINT, Signal.TERMINATE: signals.SIGTERM, Signal.KILL: signals.SIGKILL}


def find_claude(command: str | None) -> str:
    """Give the absolute path of the CLI to start.

    Args:
        command: a path or a name on PATH; None takes the one in the ``hyperhive[claude]`` extra, else ``claude``.

    Raises:
        RuntimeUnavailable: there is none; the sentence names the extra and the setting.
    """
    if command is not None:
        found = shutil.which(os.path.expanduser(command))  # noqa: PTH111 - Path drops "./", and fails on "~nobody"
        if found is None:
            raise RuntimeUnavailable(
                f"the Claude CLI {command!r} is not an executable file or a command on PATH: "
                "correct `command` in [runtime] of hive.toml, "
                "or remove it and install the extra: pip install 'hyperhive[claude]'"
            )
        return str(Path(found).absolute())
    found = _bundled_claude() or shutil.which("claude")
    if found is None:
        raise RuntimeUnavailable(
            "no Claude CLI found: install the extra (pip install 'hyperhive[claude]'), "
            "put `claude` on PATH, or set `command` in [runtime] of hive.toml"
        )
    return str(Path(found).absolute())


def _bundled_claude() -> str | None:
    for folder in map(Path, sys.path):
        binary = folder / "claude_agent_sdk" / "_bundled" / "claude"
        if os.access(binary, os.X_OK) and binary.is_file():
            return str(binary)
    return None


@final
class ClaudeRuntime:
    """Runs turns of one agent with the Claude CLI.

    Args:
        config: the agent; its harness folder must exist.

    Raises:
        RuntimeUnavailable: there is no CLI to run.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._command = find_claude(config.claude.command)
        self._mark = RuntimeMark(config.harness_dir)
        self._session = SessionFile(config.harness_dir / "session.json")
        self._home = config.harness_dir / "home"

    async def end_orphans(self) -> tuple[int, ...]:
        """See ``Runtime.end_orphans``."""
        return await self._mark.end_orphans()

    @contextlib.asynccontextmanager
    async def open_run(self, request: RunRequest) -> AsyncIterator[Run]:
        """See ``Runtime.open_run``. An error of the block leaves it as it is."""
        run = _ClaudeRun(self, request)
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.drive)
            try:
                yield run
            except Exception as exc:  # noqa: BLE001 - the caller's own error: raised again, outside of the nursery's group
                failure = exc
            finally:
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def prepare(self, request: RunRequest) -> tuple[str, ...]:
        """Write the files the CLI is given, and say how it is started, up to the session."""
        harness = self._config.harness_dir
        self._home.mkdir(mode=0o700, exist_ok=True)
        servers = {name: _mcp_entry(server) for name, server in request.mcp_servers.items()}
        write_private(harness / "mcp.json", json.dumps({"mcpServers": servers}))
        write_private(harness / "system-prompt.md", request.system_prompt)
        allowed = [*BUILT_IN_TOOLS, *(f"mcp__{name}" for name in request.mcp_servers)]
        command = [
            self._command,
            *("-p", "--output-format", "stream-json", "--verbose"),
            *("--tools", ",".join(BUILT_IN_TOOLS), "--allowedTools", ",".join(allowed)),
            *("--mcp-config", str(harness / "mcp.json"), "--strict-mcp-config"),
            *("--append-system-prompt-file", str(harness / "system-prompt.md"), "--system-prompt-snapshot", "off"),
        ]
        if self._config.claude.model:
            command += ["--model", self._config.claude.model]
        if self._config.claude.effort:
            command += ["--effort", self._config.claude.effort]
        return tuple(command)

    def environment(self) -> dict[str, str]:
        """Build the child's whole environment; ours is not inherited."""
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._home.absolute()),
            "CLAUDE_CODE_TMPDIR": str(self._home.absolute()),
            **TRAFFIC_SWITCHES,
            "ENABLE_TOOL_SEARCH": "false",
            **passed,
            **self._config.claude.env,
            **self._mark.environment,
        }

    def session_plan(self) -> tuple[str, ...]:
        """How the next process continues the agent's one session, as far as we know of it (TURN-3)."""
        title = self._config.session_title
        known = self._session.read(title)
        if known is not None:
            return ("--resume", known.id if known.by_id else title)
        home = Path(self.environment()["HOME"])
        if any(home.glob(".claude/projects/*/*.jsonl")):
            return ("--resume", title)
        return ("-n", title)

    def heal(self, plan: tuple[str, ...], trouble: SessionTrouble, facts: RunFacts) -> tuple[tuple[str, ...], str]:
        """What to do about a plan whose session could not be resumed: another plan, and a note for people."""
        title = self._config.session_title
        known = self._session.read(title)
        listed = listed_sessions(facts) if trouble is SessionTrouble.DUPLICATE else ()
        session_id = known.id if known is not None else next(iter(listed), None)
        if session_id is not None and plan != ("--resume", session_id):
            # A title is found in one folder only, an id from everywhere: a moved agent keeps its memory.
            self._session.write(Session(title=title, id=session_id, by_id=True))
            why = "several sessions are" if trouble is SessionTrouble.DUPLICATE else "no session here is"
            return ("--resume", session_id), f"{why} called {title!r}; going on with {session_id}"
        self._session.forget()
        return ("-n", title), f"the session {title!r} cannot be resumed; starting a new one"

    def remember(self, session_id: str) -> None:
        """Keep the id of the session that is running now."""
        known = self._session.read(self._config.session_title)
        if known is None or known.id != session_id:
            self._session.write(Session(title=self._config.session_title, id=session_id))

    @contextlib.asynccontextmanager
    async def open_process(self, command: Sequence[str]) -> AsyncIterator[ChildProcess]:
        """A process that no later life of this harness can overlook."""
        self._mark.set()
        async with open_child(command, cwd=self._config.state_dir, env=self.environment()) as child:
            yield child
        if left := await self._mark.end_orphans():
            _log.warning("ended what the runtime had started and left running", agent=self._config.name, pids=left)


def _mcp_entry(server: McpServer) -> Mapping[str, object]:
    return {"type": "http", "url": server.url, "headers": dict(server.headers)}


@final
class _ClaudeRun:
    """One turn's run; made by ``ClaudeRuntime.open_run``."""

    def __init__(self, runtime: ClaudeRuntime, request: RunRequest) -> None:
        self._runtime = runtime
        self._request = request
        self._events, self._inbox = trio.open_memory_channel[RunStarted | RunLine | RunNote](EVENTS_AHEAD)
        self._child: ChildProcess | None = None
        self._wanted: Signal | None = None
        self._report: RunReport | None = None

    async def next(self) -> RunStarted | RunLine | RunNote | None:
        """See ``Run.next``."""
        try:
            return await self._inbox.receive()
        except trio.EndOfChannel:
            return None

    def signal(self, signal: Signal) -> None:
        """See ``Run.signal``."""
        self._wanted = signal
        if self._child is not None:
            self._child.signal_group(_SIGNALS[signal])

    @property
    def report(self) -> RunReport:
        """See ``Run.report``."""
        if self._report is None:
            raise RuntimeError("the run has not ended: call next() until it gives None")
        return self._report

    async def drive(self) -> None:
        """Run the CLI to its end, again where its session could not be resumed, and judge it."""
        async with self._events:
            try:
                facts = await self._run_and_heal()
            except SpawnFailed as exc:
                facts = RunFacts(spawn_error=str(exc))
            except OSError as exc:
                facts = RunFacts(spawn_error=f"cannot prepare the runtime: {exc}")
            self._report = classify(facts)

    async def _run_and_heal(self) -> RunFacts:
        command = self._runtime.prepare(self._request)
        plan = self._runtime.session_plan()
        facts = await self._run_once([*command, *plan])
        for _ in range(HEALINGS):
            trouble = session_trouble(facts)
            if trouble is None or self._wanted is not None:
                break
            plan, note = self._runtime.heal(plan, trouble, facts)
            await self._events.send(RunNote(text=note))
            facts = await self._run_once([*command, *plan])
        if facts.session_id and facts.result is not None:
            try:
                self._runtime.remember(facts.session_id)
            except OSError as exc:
                # The turn is done all the same, and the next one finds the session by its title.
                await self._events.send(RunNote(text=f"the session's id could not be written down: {exc}"))
        return facts

    async def _run_once(self, command: Sequence[str]) -> RunFacts:
        interrupt = functools.partial(self.signal, Signal.INTERRUPT)
        reader = RunReader(self._events, self._request.mcp_servers, interrupt=interrupt)
        try:
            async with self._runtime.open_process(command) as child:
                self._child = child
                await self._events.send(RunStarted(pid=child.pid))
                if self._wanted is not None:
                    self.signal(self._wanted)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_say, child, self._request.prompt.encode("utf-8", "backslashreplace"))
                    nursery.start_soon(reader.read_stdout, child)
                    nursery.start_soon(reader.read_stderr, child)
                    code = await child.wait()
                    await reader.wait_drained(child)
                    nursery.cancel_scope.cancel()
                await reader.finish()
        finally:
            self._child = None
        return reader.facts(code)


async def _say(child: ChildProcess, prompt: bytes) -> None:
    # A CLI that exits at once does not read its prompt; how it exited says more than this would.
    with contextlib.suppress(trio.BrokenResourceError):
        await child.stdin.send_all(prompt)
    await child.stdin.aclose()
