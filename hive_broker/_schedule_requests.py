"""What agents and the operator may ask of schedules (SCHED-1).

Owns who may do what: a name manages the schedules it requested, the operator all. What an agent requests or edits waits
for the operator's approval, and its targets are those it may write to (MSG-2). Like ``_store`` it runs inside
somebody's transaction and takes ``now``.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import tzinfo

import apsw
import attrs

from . import _schedules
from ._approvals import ApprovalKind, cancel_approval_of, submit_approval
from ._errors import RequestRefused
from ._flow import Done, FlowEvent
from ._queries import current_agents, rows_of
from ._requests import check_text, utc_text
from ._rules import check_recipient, refuse_unknown_recipient
from ._schedules import Schedule, ScheduleStatus, activate, find_schedule, schedules_changed
from ._timetable import Timetable, check_timetable
from ._types import OPERATOR

__all__ = [
    "SCHEDULE_LIMIT_BYTES",
    "Fired",
    "ScheduleEdit",
    "cancel_schedule",
    "edit_schedule",
    "fire_schedule_now",
    "request_schedule",
]

SCHEDULE_LIMIT_BYTES = 64 * 1024
"""A prompt: a long page, read by every target each time."""

_DESCRIPTION_LIMIT_BYTES = 1024
"""What it is for, in a sentence or two."""

_TARGETS_CAP = 64
"""Agents of one schedule."""

_OPEN_CAP = 50
"""Schedules of one agent that are pending or active: each is a decision of the operator's."""

_SHOWN_BODY_CHARS = 500
"""How much of the prompt the operator sees beside the decision; the whole is in the schedule."""


@attrs.frozen(kw_only=True)
class ScheduleEdit:
    """What to change of a schedule; None leaves as it is. An interval takes the place of a cron and the reverse."""

    targets: tuple[str, ...] | None = None
    body: str | None = None
    first_fire_at: float | None = None
    interval_seconds: float | None = None
    cron: str | None = None
    description: str | None = None


@attrs.frozen(kw_only=True)
class Fired:
    """What firing a schedule at once did: whom it prompted, and who is no agent now and was left out."""

    agents: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def request_schedule(
    db: apsw.Connection,
    *,
    now: float,
    zone: tzinfo,
    requested_by: str,
    targets: Collection[str],
    body: str,
    timetable: Timetable,
    description: str | None,
    allowed: Collection[str] = (),
) -> Done[Schedule]:
    """Keep a schedule: an agent's waits for approval, the operator's fires from now on.

    Raises:
        RequestRefused: with what is wrong with it, or that the requester has too many.
        MessageRefused: a target is unknown, or not one the requester may write to.
    """
    _check(body, description)
    check_timetable(timetable, now=now, zone=zone)
    names = _checked_targets(db, targets, requested_by=requested_by, allowed=allowed)
    _require_room(db, requested_by)
    db.execute(
        """INSERT INTO schedules
           (body, first_fire_at, interval_seconds, cron, description, requested_by, created_at, status)
           VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')""",
        (
            body,
            timetable.first_fire_at,
            timetable.interval_seconds,
            timetable.cron,
            description,
            requested_by,
            now,
        ),
    )
    schedule_id = db.last_insert_rowid()
    _set_targets(db, schedule_id, names)
    return _begin(db, schedule_id, by=requested_by, now=now, zone=zone)


