"""The turn machine: one table of what an agent does next, and nothing else.

Owns the states, events, effects and rules of TURN-1, TURN-5, TURN-6 and STOP-1..3. It knows no time, storage, tool
server or process: ``step`` takes a state and an event and gives the next state and the effects that the runner
performs, in order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import attrs

__all__ = [
    "TABLE",
    "Effect",
    "Event",
    "IllegalEvent",
    "Machine",
    "Outcome",
    "ParkReason",
    "Phase",
    "Signal",
    "TurnState",
    "Watchdog",
    "step",
]


class TurnState(enum.Enum):
    """What pages and clients are shown (TURN-1, BUS-2)."""

    IDLE = "idle"
    THINKING = "thinking"


class Phase(enum.Enum):
    """Where a turn is. All but ``IDLE`` and ``STOPPED`` are ``TurnState.THINKING``."""

    IDLE = "idle"
    """Waiting for work, or parked."""
    STARTING = "starting"
    """The runtime has been asked for; its process may not exist yet."""
    RUNNING = "running"
    """The process works."""
    RESULT_SEEN = "result_seen"
    """The result has come; the process has yet to exit."""
    INTERRUPTING = "interrupting"
    """Asked to end by itself (SIGINT)."""
    TERMINATING = "terminating"
    """Told to end (SIGTERM)."""
    KILLING = "killing"
    """Its process group was killed; only the reaping is left."""
    CLOSING = "closing"
    """The process is gone; what the turn popped is being acked or given back."""
    STOPPED = "stopped"
    """Final: the agent has left."""

    @property
    def turn_state(self) -> TurnState:
        """The public word for this phase."""
        return TurnState.IDLE if self in (Phase.IDLE, Phase.STOPPED) else TurnState.THINKING


class Outcome(enum.Enum):
    """How a turn ended (TURN-5)."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    NEEDS_LOGIN = "needs_login"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    PROMPT_TOO_LONG = "prompt_too_long"
    REFUSED = "refused"
    STALLED = "stalled"
    CRASHED = "crashed"
    FAILED = "failed"


class ParkReason(enum.Enum):
    """Why no turn starts although there may be mail."""

    NEEDS_LOGIN = "needs_login"
    RATE_LIMITED = "rate_limited"
    BACKOFF = "backoff"
    """The last turn failed; the next try waits."""
    MAIL_IGNORED = "mail_ignored"
    """The last turn ended well and left its mail unread; starting the next at once would loop hot."""


class Watchdog(enum.Enum):
    """The clocks that can run out during a turn (TURN-6). Their lengths are the runner's."""

    SILENCE = "silence"
    TOTAL = "total"
    POST_RESULT = "post_result"
    ESCALATE = "escalate"
    """A signal was sent; the next harder one is due."""
    STOP_GRACE = "stop_grace"


class Signal(enum.Enum):
    """How the process group is spoken to, softest first."""

    INTERRUPT = "interrupt"
    TERMINATE = "terminate"
    KILL = "kill"


# --- events


@attrs.frozen
class Woken:
    """There is work: an unread row. Sent again for as long as it is there (TURN-2)."""


@attrs.frozen
class RetryDue:
    """The park's time is over, or somebody said to try again."""


@attrs.frozen
class Started:
    """The runtime's process exists."""


@attrs.frozen
class OutputSeen:
    """The process printed something: it is alive."""


@attrs.frozen
class ResultSeen:
    """The runtime reported the turn's result."""


@attrs.frozen(kw_only=True)
class Exited:
    """The process is gone and reaped, or never came to be.

    Attributes:
        outcome: as classified from what it printed and how it left; DONE only when the turn ended well.
        retry_after_seconds: for RATE_LIMITED, when the model's service said to come back.
    """

    outcome: Outcome
    retry_after_seconds: float | None = None


@attrs.frozen(kw_only=True)
class Closed:
    """The turn's lease is closed.

    Attributes:
        mail_ignored: the turn popped nothing although there was mail to read.
    """

    mail_ignored: bool


@attrs.frozen
class WatchdogFired:
    """A clock ran out."""

    watchdog: Watchdog


