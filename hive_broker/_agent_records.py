"""What an agent keeps at the broker beside its mail: reminders, todos, schedules, and what it sees of the rest.

Owns the agent's verbs and nothing of their rules, which are in the room of each concept. ``BrokerMailbox`` has these
methods; each makes one change.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from . import _approvals, _reminders, _schedule_requests, _schedules, _todos
from ._approvals import Approval, ApprovalStatus
from ._engine import Engine
from ._errors import RequestRefused
from ._permissions import Permissions, permissions_of
from ._reminders import Reminder
from ._schedule_requests import Fired, ScheduleEdit
from ._schedules import Schedule
from ._timetable import Timetable
from ._todos import Todo, TodosDone, TodoUpserted
from ._types import OPERATOR

__all__ = ["AgentRecords"]

_LISTED_CAP = 200
"""Schedules or approvals that one call gives: what is open, and the newest of the rest."""


class AgentRecords:
    """The records of one name; see ``BrokerMailbox`` for calls, cancellation and what every method can raise."""

    def __init__(self, engine: Engine, name: str, allowed_recipients: Collection[str]) -> None:
        self._engine = engine
        self._name = name
        self._allowed = frozenset(allowed_recipients)

    # --- reminders

    async def remind(
        self,
        message: str,
        *,
        delay_seconds: float | None = None,
        at: float | None = None,
        spill_path: str | None = None,
    ) -> Reminder:
        """Leave a message for this name's own inbox (INB-3).

        It fires once, from sender ``reminder``, by the wall clock: also after a restart, and late rather than never.

        Args:
            message: at most ``REMINDER_LIMIT_BYTES`` in UTF-8; of a longer text its beginning.
            delay_seconds: from now; either this or ``at``.
            at: unix seconds.
            spill_path: this agent's file with the whole text, where ``message`` is its beginning.

        Raises:
            RequestRefused: the message, the instant, or that too many are pending.
        """
        work = partial(
            _reminders.add_reminder,
            now=self._engine.clock(),
            agent=self._name,
            message=message,
            delay_seconds=delay_seconds,
            at=at,
            spill_path=spill_path,
            max_pending=self._engine.max_pending_reminders,
        )
        return await self._engine.change(work, size_bytes=len(message))

    async def reminders(self) -> tuple[Reminder, ...]:
        """This name's reminders that have not fired, the next one first (INB-1)."""
        return await self._engine.look(partial(_reminders.pending_reminders, agent=self._name))

    async def cancel_reminder(self, reminder_id: int) -> Reminder:
        """Delete a pending reminder of this name (INB-2).

        Raises:
            RequestRefused: it has none of that id.
        """
        work = partial(_reminders.cancel_reminder, agent=self._name, reminder_id=reminder_id)
        return await self._engine.change(work)

    # --- todos

    async def upsert_todo(self, *, subsystem: str, key: str, summary: str) -> TodoUpserted:
        """Open a todo, or give the open one of this key another summary (WAKE-1).

        Raises:
            RequestRefused: a word or the summary, or that too many are open.
        """
        work = partial(
            _todos.upsert_todo,
            now=self._engine.clock(),
            agent=self._name,
            subsystem=subsystem,
            key=key,
            summary=summary,
        )
        return await self._engine.change(work, size_bytes=len(summary))

    async def clear_todo(self, *, subsystem: str, key: str) -> bool:
        """Mark the open todo of this key done; return whether there was one (WAKE-1)."""
        work = partial(_todos.clear_todo, now=self._engine.clock(), agent=self._name, subsystem=subsystem, key=key)
        return await self._engine.change(work)

    async def todos(self) -> tuple[Todo, ...]:
        """This name's open todos by subsystem (INB-1)."""
        return await self._engine.look(partial(_todos.open_todos, agent=self._name))

    async def mark_todos_done(self, ids: Collection[int]) -> TodosDone:
        """Mark these open todos of this name done; say which were none (SELF-3)."""
        work = partial(_todos.mark_todos_done, now=self._engine.clock(), agent=self._name, ids=tuple(ids))
        return await self._engine.change(work)

    # --- schedules

    async def request_schedule(
        self,
        *,
        targets: Collection[str],
        body: str,
        first_fire_at: float,
        interval_seconds: float | None = None,
        cron: str | None = None,
        description: str | None = None,
    ) -> Schedule:
        """Ask for a prompt at set instants (SCHED-1): it waits for approval, unless the operator asks.

        It fires from sender ``schedule``. What came due while the hive was not there is caught up with one fire for
        each target, which says how many it stands for; such fires are spread over time.

        Args:
            targets: agents this name may write to, or itself.
            body: the prompt.
            first_fire_at: unix seconds; with a repetition it may be past, and the first instant to come is the first.
            interval_seconds: between two fires; either this, ``cron`` or neither.
            cron: minute, hour, day, month and weekday, in the time zone of this host.
            description: what it is for, for whoever decides.

        Raises:
            RequestRefused: something of it is not acceptable, or too many wait or fire already.
            MessageRefused: a target is unknown, or not one this name may write to (MSG-2).
        """
        work = partial(
            _schedule_requests.request_schedule,
            now=self._engine.clock(),
            zone=self._engine.zone,
            requested_by=self._name,
            targets=tuple(targets),
            body=body,
            timetable=Timetable(first_fire_at=first_fire_at, interval_seconds=interval_seconds, cron=cron),
            description=description,
            allowed=self._allowed,
        )
        return await self._engine.change(work, size_bytes=len(body))

    async def edit_schedule(self, schedule_id: int, edit: ScheduleEdit) -> Schedule:
        """Change a schedule this name requested; the operator can change any (SCHED-1).

        An agent's edit waits for approval anew, and nothing fires until then. The operator's waits for nothing.

        Raises:
            RequestRefused: there is none that is pending or active, or the change is not acceptable.
            MessageRefused: a target is unknown, or not one this name may write to (MSG-2).
        """
        work = partial(
            _schedule_requests.edit_schedule,
            now=self._engine.clock(),
            zone=self._engine.zone,
            by=self._name,
            schedule_id=schedule_id,
            edit=edit,
            allowed=self._allowed,
        )
        return await self._engine.change(work, size_bytes=len(edit.body or ""))

    async def cancel_schedule(self, schedule_id: int) -> Schedule:
        """Let a schedule this name requested fire no more; the operator can cancel any (SCHED-1).

        Raises:
            RequestRefused: there is none that is pending or active.
        """
        work = partial(
            _schedule_requests.cancel_schedule, now=self._engine.clock(), by=self._name, schedule_id=schedule_id
        )
        return await self._engine.change(work)

    async def fire_schedule_now(self, schedule_id: int) -> Fired:
        """Prompt all targets of an active schedule this name requested; the operator can fire any (SCHED-1).

        Raises:
            RequestRefused: there is none, or it is not active.
        """
        work = partial(
            _schedule_requests.fire_schedule_now, now=self._engine.clock(), by=self._name, schedule_id=schedule_id
        )
        return await self._engine.change(work)

    async def schedules(self) -> tuple[Schedule, ...]:
        """Schedules this name requested or is a target of, those that are open first; the operator sees all."""
        about = None if self._name == OPERATOR else self._name
        return await self._engine.look(partial(_schedules.list_schedules, about=about, limit=_LISTED_CAP))

    # --- what the operator decides

    async def pending_approvals(self) -> tuple[Approval, ...]:
        """What waits for the operator's word, newest first: for the manager and the operator, nothing for others."""
        look = partial(_approvals.list_approvals, pending_only=True, limit=_LISTED_CAP, before_id=None)
        found = await self._engine.look(look)
        return found if self._name in (OPERATOR, self._engine.manager) else ()

    async def cancel_approval(self, approval_id: int, *, note: str | None = None) -> Approval:
        """Cancel a pending approval, as the manager may (INB-2).

        Raises:
            RequestRefused: there is none, it is resolved, or this name is not the manager.
        """
        if self._name not in (OPERATOR, self._engine.manager):
            raise RequestRefused(f"you can cancel no approval {approval_id}: that is for the manager, write to it")
        work = partial(
            _approvals.resolve_approval,
            now=self._engine.clock(),
            zone=self._engine.zone,
            approval_id=approval_id,
            status=ApprovalStatus.CANCELLED,
            note=note,
            manager=self._engine.manager,
            by=self._name,
        )
        return await self._engine.change(work)

    async def permissions(self) -> Permissions | None:
        """What the operator set for this name; None where it has what is configured (PERM-2)."""
        return await self._engine.look(partial(permissions_of, agent=self._name))
