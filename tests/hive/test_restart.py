"""When an agent that exited unplanned is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hive._restart import RestartPolicy, next_delay

EXITS = st.lists(st.floats(0, 5000), max_size=30).map(sorted)
NOW = st.floats(5000, 6000)


def test_delays_double_until_the_budget_is_used_up():
    """HOST-5: 1, 2, 4, 8, 16 s, and the sixth exit in ten minutes is final."""
    exits = [float(n) for n in range(6)]
    assert [next_delay(exits[:n], exits[n - 1]) for n in range(1, 7)] == [1.0, 2.0, 4.0, 8.0, 16.0, None]


def test_an_old_exit_counts_no_more():
    """HOST-5: an agent that ran well for ten minutes starts with a fresh budget."""
    exits = [float(n) for n in range(5)]
    assert next_delay([*exits, 605.0], 605.0) == 1.0


def test_the_doubling_ends_at_the_longest_delay():
    """HOST-5: also where a float has no room for the power."""
    patient = RestartPolicy(budget=5000)
    assert next_delay([0.0] * 7, 0.0, patient) == 60.0
    assert next_delay([0.0] * 4000, 0.0, patient) == 60.0


@given(EXITS, NOW)
def test_a_delay_is_within_its_bounds_or_there_is_none(exits: list[float], now: float):
    """HOST-5: whatever the history, also an empty one."""
    delay = next_delay(exits, now)
    assert delay is None or 1.0 <= delay <= 60.0


@given(EXITS, NOW, st.floats(0, 5000))
def test_one_more_exit_never_shortens_the_wait(exits: list[float], now: float, extra: float):
    """HOST-5: failed stays failed, and backoff only grows."""
    before, after = next_delay(exits, now), next_delay([*exits, extra], now)
    assert after is None or (before is not None and after >= before)


@given(EXITS, NOW, st.floats(0, 700))
def test_waiting_never_makes_it_worse(exits: list[float], now: float, later: float):
    """HOST-5: the same history, looked at later, is forgiven more."""
    before, after = next_delay(exits, now), next_delay(exits, now + later)
    assert before is None or (after is not None and after <= before)


@given(st.permutations([1.0, 400.0, 800.0, 1200.0]))
def test_the_order_of_the_exits_does_not_matter(exits: list[float]):
    """HOST-5: the supervisor may keep them as it likes."""
    assert next_delay(exits, 1200.0) == 2.0
