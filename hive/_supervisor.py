"""Keeps every agent of a hive running: start, stop, restart, and what to do when one ends by itself (HOST-5).

Owns one task per agent around ``hive_agent.run_agent``. An agent that ends unplanned is started again with growing
pauses and reported to the manager; past its budget it is ``failed`` and left.
"""

from __future__ import annotations

import enum
import json
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import final

import trio
from tricycle import open_service_nursery

import hive_agent
import hive_broker
from hive_broker import get_logger

from ._config import AgentSettings, HiveConfig, Runs
from ._restart import next_delay

__all__ = ["Member", "MemberState", "Supervisor", "open_supervisor"]

_log = get_logger("hive.supervisor")

CRASH_TAIL_CHARACTERS = 2000
"""How much of a traceback the manager is shown (SYS-1)."""


class MemberState(enum.Enum):
    """Whether an agent runs."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """It ended unplanned and is started again after a pause."""
    STOPPED = "stopped"
    FAILED = "failed"


@final
class Member:
    """One agent as its supervisor sees it.

    Attributes:
        name: the agent.
        state: whether it runs.
        agent: the running agent, or None.
        crash: what ended it last, in words, while that is not made good.
        wanted: whether it should run.
        done: set while no task of it exists.
        pause: the wait before it is started again.
        changing: held by whoever starts or stops it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = MemberState.STOPPED
        self.agent: hive_agent.Agent | None = None
        self.crash: str | None = None
        self.wanted = True
        self.done = trio.Event()
        self.done.set()
        self.pause = trio.CancelScope()
        self.changing = trio.Lock()


