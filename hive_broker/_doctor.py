"""A broker's database looked through from outside, whether somebody works on it or not.

Owns what is read and what counts as wrong. Writes nothing. ``hive doctor`` calls it; repairing is ``_restore``'s.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import apsw
import attrs

from ._database import translated
from ._errors import BrokerError
from ._migrate import check_is_ours, check_shape, known_version
from ._owner import noted_ids_of, owner_of
from ._queries import UNACKED, rows_of

__all__ = ["DatabaseReport", "examine_database"]

_PROBLEMS_SHOWN = 5
"""Contradictions that are listed; the first one says it all."""

_BUSY_MILLISECONDS = 5000
"""How long to wait for a moment in which the file can be read."""


@attrs.frozen(kw_only=True)
class DatabaseReport:
    """What was found in a database file.

    Attributes:
        exists: whether there is one.
        owner: name and pid of the live process that works on it, if one does.
        problems: what is wrong, one sentence each with what to do; empty for a sound one.
        schema: its version.
        known_schema: the newest this hyperhive knows.
        messages: all that are kept.
        dead: dead letters among them (MSG-6).
        open_turns: the agents that have one (TURN-4).
        in_flight: rows that are popped and neither acked nor returned (MSG-5).
        size_bytes: of the file and its log.
    """

    exists: bool
    owner: tuple[str, int] | None = None
    problems: tuple[str, ...] = ()
    schema: int = 0
    known_schema: int = 0
    messages: int = 0
    dead: int = 0
    open_turns: tuple[str, ...] = ()
    in_flight: int = 0
    size_bytes: int = 0


def examine_database(path: str | os.PathLike[str]) -> DatabaseReport:
    """Read a database through; that takes a second for each hundred megabytes or so.

    Args:
        path: the file, which need not exist.
    """
    file = Path(os.path.realpath(path))
    try:
        owner = owner_of(file)
        size_bytes = _size(file)
    except OSError as exc:
        return DatabaseReport(exists=True, problems=(f"{exc.filename} cannot be looked at: {exc.strerror}",))
    if not file.exists():
        noted = noted_ids_of(file)
        gone = (
            f"the database is gone: ids of messages up to {noted[0]} were given out; restore a backup, or move it back"
        )
        problems = (gone,) if any(noted) else ()
        return DatabaseReport(exists=False, owner=owner, known_schema=known_version(), problems=problems)
    if not file.is_file():
        return DatabaseReport(exists=True, owner=owner, problems=(f"{file} must be a regular file: move it away",))
    report = _read(file, at_rest=owner is None and not _has_log(file))
    if report.problems and owner is None and (owner := owner_of(file)) is not None:
        report = _read(file, at_rest=False)  # somebody began to work on it meanwhile
    return attrs.evolve(report, owner=owner, size_bytes=size_bytes)


def _read(file: Path, *, at_rest: bool) -> DatabaseReport:
    # Of a file at rest SQLite is told that it does not change: else even a reader leaves a log and an index beside it.
    uri = f"file:{quote(str(file))}?mode=ro{'&immutable=1' if at_rest else ''}"
    try:
        with closing(apsw.Connection(uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)) as db:
            db.set_busy_timeout(_BUSY_MILLISECONDS)
            check_is_ours(db)
            check_shape(db)
            problems = tuple(_contradictions(db))
            return attrs.evolve(_figures(db), problems=problems)
    except BrokerError as exc:
        return DatabaseReport(exists=True, problems=(str(exc),))
    except apsw.Error as exc:
        return DatabaseReport(exists=True, problems=(str(translated(exc)),))


def _contradictions(db: apsw.Connection) -> list[str]:
    verdicts = [str(verdict) for (verdict,) in rows_of(db, f"PRAGMA integrity_check({_PROBLEMS_SHOWN})")]
    wrong = [] if verdicts == ["ok"] else verdicts
    orphans = rows_of(db, "PRAGMA foreign_key_check")
    wrong += [
        f"row {rowid} of {table} refers to a row of {parent} that is not there" for table, rowid, parent, _ in orphans
    ]
    more = f" and {len(wrong) - _PROBLEMS_SHOWN} more" if len(wrong) > _PROBLEMS_SHOWN else ""
    if not wrong:
        return []
    listed = "; ".join(wrong[:_PROBLEMS_SHOWN])
    return [f"the database contradicts itself ({listed}{more}): stop the hive and restore a backup with hive restore"]


def _figures(db: apsw.Connection) -> DatabaseReport:
    schema = db.pragma("user_version")
    if schema == 0:
        return DatabaseReport(exists=True, known_schema=known_version())
    ((messages,),) = rows_of(db, "SELECT count(*) FROM messages")
    ((dead,),) = rows_of(db, "SELECT count(*) FROM messages WHERE dead_at IS NOT NULL")
    turns = rows_of(db, "SELECT agent FROM turns WHERE closed_at IS NULL ORDER BY agent")
    held = f"SELECT count(*) FROM messages WHERE {UNACKED} AND (turn_id IS NOT NULL OR lease_until IS NOT NULL)"  # noqa: S608 -- a constant
    ((in_flight,),) = rows_of(db, held)
    return DatabaseReport(
        exists=True,
        schema=schema,
        known_schema=known_version(),
        messages=messages,
        dead=dead,
        open_turns=tuple(agent for (agent,) in turns),
        in_flight=in_flight,
    )


def _has_log(file: Path) -> bool:
    log = Path(f"{file}-wal")
    return log.exists() and log.stat().st_size > 0


def _size(file: Path) -> int:
    return sum(part.stat().st_size for part in (file, Path(f"{file}-wal")) if part.exists())
