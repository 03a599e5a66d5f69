"""Reminders: what an agent left for its own inbox, for a later hour (INB-3).

Owns the table ``reminders`` and the words a reminder arrives in. Firing stores the message and deletes the reminder in
one transaction. Like ``_store`` it runs inside somebody's transaction and takes ``now``; imports apsw only.
"""

from __future__ import annotations

import apsw
import attrs

from . import _store
from ._errors import RequestRefused
from ._flow import Done, FlowEvent, RecordKind, RecordsChanged
from ._queries import rows_of
from ._requests import FURTHEST_SECONDS, check_instant, check_text, check_word, utc_text
from ._rules import is_row_id, shown
from ._types import REMINDER

__all__ = [
    "LATE_SECONDS",
    "REMINDER_LIMIT_BYTES",
    "Reminder",
    "add_reminder",
    "cancel_reminder",
    "fire_due_reminders",
    "next_reminder_at",
    "pending_reminders",
    "reminder_counts",
]

REMINDER_LIMIT_BYTES = 4096
"""A longer message spills: it goes to a file, and the reminder keeps its beginning and names the file."""

LATE_SECONDS = 60
"""What fires later than this says so: as long as the clock may look away, it was not in time."""

_PATH_LIMIT = 1024
"""Longest path of a spilled message."""

_COLUMNS = "id, agent, message, fires_at, created_at, spill_path"


@attrs.frozen(kw_only=True)
class Reminder:
    """A reminder that has not fired.

    Attributes:
        id: never reused.
        agent: whose, and into whose inbox it fires.
        message: the text, or its beginning where it spilled.
        fires_at: unix seconds.
        created_at: unix seconds.
        spill_path: the agent's file with the whole text, None where ``message`` is it.
    """

    id: int
    agent: str
    message: str
    fires_at: float
    created_at: float
    spill_path: str | None = None


def add_reminder(
    db: apsw.Connection,
    *,
    now: float,
    agent: str,
    message: str,
    delay_seconds: float | None,
    at: float | None,
    spill_path: str | None,
    max_pending: int,
) -> Done[Reminder]:
    """Keep a reminder.

    Raises:
        RequestRefused: the message, the instant or the number of pending ones is not acceptable.
    """
    hint = "write it to a file of yours, and give its beginning and spill_path"
    check_text(message, what="a reminder", limit_bytes=REMINDER_LIMIT_BYTES, hint=hint)
    if spill_path is not None:
        check_word(spill_path, what="the path of a reminder's text", limit=_PATH_LIMIT)
    fires_at = _fires_at(now=now, delay_seconds=delay_seconds, at=at)
    if db.execute("SELECT 1 FROM agents WHERE name = ? AND current = 1", (agent,)).get is None:
        raise RequestRefused(f"only agents of this hive have reminders, and {agent!r} is none now: add it first")
    ((pending,),) = rows_of(db, "SELECT count(*) FROM reminders WHERE agent = ?", (agent,))
    if pending >= max_pending:
        raise RequestRefused(
            f"an agent can have {max_pending} reminders pending, and that many are: cancel some you no longer need, "
            "or put several things into one"
        )
    db.execute(
        "INSERT INTO reminders (agent, message, fires_at, created_at, spill_path) VALUES (?, ?, ?, ?, ?)",
        (agent, message, fires_at, now, spill_path),
    )
    reminder = Reminder(
        id=db.last_insert_rowid(),
        agent=agent,
        message=message,
        fires_at=fires_at,
        created_at=now,
        spill_path=spill_path,
    )
    return Done(reminder, (_changed(agent),))


def cancel_reminder(db: apsw.Connection, *, agent: str, reminder_id: int) -> Done[Reminder]:
    """Delete a pending reminder of this agent (INB-2).

    Raises:
        RequestRefused: it has none of that id, be it that it fired, is another's or never was.
    """
    found = None
    if is_row_id(reminder_id):
        sql = f"DELETE FROM reminders WHERE id = ? AND agent = ? RETURNING {_COLUMNS}"  # noqa: S608 -- constants
        found = next(iter(rows_of(db, sql, (reminder_id, agent))), None)
    if found is None:
        raise RequestRefused(f"you have no pending reminder {reminder_id}: it fired already, or the number is wrong")
    return Done(_reminder_from(found), (_changed(agent),))


