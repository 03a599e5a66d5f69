"""A copy of the database as of one instant, made while the broker works.

Owns how a copy is taken, checked and put in its place. It reads through a connection of its own, in a thread of its
own, so that sends go on meanwhile. ``_restore`` is the way back; ``Broker.backup`` offers this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import apsw
import attrs
import trio

from ._database import translated
from ._errors import BrokerDamaged, RequestRefused
from ._queries import rows_of

__all__ = ["BackedUp", "copy_snapshot", "fresh_file", "settle", "write_backup"]

_STEP_PAGES = 256
"""Pages copied at a time, a mebibyte: between two of them a cancellation is heard."""

_STEPS_OF_CHECK = 100_000
"""Instructions of SQLite between two looks for a cancellation while the copy is checked: about a millisecond."""

_BUSY_MILLISECONDS = 5000
"""How long a reader waits for a moment of quiet; readers of a write-ahead log hardly ever do."""


@attrs.frozen(kw_only=True)
class BackedUp:
    """A backup that was written and checked.

    Attributes:
        path: where it is.
        made_at: unix seconds; everything committed before is in it.
        messages: how many are in it.
        last_message_id: the highest id given out by then (REL-5).
        size_bytes: of the file.
    """

    path: str
    made_at: float
    messages: int
    last_message_id: int
    size_bytes: int


async def write_backup(database: str, destination: str | os.PathLike[str], *, now: float) -> BackedUp:
    """Write a checked copy (0600) of the database file as it is now; a cancelled call leaves nothing behind.

    Args:
        database: the file a broker works on.
        destination: where the copy is to be; nothing may be there. Its folder is made (0700) where there is none.
        now: unix seconds.

    Raises:
        RequestRefused: something is at the destination already.
        BrokerDamaged: the copy contradicts itself, so the database does.
        BrokerUnavailable: the disk said no.
    """
    return await trio.to_thread.run_sync(partial(_write, database, Path(destination), now))


def _write(database: str, path: Path, now: float) -> BackedUp:
    check = trio.from_thread.check_cancelled
    try:
        if os.path.lexists(path):
            raise _in_the_way(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with fresh_file(path) as partial_path:
            with closing(apsw.Connection(str(partial_path), apsw.SQLITE_OPEN_READWRITE)) as copy:
                with closing(apsw.Connection(database, apsw.SQLITE_OPEN_READONLY)) as source:
                    copy_snapshot(source, copy, between=check)
                copy.execute("DELETE FROM backup_origin")
                copy.execute("INSERT INTO backup_origin (made_at) VALUES (?)", (now,))
                _require_sound(copy, between=check)
                ((messages,),) = rows_of(copy, "SELECT count(*) FROM messages")
                last = copy.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").get or 0
            size_bytes = partial_path.stat().st_size
            settle(partial_path)
            try:
                os.link(partial_path, path)  # unlike a rename, it never replaces what came there meanwhile
            except FileExistsError as exc:
                raise _in_the_way(path) from exc
        settle(path.parent)
    except (apsw.Error, OSError) as exc:
        if (found := translated(exc)) is exc:
            raise
        raise found from exc
    return BackedUp(
        path=str(path.absolute()), made_at=now, messages=messages, last_message_id=last, size_bytes=size_bytes
    )


def copy_snapshot(source: apsw.Connection, copy: apsw.Connection, *, between: Callable[[], object]) -> None:
    """Copy a whole database as of one instant, and make the copy a single file without a log.

    Args:
        source: may be written to by others meanwhile.
        copy: overwritten.
        between: called between two steps; what it raises ends the copying.
    """
    source.set_busy_timeout(_BUSY_MILLISECONDS)
    # An open read transaction pins what is copied; without it, every commit of the writer starts the copy anew.
    source.execute("BEGIN")
    try:
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with copy.backup("main", source, "main") as steps:
            while not steps.done:
                between()
                steps.step(_STEP_PAGES)
    finally:
        source.execute("ROLLBACK")
    copy.pragma("journal_mode", "DELETE")


@contextmanager
def fresh_file(path: Path) -> Iterator[Path]:
    """An empty file (0600) beside ``path``, gone when the block ends, whoever else makes one at the same time."""
    partial_path = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
    os.close(os.open(partial_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield partial_path
    finally:
        for leftover in ("", "-journal", "-wal", "-shm"):
            Path(f"{partial_path}{leftover}").unlink(missing_ok=True)


def settle(path: Path) -> None:
    """Have the disk keep a file's content, or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_sound(copy: apsw.Connection, *, between: Callable[[], object]) -> None:
    copy.set_progress_handler(lambda: bool(between()), _STEPS_OF_CHECK)
    verdict = copy.pragma("quick_check", 1)
    copy.set_progress_handler(None)
    if verdict != "ok":
        raise BrokerDamaged(
            f"the copy contradicts itself ({verdict}), so the database does: stop the hive, look with hive doctor, "
            "and restore an earlier backup"
        )


def _in_the_way(path: Path) -> RequestRefused:
    return RequestRefused(f"a backup never replaces a file, and {path} is there: choose another name, or move it away")
