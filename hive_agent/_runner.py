"""The turn loop: performs what the machine decides, and feeds back what happened (TURN-2..6, STOP-1..3).

Owns the tasks of one agent's turns: the wait for work, the run under way, the clocks. Decides nothing itself; the table
in ``_turn`` does.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, final

import attrs
import trio

from hive_broker import BrokerDamaged, BrokerError, BrokerUnavailable, InboxSummary, TurnLease, get_logger

from . import _turn as turn
from ._config import AgentConfig
from ._events import EventKind, EventLog
from ._ports import Mailbox, WallClock
from ._prompt import wake_prompt
from ._runtime import Run, RunLine, RunNote, RunReport, RunRequest, RunStarted, Runtime

__all__ = ["AgentNotice", "TurnLoop"]

ESCALATE_SECONDS = 5.0
"""Between one signal and the next harder one; the CLI was measured to leave within 0.05 s of the first."""

MAILBOX_RETRY_MAX_SECONDS = 30.0
"""How long an agent waits at most before it asks again for a mailbox that does not answer."""

CLOSE_WHILE_STOPPING_SECONDS = 15.0
"""How long an agent that is to leave tries to store the end of its turn, before the last write."""

LAST_WRITE_SECONDS = 5.0
"""What a cancelled agent may take to give back what it had popped."""


@attrs.frozen(kw_only=True)
class AgentNotice:
    """Something the operator should know although nobody asked (TURN-5).

    Attributes:
        reason: why the agent does not go on by itself for now.
        text: in words, with what to do.
    """

    reason: turn.ParkReason
    text: str


@final
class TurnLoop:
    """One agent's turns.

    Args:
        config: the agent.
        mailbox: its mail.
        runtime: what runs a turn.
        events: its log.
        clock: the hour.
        request: makes the run of a turn from its prompt and the turn's id.
        notify: told once when the agent parks.
        unshown: gives the ids of rows that a turn popped and its model was not shown anything of.

    Attributes:
        turns: how many have ended since it was made.
        last_outcome: of the last one, None before the first.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        mailbox: Mailbox,
        runtime: Runtime,
        events: EventLog,
        clock: WallClock,
        request: Callable[[str, int], RunRequest],
        notify: Callable[[AgentNotice], object],
        unshown: Callable[[int], Collection[int]] = lambda _: (),
    ) -> None:
        self._config = config
        self._mailbox = mailbox
        self._runtime = runtime
        self._events = events
        self._clock = clock
        self._request = request
        self._notify = notify
        self._unshown = unshown
        self._machine = turn.Machine(rate_limit_sleep_seconds=config.rate_limit_sleep_seconds)
        self._inlet, self._outlet = trio.open_memory_channel[turn.Event](64)
        self._clocks = _Watchdogs(
            {
                turn.Watchdog.SILENCE: config.turn_silence_seconds,
                turn.Watchdog.TOTAL: config.turn_total_seconds,
                turn.Watchdog.POST_RESULT: config.post_result_seconds,
                turn.Watchdog.ESCALATE: ESCALATE_SECONDS,
                turn.Watchdog.STOP_GRACE: config.grace_seconds,
            }
        )
        self._stop_wanted = trio.Event()
        self._haste_wanted = trio.Event()
        self._stopped = trio.Event()
        self._park: trio.CancelScope | None = None
        self._lease: TurnLease | None = None
        self._run: Run | None = None
        self._signal: turn.Signal | None = None
        self._report: RunReport | None = None
        self._state_since = clock()
        self._retry_at: float | None = None
        self._lost_turn: str | None = None
        self.turns = 0
        self.last_outcome: turn.Outcome | None = None
        self._log = get_logger("hive_agent.turns").bind(agent=config.name)

    @property
    def machine(self) -> turn.Machine:
        """What the machine says now."""
        return self._machine

    @property
    def state_since(self) -> float:
        """Unix seconds since when ``turn_state`` is what it is (BUS-2)."""
        return self._state_since

    @property
    def retry_at(self) -> float | None:
        """While parked: unix seconds of the next try."""
        return self._retry_at if self._machine.parked is not None else None

    @property
    def turn_id(self) -> int | None:
        """The turn whose lease is open."""
        return self._lease.id if self._lease is not None else None

    @property
    def lost_turn(self) -> str | None:
        """How the last turn ended when it did not end well, in words."""
        return self._lost_turn

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested: the inbox is fenced from here on (STOP-1)."""
        return self._stop_wanted.is_set()

    def request_stop(self) -> None:
        """Fence the inbox, let a running turn end within the grace, then leave (STOP-1, STOP-2)."""
        self._stop_wanted.set()

    def hasten(self) -> None:
        """Leave now: a running turn is interrupted and its rows go back (STOP-3)."""
        self._stop_wanted.set()
        self._haste_wanted.set()

    def retry_now(self) -> None:
        """End a park early: somebody says that its reason is gone."""
        if self._park is not None:
            self._park.cancel()

    async def wait_stopped(self) -> None:
        """Return once the agent has left."""
        await self._stopped.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Live until a stop is done.

        When cancelled instead, the running turn is killed and what it had popped goes back to the inbox.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._clocks.run, self._post_watchdog)
                nursery.start_soon(self._relay, self._stop_wanted, turn.StopRequested())
                nursery.start_soon(self._relay, self._haste_wanted, turn.Hastened())
                self._perform(turn.WaitForWork(), nursery)
                task_status.started()
                while self._machine.phase is not turn.Phase.STOPPED:
                    self._handle(await self._outlet.receive(), nursery)
                nursery.cancel_scope.cancel()
        finally:
            await self._give_back()  # noqa: ASYNC102 - shielded and bounded there
            self._stopped.set()

    # --- the machine

    def _handle(self, event: turn.Event, nursery: trio.Nursery) -> None:
        before = self._machine.phase.turn_state
        self._machine, effects = turn.step(self._machine, event)
        after = self._machine.phase.turn_state
        if after is not before:
            self._state_since = self._clock()
            self._events.append(EventKind.TURN_STATE_CHANGED, {"turn_state": after.value}, turn_id=self.turn_id)
        for effect in effects:
            self._perform(effect, nursery)

    def _perform(self, effect: turn.Effect, nursery: trio.Nursery) -> None:
        match effect:
            case turn.WaitForWork():
                nursery.start_soon(self._wait_for_work)
            case turn.Park():
                nursery.start_soon(self._sleep_parked, effect)
            case turn.StartTurn():
                nursery.start_soon(self._turn)
            case turn.EndTurn():
                self._clocks.clear()
                nursery.start_soon(self._end_turn, effect)
            case turn.Arm(watchdog=watchdog):
                self._clocks.arm(watchdog)
            case turn.Disarm(watchdog=watchdog):
                self._clocks.disarm(watchdog)
            case turn.SendSignal(signal=signal):
                self._signal = signal
                self._events.append(
                    EventKind.NOTE, {"text": f"told the runtime to end ({signal.value})"}, turn_id=self.turn_id
                )
                if self._run is not None:
                    self._run.signal(signal)
            case turn.Finish():
                self._log.info("the agent leaves")

    async def _post(self, event: turn.Event) -> None:
        await self._inlet.send(event)

    async def _post_watchdog(self, watchdog: turn.Watchdog) -> None:
        self._note(_WATCHDOG_WORDS[watchdog])
        await self._post(turn.WatchdogFired(watchdog))

    async def _relay(self, wanted: trio.Event, event: turn.Event) -> None:
        await wanted.wait()
        await self._post(event)

    # --- between turns

    async def _wait_for_work(self) -> None:
        pause = 1.0
        while True:
            try:
                await self._mailbox.wait_unread()
                if (await self._mailbox.summary()).unread:
                    break
            except (BrokerUnavailable, BrokerDamaged) as exc:
                self._log.warning("the mailbox does not answer; asking again", error=str(exc), pause_seconds=pause)
                await trio.sleep(pause)
                pause = min(pause * 2, MAILBOX_RETRY_MAX_SECONDS)
        await self._post(turn.Woken())

    async def _sleep_parked(self, park: turn.Park) -> None:
        self._retry_at = self._clock() + park.retry_in_seconds
        text = _park_text(self._config.name, park, self._lost_turn)
        self._note(text)
        if park.tell:
            self._notify(AgentNotice(reason=park.reason, text=text))
        with trio.CancelScope() as scope:
            self._park = scope
            await trio.sleep(park.retry_in_seconds)
        self._park = None
        self._retry_at = None
        await self._post(turn.RetryDue())

    # --- a turn

    async def _turn(self) -> None:
        self._report = None
        self._signal = None
        try:
            summary = await self._mailbox.summary()
            self._lease = await self._mailbox.open_turn(cause=_cause(summary))
        except BrokerError as exc:
            self._report = RunReport(outcome=turn.Outcome.FAILED, detail=f"the turn could not be opened: {exc}")
        else:
            self._report = await self._run_turn(summary, self._lease)
        reset_at = self._report.reset_at
        wait = None if reset_at is None else reset_at - self._clock()
        await self._post(turn.Exited(outcome=self._report.outcome, retry_after_seconds=wait))

    async def _run_turn(self, summary: InboxSummary, lease: TurnLease) -> RunReport:
        self._events.append(
            EventKind.TURN_START, {"cause": _cause(summary), "unread": summary.unread}, turn_id=lease.id
        )
        try:
            request = self._request(wake_prompt(summary, lost_turn=self._lost_turn), lease.id)
        except OSError as exc:
            return RunReport(outcome=turn.Outcome.FAILED, detail=f"the turn could not be prepared: {exc}")
        started = False
        async with self._runtime.open_run(request) as run:
            self._run = run
            if self._signal is not None:
                run.signal(self._signal)
            try:
                while (item := await run.next()) is not None:
                    match item:
                        case RunStarted() if not started:
                            started = True
                            await self._post(turn.Started())
                        case RunStarted(pid=pid):
                            self._note(f"the runtime was started again (pid {pid})")
                        case RunLine():
                            self._events.append(EventKind.STREAM, item.data, turn_id=lease.id)
                            await self._post(turn.ResultSeen() if item.result else turn.OutputSeen())
                        case RunNote(text=text):
                            self._note(text)
            finally:
                self._run = None
            return run.report

    async def _end_turn(self, effect: turn.EndTurn) -> None:
        report = self._report or RunReport(outcome=effect.outcome, detail="")
        ended_well = effect.outcome is turn.Outcome.DONE
        self.turns += 1
        self.last_outcome = effect.outcome
        self._lost_turn = None if ended_well else f"{effect.outcome.value}: {report.detail}".rstrip(": ")
        verdict = {"outcome": effect.outcome.value, "detail": report.detail, "exit_code": report.exit_code}
        ignored = False
        if (lease := self._lease) is not None:
            acked = effect.acked
            if acked and (unshown := self._unshown(lease.id)):
                # An answer was lost on its way: nobody has read these, so they must come again (MSG-5).
                self._note(f"the turn ended well, but its model never saw {len(unshown)} message(s) it had asked for")
                acked = False
            record = {**verdict, **report.statistics}
            popped = await self._close(lease, acked=acked, blameless=effect.blameless, record=record)
            self._lease = None
            ignored = ended_well and not popped and await self._has_unread()
            self._events.append(EventKind.TURN_END, {**verdict, "statistics": report.statistics}, turn_id=lease.id)
            self._events.prune()
        self._log.info("turn ended", turn=lease.id if lease else None, **verdict)
        await self._post(turn.Closed(mail_ignored=ignored))

    async def _close(self, lease: TurnLease, *, acked: bool, blameless: bool, record: Mapping[str, Any]) -> bool:
        """Store the turn's end, trying for as long as it takes; an agent that is to leave gives up in the end."""
        popped = False
        with trio.CancelScope() as trying:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._limit_closing, trying)
                popped = await self._store_end(lease, acked=acked, blameless=blameless, record=record)
                nursery.cancel_scope.cancel()
        if trying.cancelled_caught:
            self._note(f"leaving although the end of turn {lease.id} is not stored; the next start gives its mail back")
        return popped

    async def _limit_closing(self, trying: trio.CancelScope) -> None:
        await self._stop_wanted.wait()
        with trio.move_on_after(CLOSE_WHILE_STOPPING_SECONDS):
            await self._haste_wanted.wait()
        await trio.sleep(LAST_WRITE_SECONDS)
        trying.cancel()

    async def _store_end(self, lease: TurnLease, *, acked: bool, blameless: bool, record: Mapping[str, Any]) -> bool:
        pause = 0.5
        while True:
            try:
                closed = await self._mailbox.close_turn(lease.id, acked=acked, blameless=blameless, record=record)
            except (BrokerUnavailable, BrokerDamaged) as exc:
                # The rows stay in flight until this is written down; trying on is all that is right.
                self._note(f"the end of turn {lease.id} could not be stored, trying again: {exc}")
                await trio.sleep(pause)
                pause = min(pause * 2, MAILBOX_RETRY_MAX_SECONDS)
            else:
                return bool(closed.acked or closed.returned or closed.dead)

    async def _has_unread(self) -> bool:
        try:
            return (await self._mailbox.summary()).unread > 0
        except (BrokerUnavailable, BrokerDamaged):
            return False  # the wait for work meets the same trouble and says so

    async def _give_back(self) -> None:
        if (lease := self._lease) is None:
            return
        self._lease = None
        with trio.move_on_after(LAST_WRITE_SECONDS, shield=True) as scope, contextlib.suppress(BrokerError):
            # What cannot be given back now is given back by the broker's next start.
            record = {"outcome": turn.Outcome.INTERRUPTED.value, "detail": "the agent was cancelled"}
            await self._mailbox.close_turn(lease.id, acked=False, blameless=True, record=record)
        if scope.cancelled_caught:
            self._log.warning("gave up waiting for the mailbox", turn=lease.id)

    def _note(self, text: str) -> None:
        self._events.append(EventKind.NOTE, {"text": text}, turn_id=self.turn_id)


