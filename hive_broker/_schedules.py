"""Schedules: prompts that come into agents' inboxes at set instants (SCHED-1).

Owns the tables of schedules and their targets, what makes one active, and its firing. Firing a target stores the
message and moves the target on in one transaction, so it happens once. ``_schedule_requests`` owns who may ask for
what, ``_timetable`` the instants. Like ``_store`` it runs inside somebody's transaction and takes ``now``.
"""
# ruff: noqa: S608 -- the pieces put into the SQL are constants of this module, never a caller's text

from __future__ import annotations

from datetime import tzinfo
from enum import Enum
from typing import Any

import apsw
import attrs

from . import _store
from ._flow import Done, FlowEvent, RecordKind, RecordsChanged
from ._queries import rows_of
from ._reminders import LATE_SECONDS
from ._requests import utc_text
from ._rules import is_row_id
from ._timetable import SKIPPED_CAP, Timetable, count_instants, next_instant
from ._types import SCHEDULE

__all__ = [
    "Schedule",
    "ScheduleStatus",
    "ScheduleTarget",
    "activate",
    "find_schedule",
    "fire_due_schedules",
    "fire_target",
    "list_schedules",
    "move_back_to_clock",
    "next_schedule_at",
    "schedules_changed",
    "set_status",
    "too_far_ahead",
]

_COLUMNS = "id, body, first_fire_at, interval_seconds, cron, description, requested_by, created_at, status"


class ScheduleStatus(Enum):
    """Where a schedule stands: it waits for the operator, fires, has nothing more to fire, or was withdrawn."""

    PENDING = "pending"
    ACTIVE = "active"
    DONE = "done"
    CANCELLED = "cancelled"


@attrs.frozen(kw_only=True)
class ScheduleTarget:
    """One agent of a schedule.

    Attributes:
        agent: whom it prompts.
        next_fire_at: unix seconds; None while the schedule is not active or has no instant to come.
        last_fired_at: unix seconds, None before the first fire.
        skipped: instants that passed without a fire of their own, all told.
    """

    agent: str
    next_fire_at: float | None = None
    last_fired_at: float | None = None
    skipped: int = 0


@attrs.frozen(kw_only=True)
class Schedule:
    """A schedule as it stands.

    Attributes:
        id: never reused.
        body: the prompt.
        timetable: its instants.
        description: what it is for, in a line.
        requested_by: an agent or ``operator``.
        created_at: unix seconds.
        status: see ``ScheduleStatus``.
        targets: whom it prompts, by name.
    """

    id: int
    body: str
    timetable: Timetable
    description: str | None
    requested_by: str
    created_at: float
    status: ScheduleStatus
    targets: tuple[ScheduleTarget, ...]


def find_schedule(db: apsw.Connection, schedule_id: int) -> Schedule | None:
    """The schedule of that id, None when there is none."""
    if not is_row_id(schedule_id):
        return None
    found = rows_of(db, f"SELECT {_COLUMNS} FROM schedules WHERE id = ?", (schedule_id,))
    return _schedule_from(db, found[0]) if found else None


def list_schedules(db: apsw.Connection, *, about: str | None, limit: int) -> tuple[Schedule, ...]:
    """Schedules, newest first, that are pending or active; finished ones fill what is left of ``limit``.

    Args:
        db: a connection.
        about: only those this name requested or is a target of; None for all.
        limit: schedules at most.
    """
    whose = "requested_by = ? OR id IN (SELECT schedule_id FROM schedule_targets WHERE target = ?)"
    which, names = ("", ()) if about is None else (f"WHERE {whose}", (about, about))
    rows = rows_of(
        db,
        f"""SELECT {_COLUMNS} FROM schedules {which}
            ORDER BY status IN ('pending', 'active') DESC, id DESC LIMIT ?""",
        (*names, limit),
    )
    return tuple(_schedule_from(db, row) for row in rows)


