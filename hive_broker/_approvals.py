"""The one queue of what waits for the operator's word (APPR-1).

Owns the table ``approvals``, its transitions, and who is told of a resolution (SYS-1, SYS-2). Acts itself on
``schedule_prompt`` only; on all else acts the hive. Like ``_store`` it runs inside somebody's transaction and takes
``now``.
"""
# ruff: noqa: S608 -- the pieces put into the SQL are constants of this module, never a caller's text

from __future__ import annotations

import json
from datetime import tzinfo
from enum import Enum
from typing import Any

import apsw
import attrs

from . import _schedules, _store
from ._errors import RequestRefused
from ._flow import Done, FlowEvent, RecordKind, RecordsChanged
from ._queries import current_agents, rows_of
from ._requests import check_text, check_word, utc_text
from ._rules import is_row_id
from ._schedules import ScheduleStatus
from ._types import OPERATOR, SYSTEM

__all__ = [
    "Approval",
    "ApprovalKind",
    "ApprovalStatus",
    "cancel_approval_of",
    "list_approvals",
    "resolve_approval",
    "submit_approval",
]

_TEXT_LIMIT_BYTES = 64 * 1024
"""A note or description: a page or two for the operator to read."""

_COLUMNS = "id, agent, kind, commit_ref, fetched_sha, requested_at, status, resolved_at, note, description, submitter"


class ApprovalKind(Enum):
    """What is asked for."""

    SPAWN = "spawn"
    INIT_CONFIG = "init_config"
    UPDATE_META_INPUTS = "update_meta_inputs"
    SCHEDULE_PROMPT = "schedule_prompt"
    MERGE_CONFIG_PR = "merge_config_pr"