@final
class _Watchdogs:
    """The clocks of a turn, kept by one task."""

    def __init__(self, lengths: Mapping[turn.Watchdog, float]) -> None:
        self._lengths = lengths
        self._due: dict[turn.Watchdog, float] = {}
        self._changed = trio.Event()

    def arm(self, watchdog: turn.Watchdog) -> None:
        fresh = watchdog not in self._due
        self._due[watchdog] = trio.current_time() + self._lengths[watchdog]
        if fresh:
            # Re-arming only moves a clock on; the task finds that when it wakes.
            self._changed.set()

    def disarm(self, watchdog: turn.Watchdog) -> None:
        self._due.pop(watchdog, None)

    def clear(self) -> None:
        self._due.clear()

    async def run(self, fire: Callable[[turn.Watchdog], Any]) -> None:
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(min(self._due.values(), default=math.inf)):
                await self._changed.wait()
            now = trio.current_time()
            for watchdog in [watchdog for watchdog, at in self._due.items() if at <= now]:
                del self._due[watchdog]
                await fire(watchdog)


def _cause(summary: InboxSummary) -> str:
    return "mail from " + ", ".join(sender for sender, _ in summary.senders[:5]) if summary.senders else "mail"


_WATCHDOG_WORDS = {
    turn.Watchdog.SILENCE: "the runtime has been silent for too long",
    turn.Watchdog.TOTAL: "the turn has taken too long",
    turn.Watchdog.POST_RESULT: "the runtime has given its result and does not leave",
    turn.Watchdog.ESCALATE: "the runtime does not heed the signal",
    turn.Watchdog.STOP_GRACE: "the time a running turn may take after a stop was asked for is over",
}

_PARK_WORDS = {
    turn.ParkReason.NEEDS_LOGIN: (
        "{name} cannot log in to the model's service and waits. Stop the hive, give it credentials that work "
        "(ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, in its environment or in env of [runtime] in hive.toml), and "
        "start it again"
    ),
    turn.ParkReason.RATE_LIMITED: "{name} has hit a rate limit and goes on by itself",
    turn.ParkReason.BACKOFF: "{name}'s turns fail; it tries again ever more slowly",
    turn.ParkReason.MAIL_IGNORED: "{name} ends its turns without reading its mail; it is woken ever more slowly",
}


def _park_text(name: str, park: turn.Park, lost_turn: str | None) -> str:
    words = _PARK_WORDS[park.reason].format(name=name)
    said = f" ({lost_turn})" if lost_turn else ""
    return f"{words}{said}; next try in {park.retry_in_seconds:.0f} s"