@attrs.frozen
class StopRequested:
    """Leave gracefully (STOP-1)."""


@attrs.frozen
class Hastened:
    """Leave now: a second signal, or no grace left (STOP-3)."""


Event = (
    Woken | RetryDue | Started | OutputSeen | ResultSeen | Exited | Closed | WatchdogFired | StopRequested | Hastened
)
"""All there are: what can be said to the machine."""

# --- effects


@attrs.frozen
class WaitForWork:
    """Send ``Woken`` when there is an unread row, at once if there is one already."""


@attrs.frozen(kw_only=True)
class Park:
    """Start no turn; send ``RetryDue`` after ``retry_in_seconds``.

    Attributes:
        reason: shown to the operator.
        retry_in_seconds: from now.
        tell: True when the operator has not been told of this streak yet (TURN-5: one notice).
    """

    reason: ParkReason
    retry_in_seconds: float
    tell: bool


@attrs.frozen
class StartTurn:
    """Open the turn's lease and start the runtime; answer with ``Started`` or ``Exited``."""


@attrs.frozen(kw_only=True)
class EndTurn:
    """Close the turn's lease: ack what it popped, or give it back (MSG-5); answer with ``Closed``.

    Attributes:
        outcome: how the turn ended.
        acked: it ended well.
        blameless: it failed over nothing it had read, so the attempt does not count against that (MSG-6).
    """

    outcome: Outcome
    acked: bool
    blameless: bool


@attrs.frozen
class Arm:
    """(Re)start a watchdog."""

    watchdog: Watchdog


@attrs.frozen
class Disarm:
    """Stop a watchdog."""

    watchdog: Watchdog


@attrs.frozen
class SendSignal:
    """Signal the runtime's process group."""

    signal: Signal


@attrs.frozen
class Finish:
    """The agent may leave: nothing of it runs any more."""


Effect = WaitForWork | Park | StartTurn | EndTurn | Arm | Disarm | SendSignal | Finish
"""All there are: what the machine can ask for."""

# --- state

BACKOFF_FIRST_SECONDS = 2.0
"""After one failed turn: long enough that a crash at start does not spin, short enough to go unnoticed."""

BACKOFF_MAX_SECONDS = 300.0
"""After many: a broken agent costs one process every five minutes."""

LOGIN_RETRY_SECONDS = 600.0
"""How often a parked agent looks whether somebody has logged it in."""


@attrs.frozen(kw_only=True)
class Machine:
    """The machine's whole state.

    Attributes:
        phase: where the turn is.
        parked: why no turn starts, or None.
        stopping: a stop was requested; no further turn starts.
        forced: the outcome that a watchdog or a stop has already decided, whatever the process says on its way out.
        ending: while CLOSING, how the turn ended.
        failures: turns in a row that did not end well or ignored their mail; the backoff grows with it.
        told: the reason the operator has been told of in this row of failures.
        rate_limit_sleep_seconds: how long to sleep when a rate limit names no time.
    """

    phase: Phase = Phase.IDLE
    parked: ParkReason | None = None
    stopping: bool = False
    forced: Outcome | None = None
    ending: Exited | None = None
    failures: int = 0
    told: ParkReason | None = None
    rate_limit_sleep_seconds: float = 300.0


class IllegalEvent(Exception):
    """The table has no row for this event in this phase: the state is unchanged. Ours; please report it (TURN-1)."""


Move = tuple[Machine, tuple[Effect, ...]]
Rule = Callable[[Machine, Any], Move]

# --- rules


def _to(machine: Machine, phase: Phase, *effects: Effect, **changes: Any) -> Move:
    return attrs.evolve(machine, phase=phase, **changes), effects


def _stay(machine: Machine, _event: Event) -> Move:
    return machine, ()


def _begin(machine: Machine, _event: Woken) -> Move:
    if machine.parked is not None or machine.stopping:
        return machine, ()
    return _to(machine, Phase.STARTING, StartTurn(), forced=None)


def _unpark(machine: Machine, _event: RetryDue) -> Move:
    return _to(machine, Phase.IDLE, WaitForWork(), parked=None)


