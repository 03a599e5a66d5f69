"""A hive, put together: broker, listener, agents and doors in one tree, in the order in which they must end.

Owns the composition (EMBED-1, STOP-3) and answers what the operator asks over the doors. Stopping is leaving the block.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import final

import attrs
import trio
from tricycle import open_service_nursery

import hive_agent
import hive_broker
from hive_broker import get_logger

from ._config import HiveConfig, Runs
from ._errors import HiveUnavailable, RequestRefused
from ._hostsock import (
    AgentDetail,
    AgentStatusFeed,
    AgentStatusRow,
    AgentStatusStream,
    DeadLetters,
    Inbox,
    Thread,
    serve_host_socket,
)
from ._hostsock import HiveStatus as Status
from ._mailbox_doors import open_mailbox_doors
from ._one_error import one_error
from ._state_file import AgentAddresses, StateFile, published, unavailable
from ._supervisor import Member, MemberState, Supervisor, open_supervisor

__all__ = ["AgentHappened", "Hive", "HiveEvent", "open_hive"]

_log = get_logger("hive")

_LOOK_SECONDS = 15.0
"""Between two looks whether run/hive.json is still there: nothing announces that somebody removed it."""

WATCH_BUFFER = 4096
"""Happenings a watcher may be behind before its channel ends."""


@attrs.frozen(kw_only=True)
class AgentHappened:
    """An event of one agent's log, as it was kept."""

    agent: str
    event: hive_agent.AgentEvent


HiveEvent = AgentHappened | hive_broker.FlowEvent
"""What ``Hive.watch`` gives."""


