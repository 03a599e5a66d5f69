"""What the hive and the operator do with what is kept beside messages: approvals, permissions, notices.

Owns their verbs and nothing of their rules, which are in the room of each concept. ``Broker`` has these methods. What
an agent has of its own is at its mailbox, which the hive can make for any name; schedules of everybody are at the
operator's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial

from . import _approvals, _notices, _reminders
from ._approvals import Approval, ApprovalKind, ApprovalStatus
from ._engine import Engine
from ._notices import Noted, Notice
from ._permissions import Permissions, all_permissions, permissions_of, set_permissions
from ._rules import check_limit, require_agent_name
from ._types import OPERATOR, JsonObject

__all__ = ["HiveRecords"]


class HiveRecords:
    """The hive's side of the records; see ``BrokerMailbox`` for calls, cancellation and what every method can raise."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # --- approvals

    async def submit_approval(
        self,
        kind: ApprovalKind,
        *,
        agent: str,
        commit_ref: str = "",
        fetched_sha: str | None = None,
        description: str | None = None,
        submitter: str | None = None,
    ) -> Approval:
        """Put something up for the operator's decision (APPR-1); what is pending already is that entry.

        Args:
            kind: what is asked for. Schedules are put up by ``BrokerMailbox.request_schedule``.
            agent: whom it is about; need not be one yet.
            commit_ref: what exactly, in the words of its kind.
            fetched_sha: the commit that was looked at.
            description: what the operator reads.
            submitter: who asks, known from the connection it came over and not from its words (SYS-2).

        Raises:
            RequestRefused: a text cannot be kept.
            ValueError: nobody can have one of the names; or it is for a schedule.
        """
        require_agent_name(agent)
        if submitter is not None and submitter != OPERATOR:
            require_agent_name(submitter)
        if kind is ApprovalKind.SCHEDULE_PROMPT:
            raise ValueError("a schedule comes with its approval: call request_schedule of the mailbox that asks")
        work = partial(
            _approvals.submit_approval,
            now=self._engine.clock(),
            kind=kind,
            agent=agent,
            commit_ref=commit_ref,
            fetched_sha=fetched_sha,
            description=description,
            submitter=submitter,
        )
        return await self._engine.change(work, size_bytes=len(commit_ref) + len(description or ""))

    async def approvals(
        self, *, pending_only: bool = False, limit: int = 200, before_id: int | None = None
    ) -> tuple[Approval, ...]:
        """The queue, newest first (HOST-1).

        Args:
            pending_only: leave out what is resolved.
            limit: entries at most.
            before_id: only older ones than this id, to page on.
        """
        check_limit(limit)
        look = partial(_approvals.list_approvals, pending_only=pending_only, limit=limit, before_id=before_id)
        return await self._engine.look(look)

    async def approve(self, approval_id: int, *, note: str | None = None) -> Approval:
        """Approve a pending entry, once; whoever submitted it is told with the same commit (APPR-1, SYS-1).

        An approved schedule fires from here on. All other kinds are acted on by the caller, who acts first and then
        calls this or ``fail``: an entry that was acted on halfway when the hive died is pending still.

        Raises:
            RequestRefused: there is none, or it is resolved already.
        """
        return await self._resolve(approval_id, ApprovalStatus.APPROVED, note)

    async def deny(self, approval_id: int, *, note: str | None = None) -> Approval:
        """Deny a pending entry; see ``approve``."""
        return await self._resolve(approval_id, ApprovalStatus.DENIED, note)

    async def fail(self, approval_id: int, *, note: str) -> Approval:
        """Say of a pending entry that it was to be approved and acting on it failed; see ``approve``."""
        return await self._resolve(approval_id, ApprovalStatus.FAILED, note)

    async def cancel(self, approval_id: int, *, note: str | None = None) -> Approval:
        """Withdraw a pending entry; see ``approve``."""
        return await self._resolve(approval_id, ApprovalStatus.CANCELLED, note)

    async def _resolve(self, approval_id: int, status: ApprovalStatus, note: str | None) -> Approval:
        work = partial(
            _approvals.resolve_approval,
            now=self._engine.clock(),
            zone=self._engine.zone,
            approval_id=approval_id,
            status=status,
            note=note,
            manager=self._engine.manager,
        )
        return await self._engine.change(work)

    # --- permissions

    async def permissions(self) -> Mapping[str, Permissions]:
        """What was set for every agent for which something was (PERM-2)."""
        return await self._engine.look(all_permissions)

    async def permissions_of(self, agent: str) -> Permissions | None:
        """What was set for this agent, None where it has what is configured."""
        return await self._engine.look(partial(permissions_of, agent=agent))

    async def set_permissions(
        self, agent: str, *, groups: Collection[str], capabilities: Collection[str] = ()
    ) -> Permissions:
        """Make these all that an agent may use; watchers are told after the commit (PERM-2, PERM-5).

        Raises:
            RequestRefused: a word no group or capability can be called.
            ValueError: no agent can have that name.
        """
        require_agent_name(agent)
        work = partial(
            set_permissions,
            now=self._engine.clock(),
            agent=agent,
            groups=tuple(groups),
            capabilities=tuple(capabilities),
        )
        return await self._engine.change(work)

    # --- notices for the swarm

    async def add_notice(self, subject: str, body: JsonObject, *, dedupe_id: str) -> Noted:
        """Store a notice to be sent, once for each ``dedupe_id`` (SWARM-1).

        Raises:
            RequestRefused: the subject, the body or the id cannot be sent.
            TypeError, ValueError: ``body`` is not JSON.
        """
        text = json.dumps(dict(body), allow_nan=False)
        work = partial(_notices.add_notice, now=self._engine.clock(), subject=subject, body=text, dedupe_id=dedupe_id)
        return await self._engine.change(work, size_bytes=len(text))

    async def unsent_notices(self, *, limit: int = 100) -> tuple[Notice, ...]:
        """The notices to send next, oldest first."""
        check_limit(limit)
        return await self._engine.look(partial(_notices.unsent_notices, limit=limit))

    async def mark_notices_sent(self, ids: Collection[int]) -> int:
        """Say that these notices are sent; return how many were not before."""
        work = partial(_notices.mark_notices_sent, now=self._engine.clock(), ids=tuple(ids))
        return await self._engine.change(work)

    # --- figures

    async def reminder_counts(self) -> Mapping[str, int]:
        """How many reminders each name that has any has pending (HOST-1)."""
        return await self._engine.look(_reminders.reminder_counts)
