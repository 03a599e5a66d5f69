"""This repository's own agents as a subject: real broker, listener and turn loops; only the model's runtime is played.

Mail starts a turn here as in any hive, and the turn stays open until the suite ends it. A restart is what ``kill -9``
leaves: the state is copied while everything runs, what runs is dropped, and the copy is opened at the same port.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import final

import trio

import hive_agent
import hive_broker

from ._subject import AgentDoor, OperatorMail, Subject

__all__ = ["open_own_subject"]

_AGENTS: Mapping[str, tuple[str, ...]] = {"iris": (), "otto": (), "reed": ("otto",)}
"""Names, and whom they may write to (MSG-2)."""

_BUDGETS = hive_broker.LoopBudgets(pair_messages_per_hour=20)
"""Small enough for a test to use up."""

_Wrap = Callable[[hive_agent.Mailbox], hive_agent.Mailbox]


def _as_it_is(mailbox: hive_agent.Mailbox) -> hive_agent.Mailbox:
    return mailbox


@asynccontextmanager
async def open_own_subject(*, wrap: _Wrap = _as_it_is) -> AsyncIterator[Subject]:
    """Three agents in this process, on a folder that is removed at the end.

    Args:
        wrap: given each agent's mailbox, gives the one its tools use: the place to plant a fault.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        async with trio.open_nursery() as nursery:
            own = _Own(Path(folder), wrap, nursery)
            await own.start()
            yield Subject(
                description="this repository's agents, in process, with a played runtime",
                agents=own.doors(),
                pair_messages_per_hour=_BUDGETS.pair_messages_per_hour,
                restart=own.restart,
                operator_send=own.operator_send,
                operator_inbox=own.operator_inbox,
                turn_of=own.turn_of,
                stop_agent=own.stop_agent,
            )
            await own.stop()


@final
class _Own:
    """The agents over all their lives."""

    def __init__(self, folder: Path, wrap: _Wrap, nursery: trio.Nursery) -> None:
        self._state = folder / "state"
        self._wrap = wrap
        self._nursery = nursery
        self._port = 0
        self._life: _Life

    async def start(self) -> None:
        """Begin a life on the state there is."""
        self._life = await self._nursery.start(partial(_live, self._state, self._port, self._wrap))
        self._port = self._life.port

    async def stop(self) -> None:
        """End this life."""
        self._life.over.set()
        await self._life.gone.wait()

    async def restart(self) -> None:
        """Go on with what a kill would have left on the disk at this instant."""
        left = self._state.with_name("left")
        # The index of the write-ahead log is left out: the next opener finds nobody alive and makes it anew.
        shutil.copytree(self._state, left, ignore=shutil.ignore_patterns("*-shm"))
        await self.stop()
        shutil.rmtree(self._state)
        left.rename(self._state)
        await self.start()

    def doors(self) -> list[AgentDoor]:
        """Where the agents answer, in every life."""
        return [
            AgentDoor(
                name=name,
                url=self._life.agents[name].urls["hyperhive"],
                token=_token(name),
                allowed_recipients=allowed,
                state_dir=self._state / "agents" / name / "state",
            )
            for name, allowed in _AGENTS.items()
        ]

    async def operator_send(self, to: str, body: str) -> int:
        """See `Subject`."""
        return (await self._life.broker.mailbox(hive_broker.OPERATOR).send(to=to, body=body)).id

    async def operator_inbox(self) -> Sequence[OperatorMail]:
        """See `Subject`."""
        newest_first = await self._life.broker.inbox(hive_broker.OPERATOR)
        return [OperatorMail(id=row.id, sender=row.sender, body=row.body) for row in reversed(newest_first)]

    async def turn_of(self, name: str) -> _PlayedTurn:
        """See `Subject`."""
        return await self._life.runtimes[name].turn()

    async def stop_agent(self, name: str) -> None:
        """See `Subject`."""
        await trio.lowlevel.checkpoint()
        self._life.agents[name].loop.request_stop()


@final
class _Life:
    """What runs between two kills."""

    def __init__(self, broker: hive_broker.Broker, port: int) -> None:
        self.broker = broker
        self.port = port
        self.agents: dict[str, hive_agent.Agent] = {}
        self.runtimes: dict[str, _PlayedRuntime] = {}
        self.over = trio.Event()
        self.gone = trio.Event()


