"""What is handled and old leaves, in small steps.

Owns how long things stay: acked messages and what is done, thirty days; closed turns with their records, ninety. What
nobody handled, and dead letters, stay for ever. Ids are not given out again (REL-5). Like ``_store`` it runs inside
somebody's transaction and takes ``now``; imports apsw only.
"""
# ruff: noqa: S608 -- the pieces put into the SQL are constants of this module, never a caller's text

from __future__ import annotations

import apsw

from ._flow import Done
from ._queries import rows_of

__all__ = ["HANDLED_SECONDS", "TURN_SECONDS", "drop_old", "seconds_to_drop"]

HANDLED_SECONDS = 30 * 86_400
"""How long an acked message stays, and a todo or a notice that is done: a month to look back on."""

TURN_SECONDS = 90 * 86_400
"""How long a closed turn stays with its statistics: a quarter to compare."""

_STEP_ROWS = 200
"""Rows of each kind that leave in one transaction: a few milliseconds, so that nobody who sends waits for it."""

_AGES: tuple[tuple[str, str, str, int], ...] = (
    ("messages", "acked_at", "messages_acked", HANDLED_SECONDS),
    ("turns", "closed_at", "turns_closed", TURN_SECONDS),
    ("todos", "done_at", "todos_done", HANDLED_SECONDS),
    ("notices", "sent_at", "notices_sent", HANDLED_SECONDS),
)
"""Table, the instant that counts, its partial index, and how long a row stays after it."""


def seconds_to_drop(db: apsw.Connection, *, now: float) -> float | None:
    """How long until the next row is old enough, 0 or less when one is; None when nothing is handled."""
    oldest = (
        (db.execute(f"SELECT min({column}) FROM {table} INDEXED BY {index} WHERE {column} IS NOT NULL").get, seconds)
        for table, column, index, seconds in _AGES
    )
    return min((at - (now - seconds) for at, seconds in oldest if at is not None), default=None)


def drop_old(db: apsw.Connection, *, now: float) -> Done[bool]:
    """Let one step of what is old leave; answer whether there may be more.

    A reply to a message that leaves stays in its thread and answers nothing any more.
    """
    more = False
    for table, column, index, seconds in _AGES:
        old = rows_of(
            db,
            f"""SELECT id FROM {table} INDEXED BY {index} WHERE {column} IS NOT NULL AND {column} <= ?
                ORDER BY {column} LIMIT {_STEP_ROWS}""",
            (now - seconds,),
        )
        more = more or len(old) == _STEP_ROWS
        if table == "messages":
            db.executemany("UPDATE messages SET in_reply_to = NULL WHERE in_reply_to = ?", old)
        elif table == "turns":
            db.executemany("UPDATE messages SET turn_id = NULL WHERE turn_id = ?", old)
            db.executemany("UPDATE messages SET sent_in_turn = NULL WHERE sent_in_turn = ?", old)
        db.executemany(f"DELETE FROM {table} WHERE id = ?", old)
    return Done(more)
