"""Everything that looks at the database and changes nothing.

Owns the read-only SQL and the shape of a row. Runs on any connection, in any thread; imports apsw only. ``_store``
does the writing, ``_broker`` decides which connection a question goes to.
"""
# ruff: noqa: S608 -- the pieces put into the SQL are constants of this module, never a caller's text

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import apsw

from ._types import OPERATOR, InboxCounts, InboxSummary, Message

__all__ = [
    "COLUMNS",
    "FROM_UNREAD",
    "UNACKED",
    "UNREAD",
    "counts",
    "current_agents",
    "dead_letters",
    "has_unread",
    "history",
    "inbox",
    "message_from",
    "next_expiry",
    "rows_of",
    "summary",
    "thread",
    "unread_count",
]

COLUMNS = "id, sender, recipient, body, in_reply_to, thread_id, sent_at, attempts, acked_at, dead_at, dropped_at"
"""A message's columns, in the order ``message_from`` takes them."""

_FIELDS = tuple(COLUMNS.split(", "))

UNACKED = "acked_at IS NULL AND dead_at IS NULL"
"""Still the recipient's business. The partial indexes say the same words: SQLite matches them literally."""

UNREAD = f"{UNACKED} AND turn_id IS NULL AND lease_until IS NULL"
"""A ``recv`` could pop it now."""

FROM_UNREAD = "FROM messages INDEXED BY messages_unread"
"""The planner knows no figures and may prefer the index of whole inboxes, which walks all that was ever handled."""

_THREAD_CAP = 1000
"""Messages of one thread that are shown at most: the newest. Two agents can keep one going for weeks."""

_NEVER = 2**63 - 1
"""Above every id."""


def message_from(row: tuple[Any, ...]) -> Message:
    """The value of one row of ``COLUMNS``."""
    return Message(**dict(zip(_FIELDS, row, strict=True)))


def rows_of(db: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of one statement, which is then finished: an open one would hold up the commit."""
    return db.execute(sql, bindings).fetchall()


def has_unread(db: apsw.Connection, agent: str) -> bool:
    """Whether the inbox has a row to pop; microseconds, whatever its size."""
    return db.execute(f"SELECT 1 {FROM_UNREAD} WHERE recipient = ? AND {UNREAD} LIMIT 1", (agent,)).get is not None


def unread_count(db: apsw.Connection, agent: str) -> int:
    """How many rows a ``recv`` could pop now."""
    ((found,),) = rows_of(db, f"SELECT count(*) {FROM_UNREAD} WHERE recipient = ? AND {UNREAD}", (agent,))
    return int(found)


def next_expiry(db: apsw.Connection) -> float | None:
    """The instant at which the next timed lease ends, None when none is open (MSG-5)."""
    sql = f"SELECT min(lease_until) FROM messages WHERE {UNACKED} AND lease_until IS NOT NULL"
    found: float | None = db.execute(sql).get
    return found


def current_agents(db: apsw.Connection) -> tuple[str, ...]:
    """The agents that can be written to now, by name."""
    return tuple(name for (name,) in rows_of(db, "SELECT name FROM agents WHERE current = 1 ORDER BY name"))


def summary(db: apsw.Connection, agent: str) -> InboxSummary:
    """An inbox at a glance, nothing popped."""
    sql = f"""SELECT sender, count(*), sum(attempts > 0), min(sent_at), min(id) AS oldest {FROM_UNREAD}
              WHERE recipient = ? AND {UNREAD} GROUP BY sender ORDER BY oldest"""
    rows = rows_of(db, sql, (agent,))
    return InboxSummary(
        unread=sum(count for _, count, _, _, _ in rows),
        redelivered=sum(again for _, _, again, _, _ in rows),
        senders=tuple((sender, count) for sender, count, _, _, _ in rows),
        oldest_sent_at=min((sent_at for _, _, _, sent_at, _ in rows), default=None),
    )


def inbox(
    db: apsw.Connection, agent: str, *, limit: int, before_id: int | None, unread_only: bool
) -> tuple[Message, ...]:
    """Rows of one inbox, newest first, acked and dead ones included unless only the unread are wanted."""
    source, narrowed = (FROM_UNREAD, f"AND {UNREAD}") if unread_only else ("FROM messages", "")
    sql = f"SELECT {COLUMNS} {source} WHERE recipient = ? AND id < ? {narrowed} ORDER BY id DESC LIMIT ?"
    return _messages(rows_of(db, sql, (agent, _below(before_id), limit)))


def history(db: apsw.Connection, *, limit: int, before_id: int | None) -> tuple[Message, ...]:
    """Rows of all inboxes, newest first."""
    sql = f"SELECT {COLUMNS} FROM messages WHERE id < ? ORDER BY id DESC LIMIT ?"
    return _messages(rows_of(db, sql, (_below(before_id), limit)))


def dead_letters(db: apsw.Connection, *, limit: int, before_id: int | None) -> tuple[Message, ...]:
    """Rows of all inboxes that were delivered too often, newest first."""
    sql = f"""SELECT {COLUMNS} FROM messages INDEXED BY messages_dead
              WHERE dead_at IS NOT NULL AND id < ? ORDER BY id DESC LIMIT ?"""
    return _messages(rows_of(db, sql, (_below(before_id), limit)))


def thread(db: apsw.Connection, message_id: int) -> tuple[Message, ...]:
    """The chain a message belongs to, oldest first; its newest thousand when it is longer; empty for no such id.

    What is left of a chain is found by its first message too, after that one left.
    """
    sql = f"""SELECT {COLUMNS} FROM messages
              WHERE thread_id = coalesce((SELECT thread_id FROM messages WHERE id = ?1), ?1)
              ORDER BY id DESC LIMIT {_THREAD_CAP}"""
    return _messages(rows_of(db, sql, (message_id,)))[::-1]


def counts(db: apsw.Connection) -> Mapping[str, InboxCounts]:
    """Figures of every agent and the operator, and of earlier agents that left something behind.

    Reads the open and the dead rows only, not the handled ones.
    """
    unread = _tally(db, f"SELECT recipient, count(*) {FROM_UNREAD} WHERE {UNREAD} GROUP BY recipient")
    unacked = _tally(db, f"SELECT recipient, count(*) FROM messages WHERE {UNACKED} GROUP BY recipient")
    from_dead = "FROM messages INDEXED BY messages_dead WHERE dead_at IS NOT NULL"
    dead = _tally(db, f"SELECT recipient, count(*) {from_dead} GROUP BY recipient")
    return {
        name: InboxCounts(
            unread=unread.get(name, 0),
            in_flight=unacked.get(name, 0) - unread.get(name, 0),
            dead=dead.get(name, 0),
        )
        for name in sorted({OPERATOR, *current_agents(db), *unacked, *dead})
    }


def _tally(db: apsw.Connection, sql: str) -> dict[str, int]:
    return dict(rows_of(db, sql))


def _messages(rows: Iterable[tuple[Any, ...]]) -> tuple[Message, ...]:
    return tuple(message_from(row) for row in rows)


def _below(before_id: int | None) -> int:
    return _NEVER if before_id is None else max(0, min(before_id, _NEVER))
