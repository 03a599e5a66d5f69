"""One agent, put together: its mailbox, runtime, event log, status and tools around one turn loop.

Owns the composition and the order of its ending; the same code runs inline in a hive and alone in a container.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import final

import attrs
import trio
from tricycle import open_service_nursery

from hive_broker import get_logger

from ._config import AgentConfig
from ._events import AgentEvent, EventKind, EventLog
from ._files import read_small_file
from ._mcp import Listener
from ._ports import Mailbox, WallClock
from ._prompt import STOP_NOTICE, system_prompt
from ._runner import AgentNotice, TurnLoop
from ._runtime import ClaudeRuntime, McpServer, RunRequest, Runtime
from ._status import StatusFile
from ._turn import Outcome, ParkReason, TurnState

__all__ = ["Agent", "AgentSnapshot", "run_agent"]

ROLE_LIMIT_BYTES = 256 * 1024
"""Of ``prompt.md``: more would crowd out the work it describes."""

STOP_RESERVE_SECONDS = 20.0
"""Beyond the grace: three signals, the reaping and the last write, each bounded by itself."""


@attrs.frozen(kw_only=True)
class AgentSnapshot:
    """What an agent is doing (BUS-2).

    Attributes:
        name: the agent.
        turn_state: idle or thinking.
        turn_state_since: unix seconds.
        turn_id: the open turn, if one is.
        parked: why no turn starts although there may be mail, or None.
        retry_at: while parked: unix seconds of the next try.
        stopping: a stop was requested.
        last_failure: how the last turn ended when it did not end well, in words.
        status_text: what the agent says it is doing, or None.
        status_set_at: unix seconds; there exactly when ``status_text`` is.
        model: configured model, or None for the runtime's default.
        turns: how many have ended since it was started.
        last_outcome: of the last one, None before the first.
    """

    name: str
    turn_state: TurnState
    turn_state_since: float
    turn_id: int | None
    parked: ParkReason | None
    retry_at: float | None
    stopping: bool
    last_failure: str | None
    status_text: str | None
    status_set_at: float | None
    model: str | None
    turns: int
    last_outcome: Outcome | None


@final
class Agent:
    """A running agent. Made by ``run_agent``; satisfies ``ToolServices`` for its own tools.

    Attributes:
        events: its log.
        loop: its turns.
        urls: where its tool servers answer, by name.
        unshown: rows a turn popped and its model was not shown anything of; known to where its tools are mounted.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        mailbox: Mailbox,
        runtime: Runtime,
        clock: WallClock,
        notify: Callable[[AgentNotice], object],
        observe: Callable[[AgentEvent], object],
        token: str,
    ) -> None:
        self._config = config
        self._mailbox = mailbox
        self._status = StatusFile(config.state_dir)
        self._token = token
        self.urls: Mapping[str, str] = {}
        self.unshown: Callable[[int], Collection[int]] = lambda _: ()
        self.events = EventLog(config.harness_dir / "events.sqlite", clock=clock, observe=observe)
        self.loop = TurnLoop(
            config,
            mailbox=mailbox,
            runtime=runtime,
            events=self.events,
            clock=clock,
            request=self._request,
            notify=notify,
            unshown=lambda turn_id: self.unshown(turn_id),
        )

    @property
    def name(self) -> str:
        """The agent."""
        return self._config.name

    @property
    def mailbox(self) -> Mailbox:
        """Its inbox and outbox."""
        return self._mailbox

    @property
    def turn_id(self) -> int | None:
        """The turn that is open now, if one is."""
        return self.loop.turn_id

    @property
    def stop_notice(self) -> str | None:
        """What ``recv`` says instead of mail once a stop was requested (STOP-1)."""
        return STOP_NOTICE if self.loop.stopping else None

    def set_status(self, text: str) -> None:
        """See ``ToolServices.set_status``."""
        self._status.write(text)
        self.events.append(EventKind.STATUS_CHANGED, {"status_text": text.strip()}, turn_id=self.turn_id)

    def snapshot(self) -> AgentSnapshot:
        """What it is doing now."""
        status = self._status.read()
        machine = self.loop.machine
        return AgentSnapshot(
            name=self.name,
            turn_state=machine.phase.turn_state,
            turn_state_since=self.loop.state_since,
            turn_id=self.turn_id,
            parked=machine.parked,
            retry_at=self.loop.retry_at,
            stopping=self.loop.stopping,
            last_failure=self.loop.lost_turn,
            status_text=status[0] if status else None,
            status_set_at=status[1] if status else None,
            model=self._config.claude.model,
            turns=self.loop.turns,
            last_outcome=self.loop.last_outcome,
        )

    def _request(self, prompt: str, turn_id: int) -> RunRequest:
        return RunRequest(
            prompt=prompt,
            system_prompt=system_prompt(self.name, _read_role(self._config.config_dir / "prompt.md")),
            mcp_servers=self._servers(turn_id),
        )

    def _servers(self, turn_id: int) -> Mapping[str, McpServer]:
        headers = {"Authorization": f"Bearer {self._token}", "Hive-Turn": str(turn_id)}
        return {name: McpServer(url=url, headers=headers) for name, url in self.urls.items()}