def activate(db: apsw.Connection, schedule: Schedule, *, now: float, zone: tzinfo) -> Done[None]:
    """Let a schedule fire from now on: what passed before it was approved is not caught up, a single date is."""
    first = schedule.timetable.first_fire_at
    upcoming = next_instant(schedule.timetable, after=now, zone=zone) if schedule.timetable.repeats else first
    db.execute("UPDATE schedule_targets SET next_fire_at = ? WHERE schedule_id = ?", (upcoming, schedule.id))
    return set_status(db, schedule, ScheduleStatus.ACTIVE)


def set_status(db: apsw.Connection, schedule: Schedule, status: ScheduleStatus) -> Done[None]:
    """Give a schedule another status; one that is not active has no instant to come."""
    db.execute("UPDATE schedules SET status = ? WHERE id = ?", (status.value, schedule.id))
    if status is not ScheduleStatus.ACTIVE:
        db.execute("UPDATE schedule_targets SET next_fire_at = NULL WHERE schedule_id = ?", (schedule.id,))
    return Done(None, (schedules_changed(schedule.requested_by),))


def next_schedule_at(db: apsw.Connection) -> float | None:
    """When the next target fires; those that are no agents now wait until they are."""
    found: float | None = db.execute(
        """SELECT next_fire_at FROM schedule_targets INDEXED BY schedule_targets_due CROSS JOIN agents ON name = target
           WHERE next_fire_at IS NOT NULL AND current = 1 ORDER BY next_fire_at LIMIT 1"""
    ).get
    return found


def fire_due_schedules(db: apsw.Connection, *, now: float, zone: tzinfo, limit: int) -> Done[int]:
    """Fire up to ``limit`` due targets, the oldest instant first; answer with how many.

    However many instants have passed, a target fires once for all of them, and the others are counted as skipped.
    """
    due = rows_of(
        db,
        """SELECT schedule_id, target, next_fire_at FROM schedule_targets INDEXED BY schedule_targets_due
           CROSS JOIN agents ON name = target
           WHERE next_fire_at IS NOT NULL AND current = 1 AND next_fire_at <= ?
           ORDER BY next_fire_at, schedule_id, target LIMIT ?""",
        (now, limit),
    )
    flow: list[FlowEvent] = []
    for schedule_id, agent, due_at in due:
        schedule = _schedule_of_target(db, schedule_id)
        flow.extend(_fire_when_due(db, schedule, agent, due_at=due_at, now=now, zone=zone))
    return Done(len(due), tuple(flow))


def fire_target(
    db: apsw.Connection, schedule: Schedule, agent: str, *, now: float, facts: str = ""
) -> tuple[FlowEvent, ...]:
    """Store the prompt in one agent's inbox."""
    lines = [schedule.body, "", f"[schedule #{schedule.id}, requested by {schedule.requested_by}{facts}]"]
    sent = _store.deliver(db, now=now, sender=SCHEDULE, to=agent, body="\n".join(lines))
    db.execute(
        "UPDATE schedule_targets SET last_fired_at = ? WHERE schedule_id = ? AND target = ?", (now, schedule.id, agent)
    )
    return sent.flow


def too_far_ahead(db: apsw.Connection, *, now: float, zone: tzinfo) -> list[tuple[int, str, float]]:
    """Targets whose next fire was set by a clock that was wrong and is put back since, with the one that is right.

    The clock was put back when a fire lies in the future. Instants that fired already fire again only when more than
    one of them comes again: the second of a leap, or the minutes of a correction, make no second fire.
    """
    rows = rows_of(
        db,
        """SELECT schedule_id, target, next_fire_at, first_fire_at, interval_seconds, cron
           FROM schedule_targets INDEXED BY schedule_targets_fired CROSS JOIN schedules ON id = schedule_id
           WHERE next_fire_at IS NOT NULL AND last_fired_at IS NOT NULL AND last_fired_at > ?""",
        (now,),
    )
    two_next: dict[Timetable, tuple[float | None, float | None]] = {}
    found = []
    for schedule_id, agent, next_fire_at, first_fire_at, interval_seconds, cron in rows:
        timetable = Timetable(first_fire_at=first_fire_at, interval_seconds=interval_seconds, cron=cron)
        if timetable not in two_next:
            first = next_instant(timetable, after=now, zone=zone)
            second = None if first is None else next_instant(timetable, after=first, zone=zone)
            two_next[timetable] = first, second
        first, second = two_next[timetable]
        if first is not None and second is not None and second < next_fire_at:
            found.append((schedule_id, agent, first))
    return found


