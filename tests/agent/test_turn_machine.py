"""The turn machine against its promises: the whole grid, and random lives (TURN-1, TURN-5, TURN-6, STOP-1..3)."""

from __future__ import annotations

import itertools
import typing

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive_agent import _turn as turn
from hive_agent._turn import Machine, Outcome, ParkReason, Phase, Signal, Watchdog, step

EVENT_TYPES = typing.get_args(turn.Event)


def samples(kind: type) -> list[turn.Event]:
    """Every event of one type that the rules can tell apart."""
    if kind is turn.Exited:
        return [turn.Exited(outcome=outcome) for outcome in Outcome]
    if kind is turn.Closed:
        return [turn.Closed(mail_ignored=ignored) for ignored in (False, True)]
    if kind is turn.WatchdogFired:
        return [turn.WatchdogFired(watchdog) for watchdog in Watchdog]
    return [kind()]


def in_phase(phase: Phase, **changes: object) -> Machine:
    machine = Machine(phase=phase, **changes)
    if phase is Phase.CLOSING and machine.ending is None:
        machine = attrs.evolve(machine, ending=turn.Exited(outcome=Outcome.DONE))
    return machine


@pytest.mark.parametrize(("phase", "kind"), list(itertools.product(Phase, EVENT_TYPES)), ids=str)
def test_every_pair_of_phase_and_event_is_a_rule_or_an_error_that_changes_nothing(phase: Phase, kind: type) -> None:
    """TURN-1."""
    for event in samples(kind):
        machine = in_phase(phase)
        if (phase, kind) in turn.TABLE:
            after, effects = step(machine, event)
            assert isinstance(after, Machine)
            assert all(isinstance(effect, typing.get_args(turn.Effect)) for effect in effects)
        else:
            with pytest.raises(turn.IllegalEvent, match=phase.value):
                step(machine, event)


def test_what_only_a_bug_could_bring_is_illegal() -> None:
    """TURN-1: a turn cannot start within a turn, a process cannot exit twice."""
    for phase, event in [
        (Phase.RUNNING, turn.Woken()),
        (Phase.RUNNING, turn.Started()),
        (Phase.CLOSING, turn.Exited(outcome=Outcome.DONE)),
        (Phase.IDLE, turn.Closed(mail_ignored=False)),
        (Phase.STOPPED, turn.Exited(outcome=Outcome.DONE)),
    ]:
        with pytest.raises(turn.IllegalEvent):
            step(in_phase(phase), event)


def test_a_good_turn_from_wake_to_rest() -> None:
    """TURN-2, MSG-5: the shortest whole story."""
    machine = Machine()
    machine, effects = step(machine, turn.Woken())
    assert effects == (turn.StartTurn(),)
    assert machine.phase.turn_state is turn.TurnState.THINKING
    machine, effects = step(machine, turn.Started())
    assert turn.Arm(Watchdog.SILENCE) in effects
    assert turn.Arm(Watchdog.TOTAL) in effects
    machine, effects = step(machine, turn.OutputSeen())
    assert effects == (turn.Arm(Watchdog.SILENCE),)
    machine, effects = step(machine, turn.ResultSeen())
    assert effects == (turn.Disarm(Watchdog.SILENCE), turn.Arm(Watchdog.POST_RESULT))
    machine, effects = step(machine, turn.Exited(outcome=Outcome.DONE))
    assert effects == (turn.EndTurn(outcome=Outcome.DONE, acked=True, blameless=False),)
    machine, effects = step(machine, turn.Closed(mail_ignored=False))
    assert effects == (turn.WaitForWork(),)
    assert machine == Machine()


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.DONE], ids=str)
def test_only_a_turn_that_ended_well_acks_its_mail(outcome: Outcome) -> None:
    """MSG-5, TURN-5."""
    machine, effects = step(in_phase(Phase.RUNNING), turn.Exited(outcome=outcome))
    (end,) = effects
    assert (end.outcome, end.acked) == (outcome, False)
    machine, effects = step(machine, turn.Closed(mail_ignored=False))
    assert isinstance(effects[0], turn.Park), "no outcome starts the next turn at once"
    assert machine.parked is effects[0].reason