@final
class Hive:
    """A running hive. Made by ``open_hive``; also what the admin socket controls."""

    def __init__(self, config: HiveConfig, broker: hive_broker.Broker, clock: hive_agent.WallClock) -> None:
        self.config = config
        self.started_at = clock()
        self._clock = clock
        self._broker = broker
        self._operator = broker.mailbox(hive_broker.OPERATOR)
        self._feed = AgentStatusFeed()
        self._watchers: set[trio.MemorySendChannel[HiveEvent]] = set()
        self._reminders: Mapping[str, int] = {}
        self._shutdown = trio.Event()
        self._hastened = False
        self._outside: dict[str, int | None] = {}
        self._supervisor: Supervisor | None = None
        self._nursery: trio.Nursery | None = None
        self._changes: dict[str, Callable[[], Awaitable[None]] | None] = {}
        self.refresh_addresses: Callable[[], None] = _nothing

    # --- for embedders

    @property
    def broker(self) -> hive_broker.Broker:
        """The mail of this hive."""
        return self._broker

    async def wait_shutdown(self) -> None:
        """Return once somebody asked for the hive's end (``hivectl stop``); leaving the block is up to the caller."""
        await self._shutdown.wait()

    def hasten(self) -> None:
        """From now on wait for no running turn: those that run are interrupted, their mail goes back (STOP-3)."""
        self._hastened = True
        self._shutdown.set()
        if self._supervisor is not None:
            self._supervisor.hasten()

    @contextmanager
    def watch(self) -> Iterator[trio.MemoryReceiveChannel[HiveEvent]]:
        """Follow mail and agents as things happen. Who falls ``WATCH_BUFFER`` behind sees the channel end."""
        send, receive = trio.open_memory_channel[HiveEvent](WATCH_BUFFER)
        self._watchers.add(send)
        try:
            with receive:
                yield receive
        finally:
            self._watchers.discard(send)
            send.close()

    # --- for the doors (HiveControl)

    async def list_agents(self) -> tuple[str, ...]:
        """See ``HiveControl``."""
        return tuple(self.config.agents)

    async def agent_status(self) -> tuple[AgentStatusRow, ...]:
        """See ``HiveControl``."""
        return tuple(self._row(member) for member in self._agents.members.values())

    def subscribe_agent_status(self) -> AbstractContextManager[AgentStatusStream]:
        """See ``HiveControl``."""
        return self._feed.subscribe()

    async def hive_status(self) -> Status:
        """See ``HiveControl``."""
        counts = await self._broker.counts()
        return Status(
            hive=self.config.name,
            pid=os.getpid(),
            started_at=self.started_at,
            operator_unread=counts[hive_broker.OPERATOR].unread,
            agents=tuple(self._detail(member, counts[name].unread) for name, member in self._agents.members.items()),
            warnings=self.config.warnings,
        )

    async def start(self, names: tuple[str, ...]) -> None:
        """See ``HiveControl``."""
        for name in self._inline(names):
            self._begin(name, partial(self._agents.start, name))

    async def stop(self, names: tuple[str, ...], *, graceful: bool) -> None:
        """See ``HiveControl``."""
        for name in self._inline(names):
            if not graceful:
                self._agents.hurry(name)
            self._begin(name, partial(self._agents.stop, name, graceful=graceful))

    async def restart(self, name: str) -> None:
        """See ``HiveControl``."""
        for inline in self._inline((name,)):
            self._begin(inline, partial(self._restart, inline))

    async def send(self, *, to: str, body: str, in_reply_to: int | None) -> hive_broker.Sent:
        """See ``HiveControl``."""
        return await self._operator.send(to=to, body=body, in_reply_to=in_reply_to)

    async def inbox(self, *, agent: str | None, limit: int, unread_only: bool) -> Inbox:
        """See ``HiveControl``."""
        owner = agent or hive_broker.OPERATOR
        newest_first = await self._broker.inbox(owner, limit=limit, unread_only=unread_only)
        counts = await self._broker.counts()
        return Inbox(owner=owner, unread=counts[owner].unread, messages=newest_first[::-1])

    async def ack(self, up_to: int) -> hive_broker.Acked:
        """See ``HiveControl``."""
        newest = await self._broker.inbox(hive_broker.OPERATOR, limit=1)
        if not newest or up_to > newest[0].id:
            last = f"the last one is #{newest[0].id}" if newest else "there is none"
            raise RequestRefused(f"there is no message #{up_to} for you, {last}: nothing was acked")
        return await self._operator.ack_until(up_to)

    async def thread(self, message_id: int) -> Thread:
        """See ``HiveControl``."""
        messages = await self._broker.thread(message_id)
        if not messages:
            raise RequestRefused(f"there is no message #{message_id}: see the inbox for the numbers")
        return Thread(id=messages[0].thread_id, messages=messages)

    async def dead_letters(self, *, limit: int, before_id: int | None) -> DeadLetters:
        """See ``HiveControl``."""
        newest_first = await self._broker.dead_letters(limit=limit, before_id=before_id)
        return DeadLetters(messages=newest_first[::-1])

    async def requeue_dead_letter(self, message_id: int) -> hive_broker.Message:
        """See ``HiveControl``."""
        return await self._broker.requeue_dead_letter(message_id)

    async def drop_dead_letter(self, message_id: int) -> hive_broker.Message:
        """See ``HiveControl``."""
        return await self._broker.drop_dead_letter(message_id)

    async def backup(self, path: Path | None) -> hive_broker.BackedUp:
        """See ``HiveControl``."""
        return await self._broker.backup(path or self.config.paths.backup_file(self._clock()))

    async def shutdown(self, *, graceful: bool) -> None:
        """See ``HiveControl``."""
        if graceful:
            self._shutdown.set()
        else:
            self.hasten()

    # --- inside

    @property
    def _agents(self) -> Supervisor:
        if self._supervisor is None:
            raise RequestRefused("the hive is still starting: try again")
        return self._supervisor

    @property
    def _background(self) -> trio.Nursery:
        if self._nursery is None:
            raise RequestRefused("the hive is still starting: try again")
        return self._nursery

    def attach(self, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        """Take over the agents, and the nursery for what the doors begin; called once by ``open_hive``."""
        self._supervisor = supervisor
        self._nursery = nursery
        if self._hastened:
            supervisor.hasten()

    def _inline(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of ``names`` that this hive can start and stop."""
        found = tuple(name for name in names if self.config.agents[name].runs is Runs.INLINE)
        if names and not found:
            who = "it runs" if len(names) == 1 else "they run"
            raise RequestRefused(f"{', '.join(names)}: {who} outside of the hive; start and stop hive-agent there")
        return found

    def attached(self, name: str, pid: int | None) -> None:
        """Note that the hive-agent of an agent that runs outside came (its pid) or went (None)."""
        self._outside[name] = pid
        if self._supervisor is not None:
            self.member_changed(self._supervisor.members[name])

    def _begin(self, name: str, change: Callable[[], Awaitable[None]]) -> None:
        """Begin to start or stop an agent; of what is asked meanwhile only the latest is done, after it (REL-4)."""
        if name in self._changes:
            self._changes[name] = change
        else:
            self._changes[name] = None
            self._background.start_soon(self._work_off, name, change)

    async def _work_off(self, name: str, change: Callable[[], Awaitable[None]] | None) -> None:
        try:
            while change is not None:
                await change()
                change, self._changes[name] = self._changes[name], None
        finally:
            del self._changes[name]

    async def _restart(self, name: str) -> None:
        await self._agents.stop(name, graceful=True)
        await self._agents.start(name)

    def member_changed(self, member: Member) -> None:
        """Pass on that an agent's state changed."""
        self._feed.publish(self._row(member))
        self.refresh_addresses()

    def addresses(self) -> StateFile:
        """What of this hive answers now, and where."""
        paths = self.config.paths
        return StateFile(
            pid=os.getpid(),
            hive=self.config.name,
            started_at=self.started_at,
            host_sock=str(paths.host_sock),
            agents={
                name: AgentAddresses(
                    mcp=member.agent.urls if member.agent is not None else {},
                    mcp_token_file=str(paths.token_file(name)) if member.agent is not None else None,
                    state_dir=str(paths.agent_state_dir(name)),
                    broker_sock=str(paths.broker_sock(name)),
                )
                for name, member in self._agents.members.items()
                if member.agent is not None or self.config.agents[name].runs is Runs.OUTSIDE
            },
        )

    def observe(self, name: str, event: hive_agent.AgentEvent) -> None:
        """Pass on an event of an agent's log."""
        if event.kind is not hive_agent.EventKind.STREAM and self._supervisor is not None:
            self._feed.publish(self._row(self._supervisor.members[name]))
        self.tell(AgentHappened(agent=name, event=event))

    async def count_reminders(self) -> None:
        """Look at how many reminders every agent has pending, and pass on where that is news."""
        try:
            before, self._reminders = self._reminders, await self._broker.reminder_counts()
        except (hive_broker.BrokerUnavailable, hive_broker.BrokerDamaged) as exc:
            _log.warning("the reminders could not be counted, so their number may be an old one", error=str(exc))
            return
        for name, member in self._supervisor.members.items() if self._supervisor is not None else ():
            if self._reminders.get(name, 0) != before.get(name, 0):
                self._feed.publish(self._row(member))

    def tell(self, happening: HiveEvent) -> None:
        """Hand a happening to whoever watches."""
        for watcher in tuple(self._watchers):
            try:
                watcher.send_nowait(happening)
            except (trio.WouldBlock, trio.BrokenResourceError):
                self._watchers.discard(watcher)
                watcher.close()

    def _row(self, member: Member) -> AgentStatusRow:
        snapshot = member.agent.snapshot() if member.agent is not None else None
        return AgentStatusRow(
            name=member.name,
            running=member.state is MemberState.RUNNING or self._outside.get(member.name) is not None,
            failed=member.state is MemberState.FAILED,
            needs_login=snapshot is not None and snapshot.parked is hive_agent.ParkReason.NEEDS_LOGIN,
            active_model=snapshot.model if snapshot else None,
            status_text=snapshot.status_text if snapshot else None,
            status_set_at=snapshot.status_set_at if snapshot else None,
            pending_reminders=self._reminders.get(member.name, 0),
        )

    def _detail(self, member: Member, unread: int) -> AgentDetail:
        snapshot = member.agent.snapshot() if member.agent is not None else None
        return AgentDetail(
            **attrs.asdict(self._row(member)),
            turn_state=snapshot.turn_state.value if snapshot else None,
            turn_state_since=snapshot.turn_state_since if snapshot else None,
            unread=unread,
            turns=snapshot.turns if snapshot else 0,
            last_outcome=snapshot.last_outcome.value if snapshot and snapshot.last_outcome else None,
            note=self._note_outside(member.name) or _note(member, snapshot),
        )

    def _note_outside(self, name: str) -> str | None:
        if self.config.agents[name].runs is Runs.INLINE:
            return None
        if (pid := self._outside.get(name)) is not None:
            return f"runs outside of the hive (hive-agent, pid {pid})"
        return f"runs outside of the hive, and is not there: start hive-agent on {self.config.paths.broker_sock(name)}"


@asynccontextmanager
async def open_hive(config: HiveConfig, *, clock: hive_agent.WallClock = time.time) -> AsyncIterator[Hive]:
    """Run a hive for as long as the block lasts (EMBED-1).

    When the block is entered, every agent waits for mail and every door answers. When it is left, by its end, an error
    or a cancellation of a surrounding scope, the doors close, running turns may end within their grace, and the broker
    closes last (STOP-2, STOP-3); ``Hive.hasten`` cuts that short. No signal handler is installed, nothing global is
    changed, log lines go to the standard library's loggers ``hive`` and ``hive_agent``.

    Args:
        config: the hive.
        clock: the hour.

    Raises:
        HiveError, hive_broker.BrokerError, hive_agent.AgentError: it cannot run, and the sentence says why: the state
            belongs to a live hive (``BrokerLocked``), a port is taken (``ListenerUnavailable``), there is no Claude CLI
            (``RuntimeUnavailable``), a folder cannot be written (``HiveUnavailable``). An error raised in the block
            leaves as it is; when several things fail at once, they leave as one exception group.
    """
    with one_error():
        for settings in config.agents.values():
            if settings.runs is Runs.INLINE:
                hive_agent.find_claude(settings.runtime.command)
        _make_folders(config)
        async with hive_broker.open_broker(
            config.paths.broker_db,
            owner=f"hive {config.name!r}",
            clock=clock,
            budgets=config.budgets,
            manager=config.manager,
        ) as broker:
            _remove_stale(config.paths.hive_json)
            await broker.set_agents(config.agents)
            hive = Hive(config, broker, clock)
            async with (
                _relayed_flow(broker, hive),
                hive_agent.open_kept_listener(config.paths.mcp_port_file, port=config.mcp_port) as listener,
                open_mailbox_doors(config, broker=broker, attached=hive.attached),
                open_supervisor(
                    config,
                    broker=broker,
                    listener=listener,
                    clock=clock,
                    changed=hive.member_changed,
                    observe=hive.observe,
                ) as supervisor,
                open_service_nursery() as doors,
            ):
                hive.attach(supervisor, doors)
                try:
                    await doors.start(serve_host_socket, config.paths.host_sock, hive)
                    with published(config.paths, hive.addresses) as hive.refresh_addresses:
                        doors.start_soon(_keep_addresses, hive)
                        yield hive
                finally:
                    hive.refresh_addresses = _nothing  # the file is gone and must not come back
                    doors.cancel_scope.cancel()


def _remove_stale(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        raise unavailable(path, exc) from exc


def _make_folders(config: HiveConfig) -> None:
    try:
        for folder in (config.state_dir, config.paths.run_dir, config.paths.tokens_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise HiveUnavailable(
            f"the state folder {config.state_dir} must be a folder this user can write, got: {exc.strerror}; "
            "correct state_dir in hive.toml, or the folder's owner and mode"
        ) from exc


@asynccontextmanager
async def _relayed_flow(broker: hive_broker.Broker, hive: Hive) -> AsyncIterator[None]:
    """Pass on what happens to mail, to the last: also what the agents' leaving does to it."""
    async with open_service_nursery() as nursery:
        await nursery.start(_relay_flow, broker, hive)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


async def _relay_flow(broker: hive_broker.Broker, hive: Hive, *, task_status: trio.TaskStatus[None]) -> None:
    ready = False
    while True:
        with broker.watch() as flow:
            await hive.count_reminders()
            if not ready:
                ready = True
                task_status.started()
            async for event in flow:
                hive.tell(event)
                if isinstance(event, hive_broker.RecordsChanged) and event.kind is hive_broker.RecordKind.REMINDERS:
                    await hive.count_reminders()
        _log.warning("lost sight of some mail while showing it; the mail itself is not touched")


async def _keep_addresses(hive: Hive) -> None:
    while True:
        await trio.sleep(_LOOK_SECONDS)
        if not hive.config.paths.hive_json.exists():
            hive.refresh_addresses()


def _nothing() -> None:
    pass


def _note(member: Member, snapshot: hive_agent.AgentSnapshot | None) -> str | None:
    if member.crash is not None:
        return member.crash
    if snapshot is None or snapshot.parked is None:
        return None
    return snapshot.last_failure or snapshot.parked.value.replace("_", " ")
