"""The back room of the post office in memory: rows, leases and turns of all agents.

Owns the rules, and decides synchronously. Called by ``_mailbox`` only, which adds the checkpoints and the public names.
Knows no budgets (MSG-10).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Final, final

import attrs
import trio

from hive_agent._ports import WallClock
from hive_agent.testing._refusals import check_body, check_label, check_recipient, unknown_recipient
from hive_broker import (
    OPERATOR,
    RECV_CAP,
    SYSTEM,
    Acked,
    Delivery,
    InboxSummary,
    Message,
    MessageRefused,
    Received,
    Sent,
    TurnClosed,
    TurnLease,
    TurnOver,
)

__all__ = ["LEASE_SECONDS", "Desk"]

_MAX_DELIVERIES: Final = 5
"""Attempts until a row is a dead letter (MSG-6)."""

LEASE_SECONDS: Final = 600.0
"""How long a row popped outside a turn is in flight (MSG-5)."""


@attrs.define(kw_only=True, eq=False)
class _Row:
    message: Message
    from_mailbox: bool  # else its sender is the hive, or a label that only claims to be somebody
    turn_id: int | None = None
    lease_until: float | None = None  # trio's clock
    failures: int = 0

    @property
    def open(self) -> bool:
        return self.message.acked_at is None and self.message.dead_at is None

    @property
    def unread(self) -> bool:
        return self.open and self.turn_id is None and self.lease_until is None


@attrs.define(kw_only=True, eq=False)
class _Turn:
    lease: TurnLease
    sent: dict[tuple[str, str, int | None], int] = attrs.Factory(dict)


@final
class Desk:
    """The rows of all agents and what is done with them."""

    def __init__(self, *, wall_clock: WallClock, lease_seconds: float) -> None:
        self._wall_clock = wall_clock
        self._lease_seconds = lease_seconds
        self._agents: dict[str, bool] = {}  # every name there ever was: whether it is an agent now
        self._rows: dict[int, _Row] = {}
        self._open_turns: dict[str, _Turn] = {}
        self._turn_owners: list[str] = []  # of turn 1, 2, ...
        self._records: list[Mapping[str, object]] = []
        self._news = trio.Event()

    def set_agents(self, names: Collection[str]) -> None:
        """Make these the agents; earlier ones keep their rows."""
        self._agents = {**dict.fromkeys(self._agents, False), **dict.fromkeys(names, True)}

    @property
    def records(self) -> tuple[Mapping[str, object], ...]:
        """The records that turns were closed with."""
        return tuple(self._records)

    def messages(self, recipient: str) -> tuple[Message, ...]:
        """Everything that was ever sent to ``recipient``."""
        self._end_leases()
        return tuple(row.message for row in self._rows.values() if row.message.recipient == recipient)

    def send(
        self,
        sender: str,
        *,
        to: str,
        body: str,
        in_reply_to: int | None = None,
        turn_id: int | None = None,
        allowed: Collection[str] = (),
    ) -> Sent:
        """Refuse, or store, or name the first id when this turn sent the same before."""
        check_body(body)
        turn = None if turn_id is None else self._turn(sender, turn_id)
        check_recipient(to, allowed)
        key = (to, body, in_reply_to)
        if turn is not None and key in turn.sent:
            return Sent(id=turn.sent[key], duplicate=True)
        self._require_agent(to)
        if sender != OPERATOR and not self._agents.get(sender):
            raise MessageRefused(f"only agents of this hive can send, and {sender!r} is none now: add it first")
        parent = None if in_reply_to is None else self._parent(sender, in_reply_to)
        message = self._store(sender, to, body, parent=parent, from_mailbox=True)
        if turn is not None:
            turn.sent[key] = message.id
        return Sent(id=message.id)

    def deliver(self, sender: str, to: str, body: str) -> Sent:
        """Store a message of the hive or of a label, or refuse it."""
        check_body(body)
        check_label(sender)
        if sender in self._agents:
            raise MessageRefused(f"a label must not be an agent's name, got {sender!r}: choose another one")
        check_recipient(to, ())
        self._require_agent(to)
        return Sent(id=self._store(sender, to, body, parent=None, from_mailbox=False).id)

    def _require_agent(self, to: str) -> None:
        if to == OPERATOR or self._agents.get(to):
            return
        if to in self._agents:
            raise MessageRefused(f"{to} is no agent of this hive any more and gets no mail: write to {OPERATOR!r}")
        raise unknown_recipient(to, [name for name, current in self._agents.items() if current])

    def _parent(self, sender: str, in_reply_to: int) -> Message:
        row = self._rows.get(in_reply_to)
        if row is None or not (row.message.recipient == sender or (row.from_mailbox and row.message.sender == sender)):
            raise MessageRefused(
                f"in_reply_to must be a message you sent or received, got {in_reply_to}: "
                "use an id that recv showed, or leave it out"
            )
        return row.message

    def _store(self, sender: str, recipient: str, body: str, *, parent: Message | None, from_mailbox: bool) -> Message:
        number = len(self._rows) + 1
        message = Message(
            id=number,
            sender=sender,
            recipient=recipient,
            body=body,
            in_reply_to=parent.id if parent else None,
            thread_id=parent.thread_id if parent else number,
            sent_at=self._wall_clock(),
        )
        self._rows[number] = _Row(message=message, from_mailbox=from_mailbox)
        self._tell()
        return message

    def recv(self, name: str, limit: int, turn_id: int | None) -> Received:
        """Pop the oldest unread rows under a turn, or under a lease of their own."""
        if not 1 <= limit <= RECV_CAP:
            raise ValueError(f"limit must be 1 to {RECV_CAP}, got {limit}: clamp it before")
        if turn_id is not None:
            self._turn(name, turn_id)
        unread = self._unread(name)
        for row in unread[:limit]:
            row.message = attrs.evolve(row.message, attempts=row.message.attempts + 1)
            row.turn_id = turn_id
            row.lease_until = trio.current_time() + self._lease_seconds if turn_id is None else None
        popped = (Delivery(message=row.message, attempt=row.message.attempts) for row in unread[:limit])
        return Received(deliveries=tuple(popped), remaining=len(unread[limit:]))

    def ack_until(self, name: str, up_to: int) -> Acked:
        """Stamp every row of ``name`` up to an id that is neither acked nor dead."""
        self._end_leases()
        rows = [row for row in self._rows.values() if row.open and row.message.recipient == name]
        rows = [row for row in rows if row.message.id <= up_to]
        for row in rows:
            self._ack(row)
        return Acked(acked=len(rows), never_read=sum(row.message.attempts == 0 for row in rows))

    def summary(self, name: str) -> InboxSummary:
        """Look at the unread rows."""
        messages = [row.message for row in self._unread(name)]
        senders: dict[str, int] = {}
        for message in messages:
            senders[message.sender] = senders.get(message.sender, 0) + 1
        return InboxSummary(
            unread=len(messages),
            redelivered=sum(message.attempts > 0 for message in messages),
            senders=tuple(senders.items()),
            oldest_sent_at=messages[0].sent_at if messages else None,
        )

    async def wait_unread(self, name: str) -> None:
        """Return as soon as there is an unread row, also one whose lease ended."""
        while not self._unread(name):
            deadlines = [row.lease_until for row in self._rows.values() if row.open and row.lease_until is not None]
            with trio.move_on_at(min(deadlines, default=math.inf)):
                await self._news.wait()

    def open_turn(self, name: str) -> TurnLease:
        """Open the turn of ``name``, unless one is open."""
        if turn := self._open_turns.get(name):
            raise TurnOver(f"an agent can have one open turn, turn {turn.lease.id} of {name} still is: close it first")
        self._turn_owners.append(name)
        lease = TurnLease(id=len(self._turn_owners), agent=name, opened_at=self._wall_clock())
        self._open_turns[name] = _Turn(lease=lease)
        return lease

    def close_turn(
        self, name: str, turn_id: int, acked: bool, record: Mapping[str, object], blameless: bool
    ) -> TurnClosed:
        """Close a turn; one that is closed already stays as it is."""
        if not 1 <= turn_id <= len(self._turn_owners) or self._turn_owners[turn_id - 1] != name:
            raise TurnOver(f"turn {turn_id} is no turn of {name}: close the one that open_turn gave")
        turn = self._open_turns.get(name)
        if turn is None or turn.lease.id != turn_id:
            return TurnClosed(acked=(), returned=(), dead=())
        del self._open_turns[name]
        self._records.append(dict(record))
        rows = [row for row in self._rows.values() if row.open and row.turn_id == turn_id]
        if acked:
            for row in rows:
                self._ack(row)
            return TurnClosed(acked=tuple(row.message.id for row in rows), returned=(), dead=())
        dead = self._give_back(rows, blameless=blameless)
        returned = tuple(row.message.id for row in rows if row.message.id not in dead)
        return TurnClosed(acked=(), returned=returned, dead=dead)

    def _turn(self, name: str, turn_id: int) -> _Turn:
        turn = self._open_turns.get(name)
        if turn is None or turn.lease.id != turn_id:
            raise TurnOver(f"turn {turn_id} is not an open turn of {name}: open a turn first")
        return turn

    def _unread(self, name: str) -> list[_Row]:
        self._end_leases()
        return [row for row in self._rows.values() if row.unread and row.message.recipient == name]

    def _end_leases(self) -> None:
        """Give back what was popped outside a turn and not acked in time."""
        timed = [row for row in self._rows.values() if row.open and row.lease_until is not None]
        if timed:
            now = trio.current_time()
            self._give_back([row for row in timed if row.lease_until is not None and row.lease_until <= now])

    def _give_back(self, rows: Collection[_Row], *, blameless: bool = False) -> tuple[int, ...]:
        """Make rows unread again; returns those that became dead letters instead (MSG-6)."""
        for row in rows:
            row.turn_id = row.lease_until = None
            row.failures += not blameless
        dead = [row for row in rows if row.failures >= _MAX_DELIVERIES]
        for row in dead:
            row.message = attrs.evolve(row.message, dead_at=self._wall_clock())
        for row in dead:
            self._tell_sender(row)
        self._tell()
        return tuple(row.message.id for row in dead)

    def _tell_sender(self, dead: _Row) -> None:
        message = dead.message
        if dead.from_mailbox and (message.sender == OPERATOR or self._agents.get(message.sender)):
            text = f"message #{message.id} to {message.recipient} is a dead letter: none of its deliveries ended well"
            event = {"event": "dead_letter", "id": message.id, "to": message.recipient, "attempts": message.attempts}
            body = json.dumps({**event, "text": text})
            self._store(SYSTEM, message.sender, body, parent=message, from_mailbox=False)

    def _ack(self, row: _Row) -> None:
        row.message = attrs.evolve(row.message, acked_at=self._wall_clock())
        row.turn_id = row.lease_until = None

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()
