"""What may be written to the database, each change as one function.

Owns the rules that need the rows: who may be written to, what is popped, acked, returned, dead (MSG-1 to MSG-9,
TURN-4). Every function runs inside somebody's transaction, takes ``now``, and answers with what it did; it knows no
event loop, thread or clock, and imports apsw only. ``_writer`` gives it its transactions.
"""
# ruff: noqa: S608 -- the pieces put into the SQL are constants, never a caller's text

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import accumulate

import apsw

from ._errors import MessageRefused, TurnOver
from ._flow import (
    Done,
    FlowEvent,
    MessagesAcked,
    MessagesDied,
    MessageSent,
    MessagesPopped,
    MessagesReturned,
    RecordKind,
    RecordsChanged,
)
from ._guard import LoopBudgets, Verdict, admit
from ._queries import COLUMNS, FROM_UNREAD, UNACKED, UNREAD, current_agents, message_from, rows_of, unread_count
from ._rules import check_recipient, is_row_id, refuse_unknown_recipient
from ._types import OPERATOR, SYSTEM, Acked, Delivery, Message, Received, Sent, TurnClosed, TurnLease, is_agent_name

__all__ = [
    "ack_until",
    "close_turn",
    "deliver",
    "end_expired_leases",
    "end_held_turns",
    "end_previous_life",
    "end_turn_of",
    "open_turn",
    "recv",
    "send",
    "set_agents",
    "wake",
]

WAKES_UNREAD = 1000
"""Unread rows of an inbox beyond which no label can add to it: a program in a loop must not fill the disk (REL-4)."""


def set_agents(db: apsw.Connection, names: Collection[str]) -> Done[None]:
    """Make ``names`` the agents of this hive; earlier ones keep their rows and cannot be written to any more."""
    db.execute("UPDATE agents SET current = 0 WHERE current = 1")
    db.executemany(
        "INSERT INTO agents (name, current) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET current = 1",
        [(name,) for name in names],
    )
    return Done(None, (RecordsChanged(kind=RecordKind.AGENTS),))


def send(
    db: apsw.Connection,
    *,
    now: float,
    sender: str,
    to: str,
    body: str,
    in_reply_to: int | None = None,
    turn_id: int | None = None,
    allowed: Collection[str] = (),
    budgets: LoopBudgets | None = None,
) -> Done[Sent | MessageRefused]:
    """Store one message of an agent or the operator (MSG-1); the same one again in its turn is the first (MSG-9).

    Returns:
        what was stored; or the refusal of the loop guard, for the caller to raise once what the guard noted and had
        to say is committed (MSG-10).

    Raises:
        MessageRefused: MSG-2, MSG-3.
        TurnOver: ``turn_id`` is not an open turn of the sender.
    """
    if turn_id is not None:
        _require_open_turn(db, sender, turn_id)
    check_recipient(to, allowed=allowed)
    if turn_id is not None and (first := _sent_before(db, turn_id, to, body, in_reply_to)) is not None:
        return Done(Sent(id=first, duplicate=True))
    _require_current(db, to)
    if sender != OPERATOR and not _is_current(db, sender):
        raise MessageRefused(f"only agents of this hive can send, and {sender!r} is none any more: add it again first")
    thread_id = None if in_reply_to is None else _thread_of(db, sender, in_reply_to)
    verdict = Verdict() if budgets is None else admit(db, budgets=budgets, now=now, sender=sender, to=to)
    if verdict.refusal is not None:
        return Done(verdict.refusal, _give_notice(db, verdict, now=now))
    message = _insert(
        db,
        now=now,
        sender=sender,
        from_mailbox=True,
        recipient=to,
        body=body,
        in_reply_to=in_reply_to,
        thread_id=thread_id,
        turn_id=turn_id,
    )
    return Done(Sent(id=message.id), (MessageSent(message=message), *_give_notice(db, verdict, now=now)))


