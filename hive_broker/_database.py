"""The open database file: one connection that writes, on a thread of its own, and one for glances on the loop.

Owns pragmas, the check at opening, the translation of SQLite's errors, and closing. Knows no messages. ``_writer``
gives it transactions, ``_engine`` glances.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, final

import apsw
import apsw.aio
import trio

from ._errors import BrokerDamaged, BrokerError, BrokerUnavailable
from ._migrate import check_is_ours, migrate
from ._owner import Ownership
from ._queries import rows_of

__all__ = ["Database", "open_database", "translated"]

T = TypeVar("T")

_log = logging.getLogger("hive_broker")

_BUSY_MILLISECONDS = 2000
"""How long a stranger (a backup, a person with the sqlite3 shell) may hold the file before a commit fails."""

_CHECKED_LIMIT_BYTES = 64 * 1024 * 1024
"""A bigger file is not read through at opening: that would take seconds. Damage then shows where it is met."""

_WAL_LIMIT_BYTES = 16 * 1024 * 1024
"""What a write-ahead log is cut down to after a burst."""

_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError)

_SAID_BY_SQLITE = (apsw.Error, UnicodeDecodeError)
"""Only valid UTF-8 was ever stored: a text that is none was changed by the disk or by a stranger."""

_SENTENCES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full: free some space and try again"),
    (apsw.ReadOnlyError, "the database or its folder is read-only: make them writable and try again"),
    (apsw.BusyError, "another program holds the database locked: let it finish and try again"),
    (apsw.LockedError, "another program holds the database locked: let it finish and try again"),
    (apsw.ProtocolError, "another program holds the database locked: let it finish and try again"),
    (apsw.CantOpenError, "the database file cannot be opened: check that its folder is there and writable"),
    (apsw.PermissionsError, "this user may not write the database: correct its owner or mode and try again"),
    (apsw.IOError, "the disk failed to read or write: check it and try again"),
    (apsw.NoMemError, "there is no memory left for the database: free some and try again"),
)


def translated(exc: Exception) -> Exception:
    """The broker's error, with its cause, for what SQLite or the system said; a bug of ours stays as it is."""
    found: BrokerError | None = None
    if isinstance(exc, _DAMAGE):
        found = BrokerDamaged(f"the database is damaged ({exc}): stop the hive and restore a backup")
    elif isinstance(exc, OSError):
        found = BrokerUnavailable(f"the disk refused a write ({exc.strerror}): check it and try again")
    else:
        no_room = getattr(exc, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
        kind_said = apsw.FullError if no_room else type(exc)  # the index of a log is made, or there is no room for it
        sentences = [sentence for kind, sentence in _SENTENCES if issubclass(kind_said, kind)]
        found = BrokerUnavailable(f"{sentences[0]} ({exc})") if sentences else None
    if found is None:
        return exc
    found.__cause__ = exc
    return found


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (*_SAID_BY_SQLITE, OSError) as exc:
        if (found := translated(exc)) is exc:
            raise
        raise found from exc


@final
class Database:
    """Both connections, made by ``open_database``."""

    def __init__(self, connection: apsw.AsyncConnection, glances: apsw.Connection, ownership: Ownership) -> None:
        self._connection = connection
        self._glances = glances
        self._ownership = ownership
        self._noted = ownership.noted_ids()
        self._files = {part: _identity_of(part) for part in (self.path, f"{self.path}-wal")}

    @property
    def path(self) -> str:
        """The file, symlinks resolved."""
        return self._ownership.database_path

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run one function on the database's thread, after all that was handed in before.

        A caller that is cancelled does not wait for it; a query that is running then is broken off.

        Raises:
            BrokerUnavailable: the world said no.
            BrokerDamaged: the file contradicts itself.
        """
        try:
            return cast("T", await _run(self._connection, work))
        except _SAID_BY_SQLITE as exc:
            raise translated(exc) from exc

    def glance(self, question: Callable[[apsw.Connection], T]) -> T:
        """Ask a tiny, indexed question at once, on the caller's thread.

        Raises:
            BrokerUnavailable: the world said no.
            BrokerDamaged: the file contradicts itself.
        """
        with _translating():
            return question(self._glances)

    def note_ids(self, db: apsw.Connection) -> None:
        """Called in every transaction before its commit: an id must be noted before anybody can see it (REL-5).

        Raises:
            BrokerUnavailable: what would be committed would go into files that nobody can open any more.
        """
        self.require_own_files()
        ids = _ids_in(db)
        if ids != self._noted:
            self._ownership.note_ids(*ids)
            self._noted = ids

    def require_own_files(self) -> None:
        """Make sure that the files at the path are the open ones.

        Raises:
            BrokerUnavailable: one was removed or replaced; it can be moved back.
        """
        for part, identity in self._files.items():
            if _identity_of(part) != identity:
                way_out = "restore a backup" if part == self.path else "start it again: nothing is lost by that"
                raise BrokerUnavailable(
                    f"the file {part} was removed or replaced while the hive works, and what goes into it would be "
                    f"lost: move it back and the hive goes on, or stop the hive and {way_out}"
                )


def _identity_of(part: str) -> tuple[int, int] | None:
    try:
        status = os.stat(part)  # noqa: PTH116 -- a path object each commit is for nothing
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


@asynccontextmanager
async def open_database(ownership: Ownership) -> AsyncIterator[Database]:
    """Open, migrate and check the owned file; on leaving, fold the log back in and close, whatever happened.

    Raises:
        SchemaTooNew: a newer hyperhive wrote it.
        BrokerDamaged: it is no database of ours, or contradicts itself.
        BrokerUnavailable: the world said no.
    """
    path = ownership.database_path
    async with AsyncExitStack() as closing:
        # An apsw connection that is open has a thread that only closing ends: nothing here may be interrupted.
        with trio.CancelScope(shield=True), _translating():
            is_new = _make_private(path)
            with _having_set(apsw.async_controller, apsw.aio.Trio):
                connection = await apsw.Connection.as_async(path, apsw.SQLITE_OPEN_READWRITE)
            closing.push_async_callback(_shielded, partial(connection.aclose, force=True))
            await _run(connection, partial(_set_up, ownership=ownership, is_new=is_new))
            closing.push_async_callback(_shielded, partial(_run, connection, _fold_log))
            glances = apsw.Connection(path, apsw.SQLITE_OPEN_READONLY)
            closing.callback(glances.close, force=True)
        yield Database(connection, glances, ownership)


async def _shielded(call: Callable[[], Awaitable[None]]) -> None:
    with trio.CancelScope(shield=True):
        await call()


async def _run(connection: apsw.AsyncConnection, work: Callable[[apsw.Connection], T]) -> T:
    # Deadlines reach a query as cancellation only; else apsw raises TooSlowError where trio's scope would be silent.
    with _having_set(apsw.aio.deadline, math.inf):
        return cast("T", await connection.async_run(work, connection))


@contextmanager
def _having_set(variable: ContextVar[Any], value: object) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def _make_private(path: str) -> bool:
    """Make the file 0600, and answer whether there was none; SQLite gives its log and index the same mode.

    An existing file is never opened here: closing it would drop locks that SQLite holds elsewhere in this process.
    """
    file = Path(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if file.is_file() and file.stat().st_mode & 0o077:
            file.chmod(0o600)
        return False
    return True


def _set_up(db: apsw.Connection, ownership: Ownership, *, is_new: bool) -> None:
    db.set_busy_timeout(_BUSY_MILLISECONDS)
    check_is_ours(db)
    if not is_new:
        _require_content(db, ownership)
    db.pragma("foreign_keys", True)
    db.pragma("trusted_schema", False)
    db.pragma("journal_size_limit", _WAL_LIMIT_BYTES)
    mode = db.pragma("journal_mode", "WAL")
    if mode != "wal":
        raise BrokerUnavailable(
            f"the database needs a file system with shared memory for its log, and SQLite fell back to {mode!r}: "
            "put it on a local disk"
        )
    db.pragma("synchronous", "FULL")
    _check(db, ownership.database_path)
    migrate(db)
    _skip_ids(db, ownership.noted_ids())


def _require_content(db: apsw.Connection, ownership: Ownership) -> None:
    """Refuse a file that was cut to nothing, or whose log was removed before any of it got into the file."""
    last, _ = ownership.noted_ids()
    if last and db.pragma("user_version") == 0:
        raise BrokerDamaged(
            f"the database {ownership.database_path} is empty, and messages up to #{last} were in it: its log was "
            "removed, or it was cut. Restore a backup, or remove the file to begin anew"
        )


def _check(db: apsw.Connection, path: str) -> None:
    if Path(path).stat().st_size > _CHECKED_LIMIT_BYTES:
        return
    # Not the quick one: a row that an index has lost is never handed out, and only this one compares them.
    verdict = db.pragma("integrity_check", 1)
    if verdict != "ok":
        raise BrokerDamaged(f"the database {path} contradicts itself ({verdict}): restore a backup")


def _ids_in(db: apsw.Connection) -> tuple[int, int]:
    ids = dict(rows_of(db, "SELECT name, seq FROM sqlite_sequence"))
    return ids.get("messages", 0), ids.get("turns", 0)


def _skip_ids(db: apsw.Connection, noted: tuple[int, int]) -> None:
    """Go on after the highest ids ever given out: the file may be a restored one that has not seen them (REL-5)."""
    for table, last, at_least in zip(("messages", "turns"), _ids_in(db), noted, strict=True):
        if last < at_least:
            _log.warning(
                "ids of %s up to %d were noted and the database knows those up to %d: it is an older copy, its log was "
                "removed, or its last commit did not come about; what is new begins above",
                table,
                at_least,
                last,
            )
            with db:
                db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
                db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, at_least))


def _fold_log(db: apsw.Connection) -> None:
    try:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as exc:
        _log.warning("the broker's log could not be folded into its database, the next start will do it: %s", exc)