def test_failures_in_a_row_wait_ever_longer_and_are_told_once() -> None:
    """TURN-5: backoff, one notice, park; known as "hundreds of retries" (paperclip#6499)."""
    machine = Machine()
    pauses, told = [], []
    for _ in range(40):
        machine, pause = fail_once(machine, Outcome.CRASHED)
        pauses.append(pause.retry_in_seconds)
        told.append(pause.tell)
    assert pauses[:4] == [2, 4, 8, 16]
    assert pauses == sorted(pauses)
    assert pauses[-1] == turn.BACKOFF_MAX_SECONDS
    assert told.count(True) == 1


def test_a_good_turn_ends_a_row_of_failures() -> None:
    """TURN-5."""
    machine, _ = fail_once(Machine(), Outcome.CRASHED)
    machine, _ = fail_once(machine, Outcome.CRASHED)
    for event in (turn.RetryDue(), turn.Woken(), turn.Started(), turn.Exited(outcome=Outcome.DONE)):
        machine, _ = step(machine, event)
    machine, _ = step(machine, turn.Closed(mail_ignored=False))
    assert machine.failures == 0
    _, pause = fail_once(machine, Outcome.CRASHED)
    assert pause.retry_in_seconds == turn.BACKOFF_FIRST_SECONDS


def test_a_login_that_is_missing_is_told_at_once_and_once_also_after_other_failures() -> None:
    """TURN-5, known failure 8: the one who should act must hear of it."""
    machine, _ = fail_once(Machine(), Outcome.CRASHED)
    machine, pause = fail_once(machine, Outcome.NEEDS_LOGIN)
    assert pause == turn.Park(reason=ParkReason.NEEDS_LOGIN, retry_in_seconds=turn.LOGIN_RETRY_SECONDS, tell=True)
    _, pause = fail_once(machine, Outcome.NEEDS_LOGIN)
    assert pause.tell is False


def test_a_rate_limit_sleeps_to_the_time_the_service_named() -> None:
    """TURN-5."""
    running = in_phase(Phase.RUNNING)
    closing, _ = step(running, turn.Exited(outcome=Outcome.RATE_LIMITED, retry_after_seconds=4321.0))
    _, effects = step(closing, turn.Closed(mail_ignored=False))
    assert effects == (turn.Park(reason=ParkReason.RATE_LIMITED, retry_in_seconds=4321.0, tell=True),)


@pytest.mark.parametrize("named", [None, -50.0])
def test_a_rate_limit_without_a_time_or_with_a_past_one_still_pauses(named: float | None) -> None:
    """TURN-5: a wrong clock must not make a hot loop."""
    closing, _ = step(in_phase(Phase.RUNNING), turn.Exited(outcome=Outcome.RATE_LIMITED, retry_after_seconds=named))
    _, effects = step(closing, turn.Closed(mail_ignored=False))
    assert effects[0].retry_in_seconds == (300.0 if named is None else 1.0)


def test_mail_that_is_ignored_turn_after_turn_does_not_wake_hot() -> None:
    """TURN-5: a model that ends its turn without reading would otherwise be woken for ever."""
    machine = Machine()
    pauses = []
    for _ in range(5):
        machine, _ = step(attrs.evolve(machine, parked=None), turn.Woken())
        machine, _ = step(machine, turn.Started())
        machine, _ = step(machine, turn.Exited(outcome=Outcome.DONE))
        machine, effects = step(machine, turn.Closed(mail_ignored=True))
        pauses.append(effects[0])
    assert [pause.retry_in_seconds for pause in pauses] == [2, 4, 8, 16, 32]
    assert [pause.tell for pause in pauses] == [False, False, False, True, False]


def test_silence_is_answered_by_asking_telling_and_killing_in_this_order() -> None:
    """TURN-6 (claude-code#39700, #53584)."""
    machine, effects = step(in_phase(Phase.RUNNING), turn.WatchdogFired(Watchdog.SILENCE))
    assert effects[0] == turn.SendSignal(Signal.INTERRUPT)
    machine, effects = step(machine, turn.WatchdogFired(Watchdog.ESCALATE))
    assert effects[0] == turn.SendSignal(Signal.TERMINATE)
    machine, effects = step(machine, turn.WatchdogFired(Watchdog.ESCALATE))
    assert effects == (turn.SendSignal(Signal.KILL),)
    machine, effects = step(machine, turn.Exited(outcome=Outcome.CRASHED))
    assert effects == (turn.EndTurn(outcome=Outcome.STALLED, acked=False, blameless=False),)