def edit_schedule(
    db: apsw.Connection,
    *,
    now: float,
    zone: tzinfo,
    by: str,
    schedule_id: int,
    edit: ScheduleEdit,
    allowed: Collection[str] = (),
) -> Done[Schedule]:
    """Change a schedule. An agent's edit waits for approval, and nothing fires until then; the operator's does not.

    Raises:
        RequestRefused: ``by`` has no such schedule that is pending or active, or the change is not acceptable.
        MessageRefused: a target is unknown, or not one ``by`` may write to.
    """
    schedule = _require_open(db, by, schedule_id)
    body = schedule.body if edit.body is None else edit.body
    description = schedule.description if edit.description is None else edit.description
    timetable = _edited_timetable(schedule.timetable, edit)
    _check(body, description)
    if timetable != schedule.timetable:
        check_timetable(timetable, now=now, zone=zone)
    if edit.targets is not None:
        names = _checked_targets(db, edit.targets, requested_by=by, allowed=allowed)
        _set_targets(db, schedule_id, names)
    db.execute(
        """UPDATE schedules SET body = ?, first_fire_at = ?, interval_seconds = ?, cron = ?, description = ?
           WHERE id = ?""",
        (
            body,
            timetable.first_fire_at,
            timetable.interval_seconds,
            timetable.cron,
            description,
            schedule_id,
        ),
    )
    if by == OPERATOR and schedule.status is ScheduleStatus.PENDING:
        return Done(_require_open(db, by, schedule_id), (schedules_changed(schedule.requested_by),))
    withdrawn = _withdraw_approval(db, schedule_id, now=now, note="the schedule was edited, see its next approval")
    begun = _begin(db, schedule_id, by=by, now=now, zone=zone)
    return Done(begun.value, (*withdrawn, *begun.flow))


def cancel_schedule(db: apsw.Connection, *, now: float, by: str, schedule_id: int) -> Done[Schedule]:
    """Let a schedule fire no more; its approval, if it waits for one, is cancelled with it.

    Raises:
        RequestRefused: ``by`` has no such schedule that is pending or active.
    """
    schedule = _require_open(db, by, schedule_id)
    withdrawn = _withdraw_approval(db, schedule_id, now=now, note=f"{by} cancelled the schedule")
    changed = _schedules.set_status(db, schedule, ScheduleStatus.CANCELLED).flow
    return Done(find_schedule(db, schedule_id) or schedule, (*withdrawn, *changed))


def fire_schedule_now(db: apsw.Connection, *, now: float, by: str, schedule_id: int) -> Done[Fired]:
    """Prompt all targets of an active schedule at once, beside its instants.

    Raises:
        RequestRefused: ``by`` has no such schedule that is active.
    """
    schedule = _require_open(db, by, schedule_id)
    if schedule.status is not ScheduleStatus.ACTIVE:
        raise RequestRefused(f"schedule {schedule_id} waits for the operator's approval: it can fire once it has it")
    there = set(current_agents(db))
    flow: list[FlowEvent] = []
    for target in schedule.targets:
        if target.agent in there:
            facts = f"; fired out of turn by {by}"
            flow.extend(_schedules.fire_target(db, schedule, target.agent, now=now, facts=facts))
    fired = Fired(
        agents=tuple(target.agent for target in schedule.targets if target.agent in there),
        left_out=tuple(target.agent for target in schedule.targets if target.agent not in there),
    )
    return Done(fired, (*flow, schedules_changed(schedule.requested_by)))


def _begin(db: apsw.Connection, schedule_id: int, *, by: str, now: float, zone: tzinfo) -> Done[Schedule]:
    """Have what was stored approved, or let it fire where the operator stored it."""
    schedule = _require_open(db, by, schedule_id)
    if by == OPERATOR:
        changed = activate(db, schedule, now=now, zone=zone).flow
    else:
        asked = submit_approval(
            db,
            now=now,
            kind=ApprovalKind.SCHEDULE_PROMPT,
            agent=by,
            commit_ref=str(schedule_id),
            description=_in_words(schedule),
            submitter=by,
        )
        changed = (*_schedules.set_status(db, schedule, ScheduleStatus.PENDING).flow, *asked.flow)
    return Done(_require_open(db, by, schedule_id), changed)


def _withdraw_approval(db: apsw.Connection, schedule_id: int, *, now: float, note: str) -> tuple[FlowEvent, ...]:
    kind = ApprovalKind.SCHEDULE_PROMPT
    return cancel_approval_of(db, now=now, kind=kind, commit_ref=str(schedule_id), note=note)


