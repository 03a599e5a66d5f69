"""The one clock for everything due: leases that end, reminders and schedules that fire, and what is old and leaves.

Owns when to look, how much happens in one transaction and how fast a backlog is worked off; what happens is owned by
the room of each concept. The rules are functions of a connection and ``now``; ``DueClock`` is the task that asks them.
``_engine`` runs it.

The task sleeps to the next instant, and no longer than a minute while something waits for one: the wall clock may be
set, or the host suspended, meanwhile. With nothing to wait for it has no timer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from datetime import tzinfo
from functools import partial
from typing import Any, final

import apsw
import attrs
import trio

from . import _queries, _reminders, _retention, _schedules, _store
from ._errors import BrokerClosed, BrokerDamaged, BrokerUnavailable
from ._flow import Done, FlowEvent, MessagesAcked, MessagesPopped, RecordKind, RecordsChanged
from ._types import WallClock

__all__ = ["FIRES_A_STEP", "DueClock", "DueRules", "do_due", "seconds_to_next"]

FIRES_A_STEP = 5
"""Reminders and schedules that fire in one step. A backlog, after a week of downtime say, wakes so many agents a second
and not all of them at once (each wake is a process)."""

_PACE_SECONDS = 1
"""From one step of a backlog to the next."""

_RECHECK_SECONDS = 60
"""Longest sleep while something waits for an instant."""

_RETENTION_RECHECK_SECONDS = 3600
"""Longest sleep while something only waits to be old enough: nobody misses it."""

_log = logging.getLogger("hive_broker")


@attrs.frozen(kw_only=True)
class DueRules:
    """What has to be known beside the hour.

    Attributes:
        lease_seconds: how long a row popped outside a turn stays in flight (MSG-5).
        max_deliveries: failed attempts after which a row is a dead letter (MSG-6).
        zone: the time zone that a cron means.
    """

    lease_seconds: float
    max_deliveries: int
    zone: tzinfo


@attrs.frozen(kw_only=True)
class Step:
    """What one step did: how much fired, and whether more of anything is due."""

    fired: int
    more: bool


def seconds_to_next(db: apsw.Connection, *, now: float, rules: DueRules) -> float:
    """How long there is nothing to do: 0 when something is due, infinity when nothing waits for an instant."""
    lease_ends_at = _queries.next_expiry(db)
    if lease_ends_at is not None and lease_ends_at > now + rules.lease_seconds:
        return 0  # taken before the clock was set back
    if _schedules.too_far_ahead(db, now=now, zone=rules.zone):
        return 0
    instants = (lease_ends_at, _reminders.next_reminder_at(db), _schedules.next_schedule_at(db))
    waits = [min(at - now, _RECHECK_SECONDS) for at in instants if at is not None]
    if (drops_in := _retention.seconds_to_drop(db, now=now)) is not None:
        waits.append(min(drops_in, _RETENTION_RECHECK_SECONDS))
    return max(0, min(waits, default=math.inf))


def do_due(db: apsw.Connection, *, now: float, rules: DueRules) -> Done[Step]:
    """Do one step of what is due, in the transaction this runs in."""
    leases = _store.end_expired_leases(
        db, now=now, lease_seconds=rules.lease_seconds, max_deliveries=rules.max_deliveries
    )
    moved = _schedules.move_back_to_clock(db, now=now, zone=rules.zone)
    reminded = _reminders.fire_due_reminders(db, now=now, limit=FIRES_A_STEP)
    left = FIRES_A_STEP - reminded.value
    prompted = _schedules.fire_due_schedules(db, now=now, zone=rules.zone, limit=left)
    dropped = _retention.drop_old(db, now=now)
    fired = reminded.value + prompted.value
    step = Step(fired=fired, more=fired == FIRES_A_STEP or dropped.value)
    return Done(step, (*leases.flow, *moved.flow, *reminded.flow, *prompted.flow))


@final
class DueClock:
    """The task that asks, sleeps and has done what is due."""

    def __init__(
        self,
        rules: DueRules,
        *,
        clock: WallClock,
        glance: Callable[[Callable[[apsw.Connection], float]], float],
        change: Callable[[Callable[[apsw.Connection], Done[Any]]], Any],
    ) -> None:
        """Args: clock gives unix seconds, glance asks at once, change has a change committed."""
        self._rules = rules
        self._clock = clock
        self._glance = glance
        self._change = change
        self._sooner = trio.Event()
        self._wakes_at = -math.inf
        self._is_spreading = False

    def follow(self, event: FlowEvent) -> None:
        """Look again where something that happened may be due before the task wakes."""
        match event:
            case RecordsChanged(kind=RecordKind.REMINDERS | RecordKind.SCHEDULES | RecordKind.AGENTS):
                self._wake_within(0)
            case MessagesPopped(turn_id=None):
                self._wake_within(self._rules.lease_seconds)
            case MessagesAcked() | RecordsChanged(kind=RecordKind.TODOS | RecordKind.NOTICES):
                self._wake_within(_retention.HANDLED_SECONDS)
            case _:
                pass

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            try:
                await self._sleep_or_step()
            except BrokerClosed:
                await trio.sleep_forever()  # closing: cancelled next
            except (BrokerUnavailable, BrokerDamaged) as exc:
                _log.warning("what is due could not be done, trying again in a minute: %s", exc)
                await trio.sleep(_RECHECK_SECONDS)

    def _wake_within(self, seconds: float) -> None:
        if trio.current_time() + seconds < self._wakes_at:
            self._sooner.set()

    async def _sleep_or_step(self) -> None:
        self._sooner = trio.Event()
        now = self._clock()
        wait_seconds = self._glance(partial(seconds_to_next, now=now, rules=self._rules))
        if wait_seconds > 0:
            self._wakes_at = trio.current_time() + wait_seconds
            with trio.move_on_after(wait_seconds):
                await self._sooner.wait()
            return
        step: Step = await self._change(partial(do_due, now=now, rules=self._rules))
        if step.fired == FIRES_A_STEP and not self._is_spreading:
            _log.warning(
                "many reminders and schedules are due: they fire %d a second, so that not all agents wake at once",
                FIRES_A_STEP,
            )
        self._is_spreading = step.fired == FIRES_A_STEP
        if step.more:
            await trio.sleep(_PACE_SECONDS)