def _give_notice(db: apsw.Connection, verdict: Verdict, *, now: float) -> tuple[FlowEvent, ...]:
    return tuple(
        MessageSent(
            message=_insert(db, now=now, sender=SYSTEM, from_mailbox=False, recipient=notice.to, body=notice.body)
        )
        for notice in verdict.notices
    )


def deliver(db: apsw.Connection, *, now: float, sender: str, to: str, body: str) -> Done[Sent]:
    """Store one message of the hive itself, or of a label (SYS-1, WAKE-2).

    Raises:
        MessageRefused: MSG-3; or the label is the name of an agent, of now or of earlier.
    """
    if db.execute("SELECT 1 FROM agents WHERE name = ?", (sender,)).get is not None:
        raise MessageRefused(f"a label must not be an agent's name, got {sender!r}: choose another label")
    check_recipient(to, allowed=())
    _require_current(db, to)
    message = _insert(db, now=now, sender=sender, from_mailbox=False, recipient=to, body=body)
    return Done(Sent(id=message.id), (MessageSent(message=message),))


def wake(db: apsw.Connection, *, now: float, label: str, to: str, body: str) -> Done[Sent]:
    """Store a message from a label (WAKE-2), unless so many are unread that one more cannot be what wakes anybody.

    Raises:
        MessageRefused: as ``deliver``; or the inbox is full for labels.
    """
    if unread_count(db, to) >= WAKES_UNREAD:
        raise MessageRefused(f"{to} has {WAKES_UNREAD} unread messages and takes no more wakes: wait until it has read")
    return deliver(db, now=now, sender=label, to=to, body=body)


def recv(
    db: apsw.Connection,
    *,
    now: float,
    agent: str,
    limit: int,
    turn_id: int | None,
    lease_seconds: float,
    limit_bytes: int | None = None,
) -> Done[Received]:
    """Pop up to ``limit`` unread rows, oldest first, under the turn or under a timed lease (MSG-4, MSG-5).

    With ``limit_bytes``, no more of them than have that much to say together, but one at least.

    Raises:
        TurnOver: ``turn_id`` is not an open turn of this agent.
    """
    if turn_id is not None:
        _require_open_turn(db, agent, turn_id)
    lease_until = None if turn_id is not None else now + lease_seconds
    if limit_bytes is not None:
        limit = _how_many_fit(db, agent, limit, limit_bytes)
    rows = rows_of(
        db,
        f"""UPDATE messages SET attempts = attempts + 1, turn_id = ?, lease_until = ?
            WHERE id IN (SELECT id {FROM_UNREAD} WHERE recipient = ? AND {UNREAD} ORDER BY id LIMIT ?)
            RETURNING {COLUMNS}""",
        (turn_id, lease_until, agent, limit),
    )
    popped = tuple(sorted((message_from(row) for row in rows), key=lambda message: message.id))
    received = Received(
        deliveries=tuple(Delivery(message=message, attempt=message.attempts) for message in popped),
        remaining=unread_count(db, agent),
    )
    return Done(received, (MessagesPopped(agent=agent, turn_id=turn_id, messages=popped),) if popped else ())


def ack_until(db: apsw.Connection, *, now: float, agent: str, up_to: int) -> Done[Acked]:
    """Stamp every unacked row of the agent up to an id, in flight or not, in a single UPDATE (MSG-7).

    Dead letters are left: they are the operator's now.
    """
    rows = rows_of(
        db,
        f"""UPDATE messages INDEXED BY messages_unacked SET acked_at = ?
            WHERE recipient = ? AND id <= ? AND {UNACKED} RETURNING id, attempts""",
        (now, agent, max(0, min(up_to, 2**63 - 1))),
    )
    ids = tuple(sorted(id_ for id_, _ in rows))
    acked = Acked(acked=len(ids), never_read=sum(attempts == 0 for _, attempts in rows))
    return Done(acked, (MessagesAcked(agent=agent, ids=ids),) if ids else ())