def move_back_to_clock(db: apsw.Connection, *, now: float, zone: tzinfo) -> Done[int]:
    """Put right what ``too_far_ahead`` finds; answer with how many."""
    found = too_far_ahead(db, now=now, zone=zone)
    db.executemany(
        "UPDATE schedule_targets SET next_fire_at = ? WHERE schedule_id = ? AND target = ?",
        [(next_fire_at, schedule_id, agent) for schedule_id, agent, next_fire_at in found],
    )
    return Done(len(found), (schedules_changed(None),) if found else ())


def schedules_changed(requested_by: str | None) -> RecordsChanged:
    """The event of a change to a schedule of this name."""
    return RecordsChanged(kind=RecordKind.SCHEDULES, agent=requested_by)


def _fire_when_due(
    db: apsw.Connection, schedule: Schedule, agent: str, *, due_at: float, now: float, zone: tzinfo
) -> tuple[FlowEvent, ...]:
    skipped = count_instants(schedule.timetable, after=due_at, until=now, zone=zone)
    upcoming = next_instant(schedule.timetable, after=max(now, due_at), zone=zone)
    facts = _facts(due_at=due_at, now=now, skipped=skipped, upcoming=upcoming)
    sent = fire_target(db, schedule, agent, now=now, facts=facts)
    db.execute(
        """UPDATE schedule_targets SET next_fire_at = ?, skipped = skipped + ?
           WHERE schedule_id = ? AND target = ?""",
        (upcoming, skipped, schedule.id, agent),
    )
    left = "SELECT 1 FROM schedule_targets WHERE schedule_id = ? AND next_fire_at IS NOT NULL LIMIT 1"
    if upcoming is None and db.execute(left, (schedule.id,)).get is None:
        return (*sent, *set_status(db, schedule, ScheduleStatus.DONE).flow)
    return (*sent, schedules_changed(schedule.requested_by))


def _facts(*, due_at: float, now: float, skipped: int, upcoming: float | None) -> str:
    facts = "" if upcoming is None else f"; the next one is at {utc_text(upcoming)}"
    if skipped == 0 and now - due_at <= LATE_SECONDS:
        return facts
    facts += f"; this one was due at {utc_text(due_at)} and is late because the hive or you were not there"
    if skipped:
        at_least = "at least " if skipped >= SKIPPED_CAP else ""
        facts += f", it stands for {at_least}{skipped} more that came due since and are skipped"
    return f"{facts}; what is caught up is spread over a while, so others may have it earlier or later"


def _schedule_of_target(db: apsw.Connection, schedule_id: int) -> Schedule:
    schedule = find_schedule(db, schedule_id)
    if schedule is None:
        raise RuntimeError(
            f"every target must have its schedule, and schedule {schedule_id} is gone: please report this"
        )
    return schedule


def _schedule_from(db: apsw.Connection, row: tuple[Any, ...]) -> Schedule:
    id_, body, first_fire_at, interval_seconds, cron, description, requested_by, created_at, status = row
    targets = rows_of(
        db,
        """SELECT target, next_fire_at, last_fired_at, skipped FROM schedule_targets
           WHERE schedule_id = ? ORDER BY target""",
        (id_,),
    )
    return Schedule(
        id=id_,
        body=body,
        timetable=Timetable(first_fire_at=first_fire_at, interval_seconds=interval_seconds, cron=cron),
        description=description,
        requested_by=requested_by,
        created_at=created_at,
        status=ScheduleStatus(status),
        targets=tuple(
            ScheduleTarget(agent=agent, next_fire_at=next_at, last_fired_at=last_at, skipped=skipped)
            for agent, next_at, last_at, skipped in targets
        ),
    )