async def _live(state: Path, port: int, wrap: _Wrap, *, task_status: trio.TaskStatus[_Life]) -> None:
    async with (
        hive_broker.open_broker(state / "broker.sqlite", owner="conformance", budgets=_BUDGETS) as broker,
        hive_agent.open_listener(port=port) as listener,
    ):
        await broker.set_agents(_AGENTS)
        life = _Life(broker, listener.port)
        async with trio.open_nursery() as agents:
            for name, allowed in _AGENTS.items():
                life.runtimes[name] = runtime = _PlayedRuntime(life.over)
                life.agents[name] = runtime.agent = await agents.start(
                    partial(
                        hive_agent.run_agent,
                        _config(state / "agents" / name, name),
                        mailbox=wrap(broker.mailbox(name, allowed_recipients=allowed)),
                        listener=listener,
                        token=_token(name),
                        runtime=runtime,
                        observe=runtime.observe,
                    )
                )
            task_status.started(life)
            await life.over.wait()
            agents.cancel_scope.cancel()
    life.gone.set()


def _config(folder: Path, name: str) -> hive_agent.AgentConfig:
    return hive_agent.AgentConfig(
        name=name, state_dir=folder / "state", harness_dir=folder / "harness", config_dir=folder / "config"
    )


def _token(name: str) -> str:
    return f"conformance-token-of-{name}"


@final
class _PlayedRuntime:
    """A runtime whose turns do nothing until they are told to end.

    Attributes:
        agent: whose.
    """

    def __init__(self, life_over: trio.Event) -> None:
        self.agent: hive_agent.Agent
        self._life_over = life_over
        self._turns: dict[int, _PlayedTurn] = {}
        self._changed = trio.lowlevel.ParkingLot()

    async def end_orphans(self) -> tuple[int, ...]:
        """There is no process to be left behind."""
        await trio.lowlevel.checkpoint()
        return ()

    @asynccontextmanager
    async def open_run(self, request: hive_agent.RunRequest) -> AsyncIterator[hive_agent.Run]:
        """Begin a turn."""
        turn_id = self.agent.turn_id
        if turn_id is None:
            raise RuntimeError("a runtime is started within a turn only: please report this")
        run = self._turns[turn_id] = _PlayedTurn(request.mcp_servers["hyperhive"].headers)
        self._changed.unpark_all()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.end_with, self._life_over)
            yield run
            nursery.cancel_scope.cancel()

    def observe(self, event: hive_agent.AgentEvent) -> None:
        """Notice that a turn was closed."""
        if event.kind is hive_agent.EventKind.TURN_END and event.turn_id in self._turns:
            self._turns.pop(event.turn_id).closed.set()

    async def turn(self) -> _PlayedTurn:
        """The turn that is open, or the next one; an agent that waits after a bad one need not wait on."""
        while not self._turns:
            self.agent.loop.retry_now()
            with trio.move_on_after(0.05):
                await self._changed.park()
        return next(iter(self._turns.values()))


@final
class _PlayedTurn:
    """One turn; a `hive_agent.Run` for the agent and a `Turn` for the suite.

    Attributes:
        headers: of the runtime's requests.
        closed: set once its rows are acked or returned.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.closed = trio.Event()
        self._outcome = hive_agent.Outcome.CRASHED
        self._ended = trio.Event()
        self._begun = False

    async def end(self, *, well: bool) -> None:
        """See `Turn`."""
        self._outcome = hive_agent.Outcome.DONE if well else hive_agent.Outcome.CRASHED
        self._ended.set()
        await self.closed.wait()

    async def end_with(self, event: trio.Event) -> None:
        """End badly when ``event`` happens."""
        await event.wait()
        self._ended.set()

    async def next(self) -> hive_agent.RunStarted | None:
        """See `hive_agent.Run`."""
        if not self._begun:
            self._begun = True
            return hive_agent.RunStarted(pid=0)
        await self._ended.wait()
        return None

    def signal(self, signal: hive_agent.Signal) -> None:
        """See `hive_agent.Run`."""
        self._ended.set()

    @property
    def report(self) -> hive_agent.RunReport:
        """See `hive_agent.Run`."""
        return hive_agent.RunReport(outcome=self._outcome, detail="as the suite played it")