def open_turn(db: apsw.Connection, *, now: float, agent: str, cause: str) -> Done[TurnLease]:
    """Open the agent's turn (TURN-4).

    Raises:
        TurnOver: its previous one is still open.
    """
    still_open = db.execute("SELECT id FROM turns WHERE agent = ? AND closed_at IS NULL", (agent,)).get
    if still_open is not None:
        raise TurnOver(f"an agent can have one open turn, and turn {still_open} of {agent} still is: close it first")
    db.execute("INSERT INTO turns (agent, cause, opened_at) VALUES (?, ?, ?)", (agent, cause, now))
    return Done(TurnLease(id=db.last_insert_rowid(), agent=agent, opened_at=now))


def close_turn(
    db: apsw.Connection,
    *,
    now: float,
    agent: str,
    turn_id: int,
    acked: bool,
    blameless: bool = False,
    record: str,
    max_deliveries: int,
) -> Done[TurnClosed]:
    """Ack what the turn popped, or return it, and keep its record (MSG-5, MSG-6, TURN-7); twice changes nothing.

    A turn that failed ``blameless`` of its messages brings none of them nearer to being a dead letter.

    Raises:
        TurnOver: the agent never had such a turn.
    """
    if not _is_open_turn(db, agent, turn_id):
        if not _had_turn(db, agent, turn_id):
            raise TurnOver(f"turn {turn_id} is no turn of {agent}: close the one that open_turn gave")
        return Done(TurnClosed(acked=(), returned=(), dead=()))
    db.execute(
        "UPDATE turns SET closed_at = ?, outcome = ?, record = ? WHERE id = ?",
        (now, "acked" if acked else "returned", record, turn_id),
    )
    if not acked:
        returned, dead, flow = _end_leases(
            db, "turn_id = ?", (turn_id,), now=now, max_deliveries=max_deliveries, blameless=blameless
        )
        return Done(TurnClosed(acked=(), returned=returned, dead=dead), flow)
    rows = rows_of(db, f"UPDATE messages SET acked_at = ? WHERE turn_id = ? AND {UNACKED} RETURNING id", (now, turn_id))
    ids = tuple(sorted(id_ for (id_,) in rows))
    closed = TurnClosed(acked=ids, returned=(), dead=())
    return Done(closed, (MessagesAcked(agent=agent, ids=ids),) if ids else ())


def end_expired_leases(db: apsw.Connection, *, now: float, lease_seconds: float, max_deliveries: int) -> Done[None]:
    """Return what timed leases held too long, as after a failed turn (MSG-5, MSG-6).

    A lease that ends later than one taken now would is from before the clock was set back: it ends then instead.
    """
    latest = now + lease_seconds
    in_flight = f"{UNACKED} AND lease_until IS NOT NULL"
    db.execute(f"UPDATE messages SET lease_until = ? WHERE lease_until > ? AND {in_flight}", (latest, latest))
    _, _, flow = _end_leases(db, "lease_until <= ?", (now,), now=now, max_deliveries=max_deliveries)
    return Done(None, flow)


def end_previous_life(db: apsw.Connection, *, now: float, max_deliveries: int) -> Done[None]:
    """End every lease and turn that the last process left open: nobody is behind them any more (REL-1).

    A turn that a client opened over a socket is left: its process may live, and comes back (see ``end_turn_of``).
    """
    db.execute("UPDATE turns SET closed_at = ?, outcome = 'lost' WHERE closed_at IS NULL AND client IS NULL", (now,))
    over = "turn_id IS NOT NULL AND turn_id NOT IN (SELECT id FROM turns WHERE closed_at IS NULL)"
    _, _, in_turns = _end_leases(db, over, (), now=now, max_deliveries=max_deliveries)
    _, _, timed = _end_leases(db, "lease_until IS NOT NULL", (), now=now, max_deliveries=max_deliveries)
    return Done(None, in_turns + timed)


