"""What the operator may do with a message that was delivered too often without a good end (MSG-6).

Owns the two ways out: back to its inbox as if it were new, or aside for good. Nothing is deleted here. Runs inside
somebody's transaction like ``_store``; imports apsw only. ``Broker`` offers both.
"""
# ruff: noqa: S608 -- the pieces put into the SQL are constants, never a caller's text

from __future__ import annotations

import apsw

from ._errors import RequestRefused
from ._flow import Done, MessagesAcked, MessagesReturned
from ._queries import COLUMNS, current_agents, message_from, rows_of
from ._rules import is_row_id
from ._types import OPERATOR, Message

__all__ = ["drop", "requeue"]


def requeue(db: apsw.Connection, *, message_id: int) -> Done[Message]:
    """Make a dead letter unread again, with all its attempts before it.

    Raises:
        RequestRefused: it is no dead letter, or its recipient takes no mail any more.
    """
    letter = _dead(db, message_id)
    if letter.recipient != OPERATOR and letter.recipient not in current_agents(db):
        raise RequestRefused(
            f"{letter.recipient} is no agent of this hive any more, so #{message_id} would wait for ever: "
            "add that agent first, or drop the dead letter"
        )
    message = _change(db, "dead_at = NULL, attempts = 0, failures = 0", (message_id,))
    return Done(message, (MessagesReturned(agent=message.recipient, ids=(message.id,)),))


def drop(db: apsw.Connection, *, now: float, message_id: int) -> Done[Message]:
    """Ack a dead letter for its recipient, marked as dropped; it stays to be seen.

    Raises:
        RequestRefused: it is no dead letter.
    """
    _dead(db, message_id)
    message = _change(db, "dead_at = NULL, acked_at = ?, dropped_at = ?", (now, now, message_id))
    return Done(message, (MessagesAcked(agent=message.recipient, ids=(message.id,)),))


def _dead(db: apsw.Connection, message_id: int) -> Message:
    sql = f"SELECT {COLUMNS} FROM messages WHERE id = ?"
    rows = rows_of(db, sql, (message_id,)) if is_row_id(message_id) else []
    if not rows:
        raise RequestRefused(f"there is no message #{message_id}: take the number from the list of dead letters")
    message = message_from(rows[0])
    if message.dead_at is None:
        raise RequestRefused(f"#{message_id} is no dead letter, it is {_state(message)}: nothing was changed")
    return message


def _state(message: Message) -> str:
    if message.dropped_at is not None:
        return "dropped already"
    return "handled" if message.acked_at is not None else "still in its inbox or in somebody's turn"


def _change(db: apsw.Connection, assignments: str, bindings: tuple[object, ...]) -> Message:
    (row,) = rows_of(db, f"UPDATE messages SET {assignments} WHERE id = ? RETURNING {COLUMNS}", bindings)
    return message_from(row)