async def run_agent(
    config: AgentConfig,
    *,
    mailbox: Mailbox,
    listener: Listener,
    token: str,
    runtime: Runtime | None = None,
    clock: WallClock = time.time,
    notify: Callable[[AgentNotice], object] = lambda _: None,
    observe: Callable[[AgentEvent], object] = lambda _: None,
    task_status: trio.TaskStatus[Agent] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one agent until it is cancelled or asked to stop (EMBED-1).

    The caller owns the agent's harness folder (``own_harness``), so that no other process runs the agent (TURN-4).

    Cancelling the surrounding scope is a graceful stop: the inbox is fenced, a running turn may end within
    ``grace_seconds``, then it is interrupted and what it had popped goes back (STOP-1, STOP-2). Nothing of the agent
    runs when this returns.

    Args:
        config: the agent; its folders are made when they are not there.
        mailbox: its mail.
        listener: where its tools are served, as ``/agents/<name>/mcp/<server>``.
        token: bearer token of its tools (SURF-5).
        runtime: what runs a turn; by default the Claude CLI.
        clock: the hour.
        notify: told when the agent parks and the operator should know; must not block or raise.
        observe: told every event of its log; must not block or raise.
        task_status: given the ``Agent`` once its tools answer and it waits for work.

    Raises:
        RuntimeUnavailable: there is no CLI to run turns with.
        OSError: its folders cannot be made.
    """
    for folder in (config.state_dir, config.harness_dir, config.config_dir):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    chosen = runtime if runtime is not None else ClaudeRuntime(config)
    orphans = await chosen.end_orphans()
    agent = Agent(config, mailbox=mailbox, runtime=chosen, clock=clock, notify=notify, observe=observe, token=token)
    log = get_logger("hive_agent").bind(agent=config.name)
    try:
        if orphans:
            log.warning("ended what an earlier life left running", pids=orphans)
            text = f"ended {len(orphans)} process(es) that an earlier life of this agent had left running"
            agent.events.append(EventKind.NOTE, {"text": text, "pids": orphans})
        with listener.mount(agent, token=token) as mount:
            agent.urls = mount.urls
            agent.unshown = mount.unshown
            async with open_service_nursery() as nursery:
                await nursery.start(agent.loop.run)
                try:
                    task_status.started(agent)
                    await agent.loop.wait_stopped()
                finally:
                    await _leave(agent, config.grace_seconds)  # noqa: ASYNC102 - shielded and bounded there
                    nursery.cancel_scope.cancel()
    finally:
        agent.events.close()


async def _leave(agent: Agent, grace_seconds: float) -> None:
    agent.loop.request_stop()
    with trio.move_on_after(grace_seconds + STOP_RESERVE_SECONDS, shield=True) as scope:
        await agent.loop.wait_stopped()
    if scope.cancelled_caught:
        get_logger("hive_agent").error("the agent did not leave in time and was cut off", agent=agent.name)


def _read_role(path: Path) -> str | None:
    try:
        raw, _ = read_small_file(path, limit_bytes=ROLE_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise OSError(exc.errno, f"the agent's role must be a readable text file: {exc.strerror}", str(path)) from exc
    return raw.decode("utf-8", "replace")