def end_turn_of(db: apsw.Connection, *, now: float, agent: str, but_of: str | None, max_deliveries: int) -> Done[None]:
    """End the agent's open turn as lost, unless the client ``but_of`` opened it: another life begins (TURN-4)."""
    sql = "SELECT id FROM turns WHERE agent = ? AND closed_at IS NULL AND (? IS NULL OR client IS NOT ?)"
    return _end_turns(db, rows_of(db, sql, (agent, but_of, but_of)), now=now, max_deliveries=max_deliveries)


def end_held_turns(db: apsw.Connection, *, now: float, keep: Collection[str], max_deliveries: int) -> Done[None]:
    """End, as lost, the turns that clients of sockets opened for agents other than ``keep``: nobody closes them."""
    held = rows_of(db, "SELECT id, agent FROM turns WHERE closed_at IS NULL AND client IS NOT NULL")
    ids = [(id_,) for id_, agent in held if agent not in keep]
    return _end_turns(db, ids, now=now, max_deliveries=max_deliveries)


def _end_turns(db: apsw.Connection, ids: Iterable[tuple[int]], *, now: float, max_deliveries: int) -> Done[None]:
    flow: list[FlowEvent] = []
    for (id_,) in ids:
        db.execute("UPDATE turns SET closed_at = ?, outcome = 'lost' WHERE id = ?", (now, id_))
        flow += _end_leases(db, "turn_id = ?", (id_,), now=now, max_deliveries=max_deliveries)[2]
    return Done(None, tuple(flow))


def _how_many_fit(db: apsw.Connection, agent: str, limit: int, limit_bytes: int) -> int:
    sql = f"SELECT octet_length(body) {FROM_UNREAD} WHERE recipient = ? AND {UNREAD} ORDER BY id LIMIT ?"
    sizes: list[int] = [size for (size,) in rows_of(db, sql, (agent, limit))]
    return max(1, sum(total <= limit_bytes for total in accumulate(sizes)))


def _end_leases(
    db: apsw.Connection,
    which: str,
    bindings: tuple[object, ...],
    *,
    now: float,
    max_deliveries: int,
    blameless: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[FlowEvent, ...]]:
    """Return rows in flight to their inboxes, or make them dead letters and tell their senders (MSG-6)."""
    in_flight = f"{which} AND {UNACKED}"
    if not blameless:
        db.execute(f"UPDATE messages SET failures = failures + 1 WHERE {in_flight}", bindings)
    died = rows_of(
        db,
        f"""UPDATE messages SET dead_at = ?, turn_id = NULL, lease_until = NULL
            WHERE {in_flight} AND failures >= ? RETURNING {COLUMNS}, from_mailbox""",
        (now, *bindings, max_deliveries),
    )
    came_back = rows_of(
        db,
        f"UPDATE messages SET turn_id = NULL, lease_until = NULL WHERE {in_flight} RETURNING recipient, id",
        bindings,
    )
    dead = sorted(((message_from(row[:-1]), bool(row[-1])) for row in died), key=lambda pair: pair[0].id)
    flow: list[FlowEvent] = [
        *(MessagesDied(agent=agent, ids=ids) for agent, ids in _by_agent((m.recipient, m.id) for m, _ in dead)),
        *(MessagesReturned(agent=agent, ids=ids) for agent, ids in _by_agent(came_back)),
    ]
    for message, from_mailbox in dead:
        if from_mailbox and (message.sender == OPERATOR or _is_current(db, message.sender)):
            flow.append(MessageSent(message=_tell_of_death(db, message, now=now)))
    return tuple(sorted(id_ for _, id_ in came_back)), tuple(message.id for message, _ in dead), tuple(flow)


def _tell_of_death(db: apsw.Connection, message: Message, *, now: float) -> Message:
    text = (
        f"Your message #{message.id} to {message.recipient} is now a dead letter: it was handed out {message.attempts} "
        "times and none of those turns ended well. It will not be handed out again; the operator can see it. "
        "If it still matters, send it again in other words, or to somebody else."
    )
    event = {
        "event": "dead_letter",
        "id": message.id,
        "to": message.recipient,
        "attempts": message.attempts,
        "text": text,
    }
    return _insert(
        db,
        now=now,
        sender=SYSTEM,
        from_mailbox=False,
        recipient=message.sender,
        body=json.dumps(event),
        in_reply_to=message.id,
        thread_id=message.thread_id,
    )