@final
class Supervisor:
    """The agents of one hive. Made by ``open_supervisor``."""

    def __init__(
        self,
        config: HiveConfig,
        *,
        broker: hive_broker.Broker,
        listener: hive_agent.Listener,
        clock: hive_agent.WallClock,
        changed: Callable[[Member], object],
        observe: Callable[[str, hive_agent.AgentEvent], object],
        nursery: trio.Nursery,
    ) -> None:
        self._config = config
        self._broker = broker
        self._listener = listener
        self._clock = clock
        self._changed = changed
        self._observe = observe
        self._nursery = nursery
        self.members: Mapping[str, Member] = {name: Member(name) for name in config.agents}

    async def start(self, name: str) -> None:
        """Start an agent and return once it answers, or once its first start has failed; one that runs is left."""
        member = self.members[name]
        async with member.changing:
            member.wanted = True
            if member.done.is_set():
                member.done = trio.Event()
                await self._nursery.start(self._keep, member)
            else:
                member.pause.cancel()

    async def stop(self, name: str, *, graceful: bool) -> None:
        """Stop an agent and return once nothing of it runs; one that is stopped is left.

        Asking again without ``graceful`` hastens a stop that is under way.
        """
        member = self.members[name]
        self._ask_to_leave(member, graceful=graceful)
        async with member.changing:
            self._ask_to_leave(member, graceful=graceful)
            await member.done.wait()

    def hurry(self, name: str) -> None:
        """Ask an agent to leave at once, also where a graceful stop of it is under way."""
        self._ask_to_leave(self.members[name], graceful=False)

    def hasten(self) -> None:
        """Do not wait for running turns any longer (STOP-3)."""
        for member in self.members.values():
            if member.agent is not None:
                member.agent.loop.hasten()

    def _ask_to_leave(self, member: Member, *, graceful: bool) -> None:
        member.wanted = False
        member.pause.cancel()
        if member.agent is not None:
            if graceful:
                member.agent.loop.request_stop()
            else:
                member.agent.loop.hasten()

    async def _keep(self, member: Member, *, task_status: trio.TaskStatus[None]) -> None:
        crashes: list[float] = []
        started = False

        def ready() -> None:
            nonlocal started
            if not started:
                started = True
                task_status.started()

        try:
            while member.wanted:
                crash = await self._run_once(member, ready)
                if crash is None or not member.wanted:
                    break
                crashes.append(self._clock())
                await self._report(member, crash)
                delay = next_delay(crashes, self._clock())
                self._set(member, MemberState.FAILED if delay is None else MemberState.WAITING)
                ready()
                if delay is None:
                    return
                with trio.CancelScope() as member.pause:
                    await trio.sleep(delay)
            self._set(member, MemberState.STOPPED)
            ready()
        finally:
            member.done.set()

    async def _run_once(self, member: Member, ready: Callable[[], None]) -> BaseException | None:
        """Run an agent to its end; give what ended it, None when it left as it was asked to."""
        self._set(member, MemberState.STARTING)
        try:
            harness_dir = self._config.paths.agent_harness_dir(member.name)
            with hive_agent.own_harness(harness_dir, name=member.name):
                await self._run_owned(member, ready)
        except Exception as exc:  # noqa: BLE001 - the edge of the agent: one agent's bug costs that agent
            return exc
        finally:
            member.agent = None
        return None

    async def _run_owned(self, member: Member, ready: Callable[[], None]) -> None:
        async with trio.open_nursery() as nursery:
            run = partial(
                hive_agent.run_agent,
                self._agent_config(member.name, self._config.agents[member.name]),
                mailbox=self._broker.mailbox(
                    member.name, allowed_recipients=self._config.agents[member.name].allowed_recipients
                ),
                listener=self._listener,
                token=hive_agent.kept_token(self._config.paths.token_file(member.name)),
                clock=self._clock,
                notify=partial(self._notify, nursery),
                observe=partial(self._observe, member.name),
            )
            member.agent = await nursery.start(run)
            member.crash = None
            self._set(member, MemberState.RUNNING)
            ready()
            if not member.wanted:
                member.agent.loop.request_stop()

    async def _report(self, member: Member, crash: BaseException) -> None:
        words = _words(crash)
        member.crash = words
        _log.error("an agent ended unplanned", agent=member.name, reason=words, exc_info=crash)
        tail = "".join(traceback.format_exception(crash))[-CRASH_TAIL_CHARACTERS:]
        body = {"event": "container_crash", "agent": member.name, "exit": words, "logs_tail": tail}
        await self._tell(self._config.manager, json.dumps(body))

    def _notify(self, nursery: trio.Nursery, notice: hive_agent.AgentNotice) -> None:
        nursery.start_soon(self._tell, hive_broker.OPERATOR, notice.text)

    async def _tell(self, recipient: str, body: str) -> None:
        try:
            await self._broker.deliver(hive_broker.SYSTEM, recipient, body)
        except hive_broker.BrokerError as exc:
            _log.error("a notice could not be delivered", recipient=recipient, notice=body, error=str(exc))

    def _set(self, member: Member, state: MemberState) -> None:
        member.state = state
        self._changed(member)

    def _agent_config(self, name: str, settings: AgentSettings) -> hive_agent.AgentConfig:
        paths, runtime = self._config.paths, settings.runtime
        return hive_agent.AgentConfig(
            name=name,
            state_dir=paths.agent_state_dir(name),
            harness_dir=paths.agent_harness_dir(name),
            config_dir=paths.agent_config_dir(name),
            claude=hive_agent.ClaudeSettings(
                command=runtime.command, model=runtime.model, effort=runtime.effort, env=runtime.env
            ),
            session_title=runtime.session_title,
            grace_seconds=runtime.grace_seconds,
            turn_silence_seconds=runtime.turn_silence_seconds,
            turn_total_seconds=runtime.turn_total_seconds,
            post_result_seconds=runtime.post_result_seconds,
            rate_limit_sleep_seconds=runtime.rate_limit_sleep_seconds,
        )


@asynccontextmanager
async def open_supervisor(
    config: HiveConfig,
    *,
    broker: hive_broker.Broker,
    listener: hive_agent.Listener,
    clock: hive_agent.WallClock,
    changed: Callable[[Member], object],
    observe: Callable[[str, hive_agent.AgentEvent], object],
) -> AsyncIterator[Supervisor]:
    """Start every agent that runs inline, and stop every one when the block is left, each within its grace (STOP-2).

    Args:
        config: the hive.
        broker: where mail is.
        listener: where tools are served.
        clock: the hour.
        changed: told whenever an agent's ``MemberState`` changes.
        observe: told every event of every agent's log.
    """
    async with open_service_nursery() as nursery:
        supervisor = Supervisor(
            config,
            broker=broker,
            listener=listener,
            clock=clock,
            changed=changed,
            observe=observe,
            nursery=nursery,
        )
        async with trio.open_nursery() as starting:
            for name, settings in config.agents.items():
                if settings.runs is Runs.INLINE:
                    starting.start_soon(supervisor.start, name)
        try:
            yield supervisor
        finally:
            for member in supervisor.members.values():
                member.wanted = False
            nursery.cancel_scope.cancel()


def _words(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {exc}"