def pending_reminders(db: apsw.Connection, agent: str) -> tuple[Reminder, ...]:
    """An agent's reminders that have not fired, the next one first."""
    sql = f"SELECT {_COLUMNS} FROM reminders WHERE agent = ? ORDER BY fires_at, id"  # noqa: S608 -- constants
    return tuple(_reminder_from(row) for row in rows_of(db, sql, (agent,)))


def reminder_counts(db: apsw.Connection) -> dict[str, int]:
    """How many reminders every agent that has any has pending."""
    return dict(rows_of(db, "SELECT agent, count(*) FROM reminders GROUP BY agent"))


def next_reminder_at(db: apsw.Connection) -> float | None:
    """When the next reminder fires; those of names that are no agents now wait until they are."""
    found: float | None = db.execute(
        """SELECT fires_at FROM reminders CROSS JOIN agents ON name = agent
           WHERE current = 1 ORDER BY fires_at LIMIT 1"""
    ).get
    return found


def fire_due_reminders(db: apsw.Connection, *, now: float, limit: int) -> Done[int]:
    """Turn up to ``limit`` due reminders into messages, the oldest first; answer with how many."""
    due = rows_of(
        db,
        f"""SELECT {", ".join(f"r.{column}" for column in _COLUMNS.split(", "))}
            FROM reminders AS r CROSS JOIN agents ON name = agent
            WHERE current = 1 AND fires_at <= ? ORDER BY fires_at, r.id LIMIT ?""",  # noqa: S608 -- constants
        (now, limit),
    )
    flow: list[FlowEvent] = []
    for reminder in map(_reminder_from, due):
        body = _body_of(reminder, now=now)
        flow.extend(_store.deliver(db, now=now, sender=REMINDER, to=reminder.agent, body=body).flow)
        db.execute("DELETE FROM reminders WHERE id = ?", (reminder.id,))
        flow.append(_changed(reminder.agent))
    return Done(len(due), tuple(flow))


def _fires_at(*, now: float, delay_seconds: float | None, at: float | None) -> float:
    if delay_seconds is not None and at is None:
        if not 0 <= delay_seconds <= FURTHEST_SECONDS:
            raise RequestRefused(
                f"delay_seconds must be 0 or more and at most ten years, got {shown(delay_seconds)}: give another one"
            )
        return now + delay_seconds
    if at is not None and delay_seconds is None:
        check_instant(at, what="at_unix_timestamp", now=now)
        if at < now - LATE_SECONDS:
            raise RequestRefused(
                f"at_unix_timestamp must be in the future, got {at:.0f} and it is now {now:.0f}: give a later one"
            )
        return at
    got = "neither" if at is None else "both"
    raise RequestRefused(f"a reminder needs delay_seconds or at_unix_timestamp, got {got}: give exactly one")


def _body_of(reminder: Reminder, *, now: float) -> str:
    parts = [reminder.message, ""]
    if reminder.spill_path is not None:
        parts.append(f"[this is the beginning; the whole text is in {reminder.spill_path}]")
    facts = f"reminder #{reminder.id}, which you set at {utc_text(reminder.created_at)}"
    if now - reminder.fires_at > LATE_SECONDS:
        facts += f" for {utc_text(reminder.fires_at)}; it is late because the hive or you were not there"
    return "\n".join([*parts, f"[{facts}]"])


def _reminder_from(row: tuple[int, str, str, float, float, str | None]) -> Reminder:
    return Reminder(**dict(zip(_COLUMNS.split(", "), row, strict=True)))  # type: ignore[arg-type]  # STRICT columns


def _changed(agent: str) -> RecordsChanged:
    return RecordsChanged(kind=RecordKind.REMINDERS, agent=agent)