def _insert(
    db: apsw.Connection,
    *,
    now: float,
    sender: str,
    from_mailbox: bool,
    recipient: str,
    body: str,
    in_reply_to: int | None = None,
    thread_id: int | None = None,
    turn_id: int | None = None,
) -> Message:
    """Store one row; without a ``thread_id`` it starts a thread of its own."""
    db.execute(
        """INSERT INTO messages
           (sender, from_mailbox, recipient, body, in_reply_to, thread_id, sent_at, sent_in_turn)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (sender, int(from_mailbox), recipient, body, in_reply_to, thread_id or 0, now, turn_id),
    )
    row_id = db.last_insert_rowid()
    if thread_id is None:
        db.execute("UPDATE messages SET thread_id = id WHERE id = ?", (row_id,))
    return Message(
        id=row_id,
        sender=sender,
        recipient=recipient,
        body=body,
        in_reply_to=in_reply_to,
        thread_id=row_id if thread_id is None else thread_id,
        sent_at=now,
    )


def _sent_before(db: apsw.Connection, turn_id: int, to: str, body: str, in_reply_to: int | None) -> int | None:
    found: int | None = db.execute(
        """SELECT min(id) FROM messages
           WHERE sent_in_turn = ? AND recipient = ? AND body = ? AND in_reply_to IS ?""",
        (turn_id, to, body, in_reply_to),
    ).get
    return found


def _thread_of(db: apsw.Connection, sender: str, in_reply_to: int) -> int:
    found: int | None = None
    if is_row_id(in_reply_to):
        found = db.execute(
            "SELECT thread_id FROM messages WHERE id = ? AND (recipient = ? OR (sender = ? AND from_mailbox = 1))",
            (in_reply_to, sender, sender),
        ).get
    if found is None:
        raise MessageRefused(
            f"in_reply_to must be a message you sent or received, got {in_reply_to}: "
            "take the number of a message in your inbox, or leave it out"
        )
    return found


def _require_current(db: apsw.Connection, to: str) -> None:
    if to == OPERATOR or (is_agent_name(to) and _is_current(db, to)):
        return
    if is_agent_name(to) and db.execute("SELECT 1 FROM agents WHERE name = ?", (to,)).get is not None:
        raise MessageRefused(f"{to} is no agent of this hive any more and takes no mail: write to {OPERATOR!r} instead")
    raise refuse_unknown_recipient(to, current_agents(db))


def _is_current(db: apsw.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM agents WHERE name = ? AND current = 1", (name,)).get is not None


def _is_open_turn(db: apsw.Connection, agent: str, turn_id: int) -> bool:
    sql = "SELECT 1 FROM turns WHERE id = ? AND agent = ? AND closed_at IS NULL"
    return is_row_id(turn_id) and db.execute(sql, (turn_id, agent)).get is not None


def _had_turn(db: apsw.Connection, agent: str, turn_id: int) -> bool:
    sql = "SELECT 1 FROM turns WHERE id = ? AND agent = ?"
    return is_row_id(turn_id) and db.execute(sql, (turn_id, agent)).get is not None


def _require_open_turn(db: apsw.Connection, agent: str, turn_id: int) -> None:
    if not _is_open_turn(db, agent, turn_id):
        raise TurnOver(f"turn {turn_id} is not an open turn of {agent}: nothing was done; open a turn first")


def _by_agent(rows: Iterable[tuple[str, int]]) -> list[tuple[str, tuple[int, ...]]]:
    ids: dict[str, list[int]] = {}
    for agent, id_ in rows:
        ids.setdefault(agent, []).append(id_)
    return [(agent, tuple(sorted(found))) for agent, found in sorted(ids.items())]
