"""When an agent that exited unplanned is started again (HOST-5).

Owns the backoff and the budget. Pure: knows no clock, task or process; the supervisor calls it with its own instants.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

__all__ = ["RestartPolicy", "next_delay"]


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """How patient a supervisor is.

    Attributes:
        first_delay_seconds: before the first restart; each further one waits twice as long.
        longest_delay_seconds: where the doubling ends.
        budget: restarts within the window; the exit after the last of them is final.
        window_seconds: how long an exit counts.
    """

    first_delay_seconds: float = 1.0
    longest_delay_seconds: float = 60.0
    budget: int = 5
    window_seconds: float = 600.0


def next_delay(exits: Iterable[float], now: float, policy: RestartPolicy = RestartPolicy()) -> float | None:  # frozen
    """How long to wait before the restart, or None when the agent is to be left as failed.

    Args:
        exits: instants of the unplanned exits on a clock that never jumps, in seconds, the one at hand among them;
            planned stops are no exits.
        now: the present on the same clock.
        policy: backoff and budget.
    """
    recent = sum(1 for exit_at in exits if now - exit_at < policy.window_seconds)
    if recent > policy.budget:
        return None
    doublings = min(max(recent, 1) - 1, 64)  # a larger exponent leaves the range of a float
    return min(policy.first_delay_seconds * 2.0**doublings, policy.longest_delay_seconds)
