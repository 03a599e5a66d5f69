"""What an agent keeps at the broker beside its mail, over a socket: the face of ``AgentRecords`` at the other end."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from ._approvals import Approval
from ._link import Link
from ._permissions import Permissions
from ._reminders import Reminder
from ._schedule_requests import Fired, ScheduleEdit
from ._schedules import Schedule
from ._todos import Todo, TodosDone, TodoUpserted

__all__ = ["SocketRecords"]


class SocketRecords:
    """The records of one name; every method does what ``AgentRecords``'s of its name does."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def remind(
        self,
        message: str,
        *,
        delay_seconds: float | None = None,
        at: float | None = None,
        spill_path: str | None = None,
    ) -> Reminder:
        """See ``AgentRecords.remind``."""
        answer = await self._link.ask(
            "remind", message=message, delay_seconds=delay_seconds, at=at, spill_path=spill_path
        )
        return cast("Reminder", answer)

    async def reminders(self) -> tuple[Reminder, ...]:
        """See ``AgentRecords.reminders``."""
        return cast("tuple[Reminder, ...]", await self._link.ask("reminders"))

    async def cancel_reminder(self, reminder_id: int) -> Reminder:
        """See ``AgentRecords.cancel_reminder``."""
        return cast("Reminder", await self._link.ask("cancel_reminder", reminder_id=reminder_id))

    async def upsert_todo(self, *, subsystem: str, key: str, summary: str) -> TodoUpserted:
        """See ``AgentRecords.upsert_todo``."""
        answer = await self._link.ask("upsert_todo", subsystem=subsystem, key=key, summary=summary)
        return cast("TodoUpserted", answer)

    async def clear_todo(self, *, subsystem: str, key: str) -> bool:
        """See ``AgentRecords.clear_todo``."""
        return cast("bool", await self._link.ask("clear_todo", subsystem=subsystem, key=key))

    async def todos(self) -> tuple[Todo, ...]:
        """See ``AgentRecords.todos``."""
        return cast("tuple[Todo, ...]", await self._link.ask("todos"))

    async def mark_todos_done(self, ids: Collection[int]) -> TodosDone:
        """See ``AgentRecords.mark_todos_done``."""
        return cast("TodosDone", await self._link.ask("mark_todos_done", ids=tuple(ids)))

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
        """See ``AgentRecords.request_schedule``."""
        answer = await self._link.ask(
            "request_schedule",
            targets=tuple(targets),
            body=body,
            first_fire_at=first_fire_at,
            interval_seconds=interval_seconds,
            cron=cron,
            description=description,
        )
        return cast("Schedule", answer)

    async def edit_schedule(self, schedule_id: int, edit: ScheduleEdit) -> Schedule:
        """See ``AgentRecords.edit_schedule``."""
        return cast("Schedule", await self._link.ask("edit_schedule", schedule_id=schedule_id, edit=edit))

    async def cancel_schedule(self, schedule_id: int) -> Schedule:
        """See ``AgentRecords.cancel_schedule``."""
        return cast("Schedule", await self._link.ask("cancel_schedule", schedule_id=schedule_id))

    async def fire_schedule_now(self, schedule_id: int) -> Fired:
        """See ``AgentRecords.fire_schedule_now``."""
        return cast("Fired", await self._link.ask("fire_schedule_now", schedule_id=schedule_id))

    async def schedules(self) -> tuple[Schedule, ...]:
        """See ``AgentRecords.schedules``; of very long ones those that one answer holds, the open ones first."""
        return cast("tuple[Schedule, ...]", await self._link.ask("schedules"))

    async def pending_approvals(self) -> tuple[Approval, ...]:
        """See ``AgentRecords.pending_approvals``."""
        return cast("tuple[Approval, ...]", await self._link.ask("pending_approvals"))

    async def cancel_approval(self, approval_id: int, *, note: str | None = None) -> Approval:
        """See ``AgentRecords.cancel_approval``."""
        return cast("Approval", await self._link.ask("cancel_approval", approval_id=approval_id, note=note))

    async def permissions(self) -> Permissions | None:
        """See ``AgentRecords.permissions``."""
        return cast("Permissions | None", await self._link.ask("permissions"))