def test_a_process_that_lives_on_after_its_result_keeps_the_result() -> None:
    """TURN-6 (claude-code#25629): what was done is done."""
    machine, _ = step(in_phase(Phase.RUNNING), turn.ResultSeen())
    machine, effects = step(machine, turn.WatchdogFired(Watchdog.POST_RESULT))
    assert effects[0] == turn.SendSignal(Signal.TERMINATE)
    _, effects = step(machine, turn.Exited(outcome=Outcome.DONE))
    assert effects == (turn.EndTurn(outcome=Outcome.DONE, acked=True, blameless=False),)


def test_a_stop_lets_the_running_turn_end_and_starts_no_other() -> None:
    """STOP-2."""
    machine, effects = step(in_phase(Phase.RUNNING), turn.StopRequested())
    assert effects == (turn.Arm(Watchdog.STOP_GRACE),)
    machine, _ = step(machine, turn.Exited(outcome=Outcome.DONE))
    machine, effects = step(machine, turn.Closed(mail_ignored=False))
    assert machine.phase is Phase.STOPPED
    assert effects == (turn.Finish(),)
    assert step(machine, turn.Woken()) == (machine, ())


def test_past_the_grace_the_turn_is_interrupted_and_its_mail_goes_back() -> None:
    """STOP-2."""
    machine, _ = step(in_phase(Phase.RUNNING), turn.StopRequested())
    machine, effects = step(machine, turn.WatchdogFired(Watchdog.STOP_GRACE))
    assert effects[0] == turn.SendSignal(Signal.INTERRUPT)
    _, effects = step(machine, turn.Exited(outcome=Outcome.INTERRUPTED))
    assert effects == (turn.EndTurn(outcome=Outcome.INTERRUPTED, acked=False, blameless=True),)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.RESULT_SEEN, Phase.INTERRUPTING], ids=str)
def test_haste_signals_whatever_runs(phase: Phase) -> None:
    """STOP-3: a second signal does not wait for the grace."""
    machine, effects = step(in_phase(phase), turn.Hastened())
    assert any(isinstance(effect, turn.SendSignal) for effect in effects)
    assert machine.stopping


def fail_once(machine: Machine, outcome: Outcome) -> tuple[Machine, turn.Park]:
    """Play one turn that ends badly, and give how it was parked."""
    if machine.parked is not None:
        machine, _ = step(machine, turn.RetryDue())
    for event in (turn.Woken(), turn.Started(), turn.Exited(outcome=outcome)):
        machine, _ = step(machine, event)
    machine, effects = step(machine, turn.Closed(mail_ignored=False))
    (park,) = effects
    assert isinstance(park, turn.Park)
    return machine, park


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_in_every_life_turns_do_not_overlap_and_a_stop_always_comes_to_its_end(data: st.DataObject) -> None:
    """TURN-4, STOP-3: whatever legal events come, in whatever order."""
    machine = Machine()
    open_turns = 0
    stopped = False
    for _ in range(data.draw(st.integers(0, 60))):
        legal = [kind for kind in EVENT_TYPES if (machine.phase, kind) in turn.TABLE]
        event = data.draw(st.sampled_from([event for kind in legal for event in samples(kind)]))
        was_stopping = machine.stopping
        machine, effects = step(machine, event)
        for effect in effects:
            if isinstance(effect, turn.StartTurn):
                assert not was_stopping
                assert open_turns == 0
                open_turns += 1
            elif isinstance(effect, turn.EndTurn):
                assert open_turns == 1
                assert effect.acked == (effect.outcome is Outcome.DONE)
                open_turns -= 1
            elif isinstance(effect, turn.Finish):
                assert not stopped
                stopped = True
        assert machine.phase is not Phase.STOPPED or (stopped and open_turns == 0)
    finish(machine)


def finish(machine: Machine) -> None:
    """From any state, a stop, clocks that run out and a process that dies lead to the end."""
    machine, _ = step(machine, turn.StopRequested())
    for watchdog in (Watchdog.STOP_GRACE, Watchdog.ESCALATE, Watchdog.ESCALATE, Watchdog.ESCALATE):
        if (machine.phase, turn.WatchdogFired) in turn.TABLE:
            machine, _ = step(machine, turn.WatchdogFired(watchdog))
    if (machine.phase, turn.Exited) in turn.TABLE:
        machine, _ = step(machine, turn.Exited(outcome=Outcome.CRASHED))
    if machine.phase is Phase.CLOSING:
        machine, _ = step(machine, turn.Closed(mail_ignored=False))
    assert machine.phase is Phase.STOPPED