class ApprovalStatus(Enum):
    """Where it stands. All but ``PENDING`` are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    FAILED = "failed"
    CANCELLED = "cancelled"


@attrs.frozen(kw_only=True)
class Approval:
    """One entry of the queue.

    Attributes:
        id: never reused.
        agent: whom it is about.
        kind: what is asked for.
        commit_ref: what exactly; its meaning is the kind's: a sha, a number, a JSON array, or empty.
        fetched_sha: the commit that was looked at, where there is one.
        requested_at: unix seconds.
        status: where it stands.
        resolved_at: unix seconds, None while it is pending.
        note: what was said at its resolution.
        description: what was said at its request.
        submitter: the agent, or ``operator``, that submitted it; None where nobody is recorded.
    """

    id: int
    agent: str
    kind: ApprovalKind
    commit_ref: str
    fetched_sha: str | None = None
    requested_at: float
    status: ApprovalStatus
    resolved_at: float | None = None
    note: str | None = None
    description: str | None = None
    submitter: str | None = None


def submit_approval(
    db: apsw.Connection,
    *,
    now: float,
    kind: ApprovalKind,
    agent: str,
    commit_ref: str = "",
    fetched_sha: str | None = None,
    description: str | None = None,
    submitter: str | None = None,
) -> Done[Approval]:
    """Put something into the queue; what is pending already, to the letter, is that entry.

    Raises:
        RequestRefused: a text that cannot be kept.
    """
    if commit_ref:
        check_text(commit_ref, what="a commit_ref", limit_bytes=_TEXT_LIMIT_BYTES, hint="name less at once")
    if fetched_sha is not None:
        check_word(fetched_sha, what="a fetched_sha", limit=200)
    if description is not None:
        check_text(description, what="a description", limit_bytes=_TEXT_LIMIT_BYTES, hint="shorten it")
    twin = rows_of(
        db,
        f"""SELECT {_COLUMNS} FROM approvals WHERE status = 'pending' AND kind = ? AND commit_ref = ? AND agent = ?
            AND fetched_sha IS ? AND submitter IS ? ORDER BY id LIMIT 1""",
        (kind.value, commit_ref, agent, fetched_sha, submitter),
    )
    if twin:
        return Done(_approval_from(twin[0]))
    ((*row,),) = rows_of(
        db,
        f"""INSERT INTO approvals (agent, kind, commit_ref, fetched_sha, requested_at, status, description, submitter)
            VALUES (?, ?, ?, ?, ?, 'pending', ?, ?) RETURNING {_COLUMNS}""",
        (agent, kind.value, commit_ref, fetched_sha, now, description, submitter),
    )
    approval = _approval_from(tuple(row))
    return Done(approval, (_changed(approval),))


def resolve_approval(
    db: apsw.Connection,
    *,
    now: float,
    zone: tzinfo,
    approval_id: int,
    status: ApprovalStatus,
    note: str | None,
    manager: str,
    by: str = OPERATOR,
) -> Done[Approval]:
    """Decide a pending entry, once; act on it where it is a schedule; tell whoever submitted it.

    Raises:
        RequestRefused: there is no such entry, it is resolved already, or its schedule is gone.
    """
    if note is not None:
        check_text(note, what="a note", limit_bytes=_TEXT_LIMIT_BYTES, hint="shorten it")
    pending = _require_pending(db, approval_id)
    db.execute(
        "UPDATE approvals SET status = ?, resolved_at = ?, note = ? WHERE id = ?",
        (status.value, now, note, approval_id),
    )
    approval = attrs.evolve(pending, status=status, resolved_at=now, note=note)
    acted: tuple[FlowEvent, ...] = ()
    if approval.kind is ApprovalKind.SCHEDULE_PROMPT:
        acted = _act_on_schedule(db, approval, now=now, zone=zone)
    told = _tell(db, approval, now=now, manager=manager, by=by)
    return Done(approval, (_changed(approval), *acted, *told))


def cancel_approval_of(
    db: apsw.Connection, *, now: float, kind: ApprovalKind, commit_ref: str, note: str
) -> tuple[FlowEvent, ...]:
    """Cancel whatever is pending for one thing that its owner withdrew or changed; the owner knows."""
    rows = rows_of(
        db,
        f"""UPDATE approvals SET status = 'cancelled', resolved_at = ?, note = ?
            WHERE status = 'pending' AND kind = ? AND commit_ref = ? RETURNING {_COLUMNS}""",
        (now, note, kind.value, commit_ref),
    )
    return tuple(_changed(_approval_from(row)) for row in rows)


def list_approvals(
    db: apsw.Connection, *, pending_only: bool, limit: int, before_id: int | None
) -> tuple[Approval, ...]:
    """The queue, newest first."""
    which = (
        "FROM approvals INDEXED BY approvals_pending WHERE status = 'pending' AND"
        if pending_only
        else ("FROM approvals WHERE")
    )
    below = 2**63 - 1 if before_id is None else max(0, min(before_id, 2**63 - 1))
    rows = rows_of(db, f"SELECT {_COLUMNS} {which} id < ? ORDER BY id DESC LIMIT ?", (below, limit))
    return tuple(_approval_from(row) for row in rows)


def _require_pending(db: apsw.Connection, approval_id: int) -> Approval:
    rows = (
        rows_of(db, f"SELECT {_COLUMNS} FROM approvals WHERE id = ?", (approval_id,)) if is_row_id(approval_id) else []
    )
    if not rows:
        raise RequestRefused(f"there is no approval {approval_id}: list them for the numbers")
    approval = _approval_from(rows[0])
    if approval.status is not ApprovalStatus.PENDING:
        raise RequestRefused(
            f"approval {approval_id} is {approval.status.value} since {utc_text(approval.resolved_at or 0)}, and a "
            "decision is made once: have it submitted again to decide otherwise"
        )
    return approval


def _act_on_schedule(db: apsw.Connection, approval: Approval, *, now: float, zone: tzinfo) -> tuple[FlowEvent, ...]:
    number = approval.commit_ref
    schedule = _schedules.find_schedule(db, int(number)) if number.isascii() and number.isdigit() else None
    waits = schedule is not None and schedule.status is ScheduleStatus.PENDING
    if approval.status is not ApprovalStatus.APPROVED:
        return _schedules.set_status(db, schedule, ScheduleStatus.CANCELLED).flow if schedule and waits else ()
    if schedule is None or not waits:
        raise RequestRefused(
            f"approval {approval.id} is for schedule {number}, which does not wait for one: deny it instead"
        )
    return _schedules.activate(db, schedule, now=now, zone=zone).flow


def _tell(db: apsw.Connection, approval: Approval, *, now: float, manager: str, by: str) -> tuple[FlowEvent, ...]:
    """Tell the submitter, or the manager where there is none any more; nobody is told what he did himself."""
    there = {OPERATOR, *current_agents(db)}
    to = next((name for name in (approval.submitter, manager) if name in there), None)
    if to is None or to == by:
        return ()
    event = {
        "event": "approval_resolved",
        "id": approval.id,
        "agent": approval.agent,
        "kind": approval.kind.value,
        "commit_ref": approval.commit_ref,
        "status": approval.status.value,
        "note": approval.note,
    }
    return _store.deliver(db, now=now, sender=SYSTEM, to=to, body=json.dumps(event)).flow


def _approval_from(row: tuple[Any, ...]) -> Approval:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Approval(
        **(fields | {"kind": ApprovalKind(fields["kind"]), "status": ApprovalStatus(fields["status"])}),
    )


def _changed(approval: Approval) -> RecordsChanged:
    return RecordsChanged(kind=RecordKind.APPROVALS, agent=approval.agent)
