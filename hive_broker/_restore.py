"""A backup put in the place of a database, with what was there kept beside it.

Owns the order in which files change places, so that a kill between any two steps leaves a database that opens, and
how far ids go on, so that none is given out again (REL-5). ``hive restore`` calls it, with no broker running.

How far ids had got is known from the side file of the database, which outlives it, or from the replaced database where
that is sound. On a machine that has neither, the backup's own marks are all there is: ids then go on so far ahead of
them that whoever was given one after the backup was made is not met again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw
import attrs

from ._backup import copy_snapshot, fresh_file, settle
from ._database import translated
from ._errors import BrokerDamaged, BrokerError, RequestRefused
from ._migrate import check_is_ours, check_shape
from ._owner import Ownership, own_database
from ._queries import rows_of

__all__ = ["Restored", "restore_database"]

_IDS_A_DAY = 1_000_000
"""Ids left out for each day begun since a backup whose successors are unknown: eleven a second, day and night."""

_DAY_SECONDS = 24 * 3600


@attrs.frozen(kw_only=True)
class Restored:
    """What a restore did, and what it could not bring back.

    Attributes:
        path: the database.
        made_at: unix seconds of the backup; None where it does not say.
        messages: how many there are now.
        last_message_id: the highest id given out when the backup was made.
        next_message_id: the least id the next message can have.
        set_aside: the files that were replaced, under their new names.
        lost_messages: how many messages of the replaced database are newer than the backup; None where that could
            not be read.
        given_out: the highest message id known to have been given out; None where nothing says.
    """

    path: str
    made_at: float | None
    messages: int
    last_message_id: int
    next_message_id: int
    set_aside: tuple[str, ...]
    lost_messages: int | None
    given_out: int | None


def restore_database(
    path: str | os.PathLike[str], backup: str | os.PathLike[str], *, owner: str, now: float
) -> Restored:
    """Put a copy of ``backup`` in the place of the database at ``path``, and keep aside what was there.

    Rows that were in flight when the backup was made return to their inboxes at the next start, acked ones stay acked.

    Args:
        path: the database file; it may be damaged or absent.
        backup: from ``Broker.backup``, or any whole copy of a broker's database; it is left as it is.
        owner: what to call this process to whoever wants the database meanwhile.
        now: unix seconds.

    Raises:
        BrokerLocked: a live process owns the database, and is named.
        RequestRefused: there is no backup there, or it is the database itself.
        SchemaTooNew: a newer hyperhive made the backup.
        BrokerDamaged: the backup is no database of ours, or contradicts itself.
        BrokerUnavailable: the disk said no.
    """
    with own_database(path, owner=owner) as ownership, _translating():
        database = Path(ownership.database_path)
        source = _source(backup, database)
        with fresh_file(database) as fresh:
            with closing(apsw.Connection(str(fresh), apsw.SQLITE_OPEN_READWRITE)) as copy:
                made_at = _fill(copy, source)
                marks, messages = _marks(copy), _count(copy)
                last = marks.get("messages", 0)
                known, lost = _known_ids(ownership, database, after=last)
                _let_go_of_turns(copy)
                ids = _ids_to_go_on_from(marks, known, elapsed_seconds=now - (made_at or _newest(copy) or now))
                _go_on_from(copy, ids)
            settle(fresh)
            ownership.note_ids(ids["messages"], ids["turns"])
            set_aside = _set_aside(database, now)
            fresh.replace(database)
        settle(database.parent)
    return Restored(
        path=str(database),
        made_at=made_at,
        messages=messages,
        last_message_id=last,
        next_message_id=ids["messages"] + 1,
        set_aside=set_aside,
        lost_messages=lost,
        given_out=known.get("messages"),
    )


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (apsw.Error, OSError) as exc:
        if (found := translated(exc)) is exc:
            raise
        raise found from exc


def _source(backup: str | os.PathLike[str], database: Path) -> Path:
    source = Path(backup)
    if not source.is_file():
        raise RequestRefused(f"a backup must be a file, and {source} is none: name one that hivectl backup made")
    if database.exists() and source.samefile(database):
        raise RequestRefused(f"{source} is the database itself: name a backup of it")
    return source


def _fill(copy: apsw.Connection, source: Path) -> float | None:
    """Copy the backup and check the copy; give the instant it was made at, where it says so."""
    try:
        with closing(apsw.Connection(str(source), apsw.SQLITE_OPEN_READONLY)) as opened:
            check_is_ours(opened)
            check_shape(opened)
            copy_snapshot(opened, copy, between=lambda: None)
        verdict = copy.pragma("integrity_check", 1)
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError) as exc:
        raise _no_backup(source, str(exc)) from exc
    if verdict != "ok":
        raise _no_backup(source, verdict)
    if copy.pragma("user_version") == 0:
        raise _no_backup(source, "it is empty")
    if "backup_origin" not in _tables(copy):
        return None
    made_at: float | None = copy.execute("SELECT max(made_at) FROM backup_origin").get
    copy.execute("DELETE FROM backup_origin")
    return made_at


def _no_backup(source: Path, why: str) -> BrokerDamaged:
    return BrokerDamaged(f"{source} is no sound backup of a broker's database ({why}): choose another one")


def _known_ids(ownership: Ownership, database: Path, *, after: int) -> tuple[Mapping[str, int], int | None]:
    """How far ids are known to have got, by table, and how many messages of the old database came ``after``."""
    known: dict[str, int] = {}
    message_id, turn_id = ownership.noted_ids()
    if message_id or turn_id:
        known = {"messages": message_id, "turns": turn_id}
    lost = None
    if (old := _look_at(database, after=after)) is not None:
        marks, lost = old
        known = {table: max(known.get(table, 0), marks[table]) for table in marks}
    return known, lost


def _look_at(database: Path, *, after: int) -> tuple[Mapping[str, int], int] | None:
    """The marks of the database that is replaced, and how many newer messages it has; None where it is not sound.

    What its log holds is folded into it; one that is not sound is left exactly as it is.
    """
    if not database.exists():
        return None
    try:
        with closing(apsw.Connection(str(database), apsw.SQLITE_OPEN_READONLY)) as old:
            check_is_ours(old)
            if old.pragma("quick_check", 1) != "ok" or "messages" not in _tables(old):
                return None
            marks = _marks(old)
            ((newer,),) = rows_of(old, "SELECT count(*) FROM messages WHERE id > ?", (after,))
        with closing(apsw.Connection(str(database), apsw.SQLITE_OPEN_READWRITE)) as old:
            rows_of(old, "SELECT count(*) FROM sqlite_schema")  # before its first read it knows of no log
            old.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.Error, BrokerError):
        return None  # why it is replaced
    return marks, newer


def _ids_to_go_on_from(
    marks: Mapping[str, int], known: Mapping[str, int], *, elapsed_seconds: float
) -> Mapping[str, int]:
    gap = _IDS_A_DAY * (1 + int(max(0.0, elapsed_seconds) // _DAY_SECONDS))
    # Something known that is behind the backup is of another history: it does not say how far this one got.
    return {
        table: known[table] if known.get(table, -1) >= mark else max(known.get(table, 0), mark) + gap
        for table, mark in marks.items()
    }


def _let_go_of_turns(copy: apsw.Connection) -> None:
    """Have the next start end every open turn: a client that outlived the database it opened one in is past it."""
    columns = {name for _, name, *_ in rows_of(copy, "PRAGMA table_info(turns)")}
    if "client" in columns:
        copy.execute("UPDATE turns SET client = NULL WHERE closed_at IS NULL")


def _go_on_from(copy: apsw.Connection, ids: Mapping[str, int]) -> None:
    with copy:
        copy.execute("DELETE FROM sqlite_sequence")
        copy.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", list(ids.items()))


def _marks(db: apsw.Connection) -> dict[str, int]:
    """The highest id ever given out in each table that gives none out twice."""
    given_out = dict(rows_of(db, "SELECT name, seq FROM sqlite_sequence"))
    tables = rows_of(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '% AUTOINCREMENT%'")
    return {table: given_out.get(table, 0) for (table,) in tables}


def _tables(db: apsw.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in rows_of(db, "SELECT name FROM sqlite_schema WHERE type = 'table'"))


def _count(db: apsw.Connection) -> int:
    ((number,),) = rows_of(db, "SELECT count(*) FROM messages")
    return int(number)


def _newest(db: apsw.Connection) -> float | None:
    found: float | None = db.execute("SELECT sent_at FROM messages ORDER BY id DESC LIMIT 1").get
    return found


def _set_aside(database: Path, now: float) -> tuple[str, ...]:
    """Give what is at the database's place a second name; only the log loses its first one.

    A log that stayed would be replayed into the new database.
    """
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    base, number = f"{database}.replaced-{stamp}", 1
    while os.path.lexists(base) or os.path.lexists(f"{base}-wal"):
        number += 1
        base = f"{database}.replaced-{stamp}-{number}"
    kept = []
    for suffix in ("", "-wal"):
        if os.path.lexists(f"{database}{suffix}"):
            os.link(f"{database}{suffix}", f"{base}{suffix}", follow_symlinks=False)
            kept.append(f"{base}{suffix}")
    settle(database.parent)
    for suffix in ("-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    return tuple(kept)