def _leave_idle(machine: Machine, _event: Event) -> Move:
    return _to(machine, Phase.STOPPED, Finish(), stopping=True)


def _started(machine: Machine, _event: Started) -> Move:
    return _to(machine, Phase.RUNNING, Arm(Watchdog.TOTAL), Arm(Watchdog.SILENCE))


def _alive(machine: Machine, _event: OutputSeen) -> Move:
    return machine, (Arm(Watchdog.SILENCE),)


def _result(machine: Machine, _event: ResultSeen) -> Move:
    return _to(machine, Phase.RESULT_SEEN, Disarm(Watchdog.SILENCE), Arm(Watchdog.POST_RESULT))


def _interrupt(outcome: Outcome) -> Rule:
    def rule(machine: Machine, _event: Event) -> Move:
        return _to(
            machine,
            Phase.INTERRUPTING,
            SendSignal(Signal.INTERRUPT),
            Arm(Watchdog.ESCALATE),
            forced=machine.forced or outcome,
        )

    return rule


def _watchdog_in_run(machine: Machine, event: WatchdogFired) -> Move:
    stop = event.watchdog is Watchdog.STOP_GRACE
    return _interrupt(Outcome.INTERRUPTED if stop else Outcome.STALLED)(machine, event)


def _terminate(machine: Machine, _event: Event) -> Move:
    return _to(machine, Phase.TERMINATING, SendSignal(Signal.TERMINATE), Arm(Watchdog.ESCALATE))


def _kill(machine: Machine, _event: Event) -> Move:
    return _to(machine, Phase.KILLING, SendSignal(Signal.KILL))


def _leaving(rule: Rule) -> Rule:
    """Whatever the rule does, for an agent that is to leave."""
    return lambda machine, event: rule(attrs.evolve(machine, stopping=True), event)


def _stop_in_turn(machine: Machine, _event: StopRequested) -> Move:
    if machine.stopping:
        return machine, ()
    return attrs.evolve(machine, stopping=True), (Arm(Watchdog.STOP_GRACE),)


_BLAMELESS = frozenset({Outcome.NEEDS_LOGIN, Outcome.RATE_LIMITED, Outcome.OVERLOADED, Outcome.INTERRUPTED})
"""What no message can bring about: a night of rate limits must not make dead letters of the mail."""


def _ended(machine: Machine, event: Exited) -> Move:
    done = event.outcome is Outcome.DONE
    outcome = event.outcome if done else (machine.forced or event.outcome)
    ending = attrs.evolve(event, outcome=outcome)
    end = EndTurn(outcome=outcome, acked=done, blameless=outcome in _BLAMELESS)
    return _to(machine, Phase.CLOSING, end, forced=None, ending=ending)


def _closed(machine: Machine, event: Closed) -> Move:
    if machine.stopping:
        return _to(machine, Phase.STOPPED, Finish(), ending=None)
    pause = _pause_after(machine, event)
    if pause is None:
        return _to(machine, Phase.IDLE, WaitForWork(), ending=None, failures=0, told=None)
    reason, seconds = pause
    tell = machine.told is not reason and machine.failures >= _TELL_AFTER.get(reason, 0)
    return _to(
        machine,
        Phase.IDLE,
        Park(reason=reason, retry_in_seconds=seconds, tell=tell),
        ending=None,
        parked=reason,
        failures=machine.failures + 1,
        told=reason if tell else machine.told,
    )


_TELL_AFTER = {ParkReason.BACKOFF: 2, ParkReason.MAIL_IGNORED: 3}
"""Failures before this one that are borne in silence: most pass by themselves. The other reasons are told at once."""


