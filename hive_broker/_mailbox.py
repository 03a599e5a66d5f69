"""One name's door to the broker, in process.

Owns the checks that need no database and the limits of one caller; who calls is fixed when the mailbox is made
(SURF-5). ``Broker.mailbox`` makes them; the shape is the one agents are written against.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import final

from . import _queries, _store
from ._agent_records import AgentRecords
from ._errors import MessageRefused
from ._rules import check_body, check_label
from ._types import RECV_CAP, SYSTEM, Acked, InboxSummary, Received, Sent, TurnClosed, TurnLease

__all__ = ["BrokerMailbox"]


@final
class BrokerMailbox(AgentRecords):
    """The inbox and outbox of one agent, or of the operator; made by ``Broker.mailbox``.

    Every method that changes something returns after its commit. A caller that is cancelled either gets
    ``trio.Cancelled`` and nothing happened, or gets its answer. Each of them raises ``BrokerClosed`` after the broker
    closed, and ``BrokerUnavailable`` or ``BrokerDamaged`` when the world or the file says no: nothing was done then.
    """

    @property
    def name(self) -> str:
        """Whose mailbox it is."""
        return self._name

    async def send(self, *, to: str, body: str, in_reply_to: int | None = None, turn_id: int | None = None) -> Sent:
        """Store one message (MSG-1, MSG-2, MSG-3); within a turn the same send twice is one message (MSG-9).

        Args:
            to: an agent of this hive or ``operator``.
            body: at most ``MAX_BODY_BYTES`` in UTF-8.
            in_reply_to: the id of a message this name sent or received; the new one joins its thread (MSG-11).
            turn_id: the open turn it is sent in, if it is.

        Raises:
            MessageRefused: with the reason and what to do; also when a budget of the loop guard is used up (MSG-10).
            TurnOver: ``turn_id`` is not an open turn of this name.
        """
        size_bytes = check_body(body)
        work = partial(
            _store.send,
            now=self._engine.clock(),
            sender=self._name,
            to=to,
            body=body,
            in_reply_to=in_reply_to,
            turn_id=turn_id,
            allowed=self._allowed,
            budgets=self._engine.budgets,
        )
        answer = await self._engine.change(work, size_bytes=size_bytes)
        if isinstance(answer, MessageRefused):
            raise answer
        return answer

    async def recv(self, *, limit: int = 1, turn_id: int | None = None, limit_bytes: int | None = None) -> Received:
        """Pop up to ``limit`` unread rows, oldest first, without waiting for any (MSG-4, MSG-5).

        Args:
            limit: 1 to ``RECV_CAP``.
            turn_id: the open turn they are popped under; None pops them under a lease of ``lease_seconds``.
            limit_bytes: what the bodies of several may have together; the first is popped in any case.

        Raises:
            ValueError: the limit is out of its range.
            TurnOver: ``turn_id`` is not an open turn of this name.
        """
        if not 1 <= limit <= RECV_CAP:
            raise ValueError(f"limit must be 1 to {RECV_CAP}, got {limit!r}: clamp it before")
        work = partial(
            _store.recv,
            now=self._engine.clock(),
            agent=self._name,
            limit=limit,
            turn_id=turn_id,
            lease_seconds=self._engine.lease_seconds,
            limit_bytes=limit_bytes,
        )
        return await self._engine.change(work)

    async def ack_until(self, up_to: int) -> Acked:
        """Stamp every unacked row of this name with id <= ``up_to``, read or not (MSG-7)."""
        return await self._engine.change(
            partial(_store.ack_until, now=self._engine.clock(), agent=self._name, up_to=up_to)
        )

    async def summary(self) -> InboxSummary:
        """Look at the unread rows without popping any."""
        return await self._engine.look(partial(_queries.summary, agent=self._name))

    async def wait_unread(self) -> None:
        """Return as soon as there is an unread row; at once when there is one already (TURN-2)."""
        await self._engine.wait_unread(self._name)

    async def open_turn(self, *, cause: str) -> TurnLease:
        """Open this name's turn; at most one is open at a time (TURN-4).

        Raises:
            TurnOver: the previous one is still open.
        """
        return await self._engine.change(
            partial(_store.open_turn, now=self._engine.clock(), agent=self._name, cause=cause)
        )

    async def close_turn(
        self, turn_id: int, *, acked: bool, record: Mapping[str, object], blameless: bool = False
    ) -> TurnClosed:
        """Ack what the turn popped, or return it, in one transaction with its record (MSG-5, TURN-7).

        Closing a turn that is already closed changes nothing and answers with empty tuples.

        Args:
            turn_id: from ``open_turn``.
            acked: True when the turn ended well.
            record: the turn's statistics, kept as they are; must be a JSON object.
            blameless: what was popped is not to blame, so this attempt does not count against it (MSG-6).

        Raises:
            TurnOver: this name never had such a turn.
            TypeError, ValueError: ``record`` is not JSON.
        """
        text = json.dumps(dict(record), allow_nan=False)
        work = partial(
            _store.close_turn,
            now=self._engine.clock(),
            agent=self._name,
            turn_id=turn_id,
            acked=acked,
            blameless=blameless,
            record=text,
            max_deliveries=self._engine.max_deliveries,
        )
        return await self._engine.change(work, size_bytes=len(text))

    # --- for the socket

    async def wake(self, *, label: str, body: str) -> Sent:
        """Store a message to this name from a label that is nobody's name (WAKE-2).

        Raises:
            MessageRefused: with the reason and what to do.
        """
        check_label(label)
        if label == SYSTEM:
            raise MessageRefused(f"a label must not be a reserved name, got {label!r}: choose another label")
        size_bytes = check_body(body)
        work = partial(_store.wake, now=self._engine.clock(), label=label, to=self._name, body=body)
        return await self._engine.change(work, size_bytes=size_bytes)

    async def begin_life(self, *, client: str, has_turn: bool) -> None:
        """End the turn that an earlier life of this agent left open, so that its rows are unread again (TURN-4).

        Args:
            client: the life that runs this agent's turns from here on.
            has_turn: whether it says of a turn that it is its own; only then one it opened before is left.
        """
        work = partial(
            _store.end_turn_of,
            now=self._engine.clock(),
            agent=self._name,
            but_of=client if has_turn else None,
            max_deliveries=self._engine.max_deliveries,
        )
        await self._engine.change(work)
