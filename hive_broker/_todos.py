"""Todos: what an agent has open, pushed by its subsystems (WAKE-1, SELF-3).

Owns the table ``todos``. A subsystem names its own by a key and may say the same again and again: only what is new or
different is worth a wake. Like ``_store`` it runs inside somebody's transaction and takes ``now``; imports apsw only.
"""
# ruff: noqa: S608 -- the pieces put into the SQL are constants of this module, never a caller's text

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any

import apsw
import attrs

from ._errors import RequestRefused
from ._flow import Done, RecordKind, RecordsChanged
from ._queries import rows_of
from ._requests import check_text, check_word
from ._rules import is_row_id

__all__ = [
    "Todo",
    "TodoChange",
    "TodoUpserted",
    "TodosDone",
    "clear_todo",
    "mark_todos_done",
    "open_todos",
    "upsert_todo",
]

_SUBSYSTEM_LIMIT = 63
"""Longest name of a subsystem: as long as an agent's."""

_KEY_LIMIT = 500
"""Longest key: a path or a URL fits."""

_SUMMARY_LIMIT_BYTES = 4096
"""What is to be done, in a paragraph; more belongs into a file."""

_OPEN_CAP = 1000
"""Open todos of one agent: a producer that runs away is told, instead of filling prompts and disk."""

_COLUMNS = "id, agent, subsystem, key, summary, created_at, changed_at"


class TodoChange(Enum):
    """What an upsert did: only the first two are worth a wake (TURN-2)."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@attrs.frozen(kw_only=True)
class Todo:
    """An open todo.

    Attributes:
        id: never reused.
        agent: whose.
        subsystem: who pushed it; any word.
        key: what the subsystem calls it.
        summary: what is to be done.
        created_at: unix seconds.
        changed_at: unix seconds of the last change of its summary.
    """

    id: int
    agent: str
    subsystem: str
    key: str
    summary: str
    created_at: float
    changed_at: float


@attrs.frozen(kw_only=True)
class TodoUpserted:
    """The todo as it stands, and what became of it."""

    todo: Todo
    change: TodoChange


@attrs.frozen(kw_only=True)
class TodosDone:
    """Which todos were cleared, and which ids were skipped: done before, another's, or none at all (SELF-3)."""

    done: tuple[int, ...]
    skipped: tuple[int, ...]


def upsert_todo(
    db: apsw.Connection, *, now: float, agent: str, subsystem: str, key: str, summary: str
) -> Done[TodoUpserted]:
    """Open a todo, or give the open one of this key another summary.

    Raises:
        RequestRefused: a word or the summary cannot be kept, or the agent has too many open.
    """
    check_word(subsystem, what="a todo's subsystem", limit=_SUBSYSTEM_LIMIT)
    check_word(key, what="a todo's key", limit=_KEY_LIMIT)
    hint = "put the text in a file and name it"
    check_text(summary, what="a todo's summary", limit_bytes=_SUMMARY_LIMIT_BYTES, hint=hint)
    of_key = "agent = ? AND subsystem = ? AND key = ? AND done_at IS NULL"
    found = rows_of(db, f"SELECT {_COLUMNS} FROM todos WHERE {of_key}", (agent, subsystem, key))
    if not found:
        return _insert(db, now=now, agent=agent, subsystem=subsystem, key=key, summary=summary)
    todo = _todo_from(found[0])
    if todo.summary == summary:
        return Done(TodoUpserted(todo=todo, change=TodoChange.UNCHANGED))
    db.execute("UPDATE todos SET summary = ?, changed_at = ? WHERE id = ?", (summary, now, todo.id))
    changed = attrs.evolve(todo, summary=summary, changed_at=now)
    return Done(TodoUpserted(todo=changed, change=TodoChange.CHANGED), (_changed(agent),))


def clear_todo(db: apsw.Connection, *, now: float, agent: str, subsystem: str, key: str) -> Done[bool]:
    """Mark the open todo of this key done; answer whether there was one."""
    cleared = rows_of(
        db,
        "UPDATE todos SET done_at = ? WHERE agent = ? AND subsystem = ? AND key = ? AND done_at IS NULL RETURNING id",
        (now, agent, subsystem, key),
    )
    return Done(bool(cleared), (_changed(agent),) if cleared else ())


def mark_todos_done(db: apsw.Connection, *, now: float, agent: str, ids: Collection[int]) -> Done[TodosDone]:
    """Mark this agent's open todos among ``ids`` done, and say which were not (SELF-3)."""
    done: list[int] = []
    skipped: list[int] = []
    for todo_id in sorted(set(ids)):
        sql = "UPDATE todos SET done_at = ? WHERE id = ? AND agent = ? AND done_at IS NULL RETURNING id"
        marked = is_row_id(todo_id) and rows_of(db, sql, (now, todo_id, agent))
        (done if marked else skipped).append(todo_id)
    return Done(TodosDone(done=tuple(done), skipped=tuple(skipped)), (_changed(agent),) if done else ())


def open_todos(db: apsw.Connection, agent: str) -> tuple[Todo, ...]:
    """An agent's open todos by subsystem, the one that changed first before the others of its subsystem."""
    sql = f"""SELECT {_COLUMNS} FROM todos INDEXED BY todos_open WHERE agent = ? AND done_at IS NULL
              ORDER BY subsystem, changed_at, id"""
    return tuple(_todo_from(row) for row in rows_of(db, sql, (agent,)))


def _insert(
    db: apsw.Connection, *, now: float, agent: str, subsystem: str, key: str, summary: str
) -> Done[TodoUpserted]:
    ((count,),) = rows_of(db, "SELECT count(*) FROM todos WHERE agent = ? AND done_at IS NULL", (agent,))
    if count >= _OPEN_CAP:
        raise RequestRefused(
            f"an agent can have {_OPEN_CAP} todos open, and that many are: clear those that are done first"
        )
    db.execute(
        "INSERT INTO todos (agent, subsystem, key, summary, created_at, changed_at) VALUES (?, ?, ?, ?, ?, ?)",
        (agent, subsystem, key, summary, now, now),
    )
    todo = Todo(
        id=db.last_insert_rowid(),
        agent=agent,
        subsystem=subsystem,
        key=key,
        summary=summary,
        created_at=now,
        changed_at=now,
    )
    return Done(TodoUpserted(todo=todo, change=TodoChange.NEW), (_changed(agent),))


def _todo_from(row: tuple[Any, ...]) -> Todo:
    return Todo(**dict(zip(_COLUMNS.split(", "), row, strict=True)))


def _changed(agent: str) -> RecordsChanged:
    return RecordsChanged(kind=RecordKind.TODOS, agent=agent)