def _pause_after(machine: Machine, event: Closed) -> tuple[ParkReason, float] | None:
    """Why and how long to wait before the next turn; None to go on. No outcome loops hot (TURN-5)."""
    backoff = min(BACKOFF_FIRST_SECONDS * 2 ** min(machine.failures, 16), BACKOFF_MAX_SECONDS)
    ending = machine.ending or Exited(outcome=Outcome.FAILED)
    match ending.outcome:
        case Outcome.DONE:
            return (ParkReason.MAIL_IGNORED, backoff) if event.mail_ignored else None
        case Outcome.NEEDS_LOGIN:
            return ParkReason.NEEDS_LOGIN, LOGIN_RETRY_SECONDS
        case Outcome.RATE_LIMITED:
            named = ending.retry_after_seconds
            return ParkReason.RATE_LIMITED, max(machine.rate_limit_sleep_seconds if named is None else named, 1.0)
        case _:
            return ParkReason.BACKOFF, backoff


_ENDING = (Phase.INTERRUPTING, Phase.TERMINATING, Phase.KILLING)
_IN_TURN = (Phase.STARTING, Phase.RUNNING, Phase.RESULT_SEEN, *_ENDING)


def _build_table() -> dict[tuple[Phase, type[Any]], Rule]:
    table: dict[tuple[Phase, type[Any]], Rule] = {
        (Phase.IDLE, Woken): _begin,
        (Phase.IDLE, RetryDue): _unpark,
        (Phase.IDLE, StopRequested): _leave_idle,
        (Phase.IDLE, Hastened): _leave_idle,
        (Phase.IDLE, WatchdogFired): _stay,
        (Phase.STARTING, Started): _started,
        (Phase.STARTING, WatchdogFired): _watchdog_in_run,
        (Phase.STARTING, Hastened): _leaving(_interrupt(Outcome.INTERRUPTED)),
        (Phase.RUNNING, OutputSeen): _alive,
        (Phase.RUNNING, ResultSeen): _result,
        (Phase.RUNNING, WatchdogFired): _watchdog_in_run,
        (Phase.RUNNING, Hastened): _leaving(_interrupt(Outcome.INTERRUPTED)),
        (Phase.RESULT_SEEN, OutputSeen): _stay,
        (Phase.RESULT_SEEN, ResultSeen): _stay,
        # The result stands: a process that lingers after it is ended, and the turn keeps its own outcome (TURN-6).
        (Phase.RESULT_SEEN, WatchdogFired): _terminate,
        (Phase.RESULT_SEEN, Hastened): _leaving(_terminate),
        (Phase.INTERRUPTING, WatchdogFired): _terminate,
        (Phase.INTERRUPTING, Hastened): _leaving(_kill),
        (Phase.TERMINATING, WatchdogFired): _kill,
        (Phase.TERMINATING, Hastened): _leaving(_kill),
        (Phase.KILLING, WatchdogFired): _stay,
        (Phase.KILLING, Hastened): _leaving(_stay),
        (Phase.CLOSING, Closed): _closed,
        (Phase.CLOSING, WatchdogFired): _stay,
        (Phase.CLOSING, StopRequested): _leaving(_stay),
        (Phase.CLOSING, Hastened): _leaving(_stay),
        # What was already on its way when the agent left.
        (Phase.STOPPED, Woken): _stay,
        (Phase.STOPPED, RetryDue): _stay,
        (Phase.STOPPED, WatchdogFired): _stay,
        (Phase.STOPPED, StopRequested): _stay,
        (Phase.STOPPED, Hastened): _stay,
    }
    for phase in _IN_TURN:
        table[phase, Exited] = _ended
        table[phase, StopRequested] = _stop_in_turn
    for phase in _ENDING:
        # It still prints while it leaves; a start may have been under way when the signal came.
        for event in (Started, OutputSeen, ResultSeen):
            table[phase, event] = _stay
    return table


TABLE: Mapping[tuple[Phase, type[Any]], Rule] = _build_table()
"""Every legal pair of phase and event; any other pair is ``IllegalEvent``."""


def step(machine: Machine, event: Event) -> Move:
    """Give the next state and the effects to perform, in order.

    Raises:
        IllegalEvent: the table has no such row; nothing changes (TURN-1).
    """
    rule = TABLE.get((machine.phase, type(event)))
    if rule is None:
        raise IllegalEvent(f"phase {machine.phase.value!r} takes no {type(event).__name__}: please report this")
    return rule(machine, event)