def _require_open(db: apsw.Connection, by: str, schedule_id: int) -> Schedule:
    schedule = find_schedule(db, schedule_id)
    if schedule is None or by not in (OPERATOR, schedule.requested_by):
        whose = "there is no schedule" if by == OPERATOR else "you requested no schedule"
        raise RequestRefused(f"{whose} {schedule_id}: list the schedules for the numbers")
    if schedule.status in (ScheduleStatus.DONE, ScheduleStatus.CANCELLED):
        raise RequestRefused(f"schedule {schedule_id} is {schedule.status.value} for good: request a new one")
    return schedule


def _require_room(db: apsw.Connection, requested_by: str) -> None:
    if requested_by == OPERATOR:
        return
    if requested_by not in current_agents(db):
        raise RequestRefused(f"only agents of this hive have schedules, and {requested_by!r} is none now: add it first")
    ((count,),) = rows_of(
        db,
        """SELECT count(*) FROM schedules INDEXED BY schedules_open
           WHERE requested_by = ? AND status IN ('pending', 'active')""",
        (requested_by,),
    )
    if count >= _OPEN_CAP:
        raise RequestRefused(
            f"an agent can have {_OPEN_CAP} schedules pending or active, and that many are: cancel one first"
        )


def _checked_targets(
    db: apsw.Connection, targets: Collection[str], *, requested_by: str, allowed: Collection[str]
) -> tuple[str, ...]:
    names = tuple(sorted(set(targets)))
    if not 1 <= len(names) <= _TARGETS_CAP:
        raise RequestRefused(f"a schedule prompts 1 to {_TARGETS_CAP} agents, got {len(names)}: name that many")
    there = current_agents(db)
    for name in names:
        if name == OPERATOR:
            raise RequestRefused(f"a schedule prompts agents, got {name!r}: name an agent that then writes to it")
        if name != requested_by:
            check_recipient(name, allowed=allowed)
        if name not in there:
            raise refuse_unknown_recipient(name, there)
    return names


def _set_targets(db: apsw.Connection, schedule_id: int, names: tuple[str, ...]) -> None:
    """Make these the targets; those that stay keep what was counted of them."""
    for (gone,) in rows_of(db, "SELECT target FROM schedule_targets WHERE schedule_id = ?", (schedule_id,)):
        if gone not in names:
            db.execute("DELETE FROM schedule_targets WHERE schedule_id = ? AND target = ?", (schedule_id, gone))
    db.executemany(
        "INSERT INTO schedule_targets (schedule_id, target) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(schedule_id, name) for name in names],
    )


def _edited_timetable(timetable: Timetable, edit: ScheduleEdit) -> Timetable:
    first = timetable.first_fire_at if edit.first_fire_at is None else edit.first_fire_at
    if edit.interval_seconds is None and edit.cron is None:
        return attrs.evolve(timetable, first_fire_at=first)
    return Timetable(first_fire_at=first, interval_seconds=edit.interval_seconds, cron=edit.cron)


def _check(body: str, description: str | None) -> None:
    hint = "put the text in a file the targets can read and name it"
    check_text(body, what="a schedule's body", limit_bytes=SCHEDULE_LIMIT_BYTES, hint=hint)
    if description is not None:
        what = "a schedule's description"
        check_text(description, what=what, limit_bytes=_DESCRIPTION_LIMIT_BYTES, hint="shorten it")


def _in_words(schedule: Schedule) -> str:
    """What the operator decides about."""
    timetable = schedule.timetable
    when = f"at {utc_text(timetable.first_fire_at)}"
    if timetable.interval_seconds is not None:
        when = f"every {timetable.interval_seconds:g} seconds from {utc_text(timetable.first_fire_at)} on"
    elif timetable.cron is not None:
        when = f"by cron {timetable.cron!r} from {utc_text(timetable.first_fire_at)} on"
    names = ", ".join(target.agent for target in schedule.targets)
    head = f"{schedule.requested_by} asks to prompt {names} {when}"
    body = schedule.body if len(schedule.body) <= _SHOWN_BODY_CHARS else f"{schedule.body[:_SHOWN_BODY_CHARS]}..."
    return "\n\n".join(part for part in (head, schedule.description, body) if part)
