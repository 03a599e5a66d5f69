"""One owner of a database file at a time, and how far its ids have got.

Owns the side file ``<database>.owner``: an exclusive ``flock`` that ends with the process (REL-2), the owner's name
and pid for whoever comes second, and the highest ids ever given out, so that a restored database gives out no id
again (REL-5). Knows no SQL and no event loop; ``open_broker`` claims before it opens the database.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from ._errors import BrokerLocked, BrokerUnavailable

__all__ = ["Ownership", "noted_ids_of", "own_database", "owner_of"]

_IDS_BYTES = 42
"""Two numbers of 20 digits, a space and a newline: written in place, so a full disk cannot refuse it."""

_IDS_LIMIT = 2**62
"""A number above this is damage: taking it for real would leave no ids to give out."""

_NAME_LIMIT_BYTES = 4096
"""More of the side file than an owner's name and pid can take."""

_held: set[int] = set()
"""Descriptors of the locks this process holds: a forked child has to let go of its copies."""


def _let_go_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@final
class Ownership:
    """The claim on one database file, made by ``own_database``.

    Attributes:
        database_path: the file itself, symlinks resolved.
    """

    def __init__(self, descriptor: int, database_path: str) -> None:
        self.database_path = database_path
        self._descriptor = descriptor

    def noted_ids(self) -> tuple[int, int]:
        """The highest message and turn ids ever noted; zeros where the side file does not say."""
        fields = os.pread(self._descriptor, _IDS_BYTES, 0).split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            return 0, 0
        message_id, turn_id = (int(field) for field in fields)
        return (message_id, turn_id) if max(message_id, turn_id) < _IDS_LIMIT else (0, 0)

    def note_ids(self, message_id: int, turn_id: int) -> None:
        """Remember that ids up to these are given out; called before the commit that gives them out.

        Raises:
            OSError: the file cannot be written.
        """
        os.pwrite(self._descriptor, b"%020d %020d\n" % (message_id, turn_id), 0)


@contextmanager
def own_database(path: str | os.PathLike[str], *, owner: str) -> Iterator[Ownership]:
    """Own the database file at ``path`` until the block is left or the process dies (REL-2).

    Its folder is made (0700) if there is none. The claim follows symlinks to the file, and is not passed on to
    children.

    Args:
        path: the database file, which need not exist yet.
        owner: what to call this process to whoever comes second.

    Raises:
        BrokerLocked: somebody else owns it, and is named.
        BrokerUnavailable: the folder cannot be written to.
    """
    database_path = os.path.realpath(path)
    try:
        Path(database_path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(f"{database_path}.owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise _unavailable(database_path, exc) from exc
    try:
        _lock(descriptor, database_path)
        _held.add(descriptor)
        ownership = Ownership(descriptor, database_path)
        try:
            ownership.note_ids(*ownership.noted_ids())
            _write_name(descriptor, owner)
        except OSError as exc:
            raise _unavailable(database_path, exc) from exc
        yield ownership
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def noted_ids_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    """The highest message and turn ids noted beside the database at ``path``, without owning it; else zeros."""
    try:
        descriptor = os.open(f"{os.path.realpath(path)}.owner", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return 0, 0
    try:
        return Ownership(descriptor, os.fspath(path)).noted_ids()
    except OSError:
        return 0, 0
    finally:
        os.close(descriptor)


def owner_of(path: str | os.PathLike[str]) -> tuple[str, int] | None:
    """The name and pid of the live process that owns the database file at ``path``; None when nobody does.

    Makes and changes nothing. Whoever claims the file in the very microsecond of the look is refused.

    Raises:
        OSError: the side file is there and cannot be opened.
    """
    try:
        descriptor = os.open(f"{os.path.realpath(path)}.owner", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_name(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _lock(descriptor: int, database_path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        name, pid = _read_name(descriptor)
        raise BrokerLocked(
            f"a database has one owner, and {database_path} belongs to {name!r}, pid {pid}: "
            "stop that process first, or give this one another path",
            owner=name,
            pid=pid,
        ) from exc
    except OSError as exc:
        raise _unavailable(database_path, exc) from exc


def _write_name(descriptor: int, owner: str) -> None:
    os.ftruncate(descriptor, _IDS_BYTES)
    os.pwrite(descriptor, json.dumps({"owner": owner, "pid": os.getpid()}).encode(), _IDS_BYTES)


def _read_name(descriptor: int) -> tuple[str, int]:
    """Who wrote the side file; for an owner that took the lock and has not written yet, ``("unknown", 0)``."""
    try:
        said = json.loads(os.pread(descriptor, _NAME_LIMIT_BYTES, _IDS_BYTES))
        return str(said["owner"]), int(said["pid"])
    except (ValueError, KeyError, TypeError):
        return "unknown", 0


def _unavailable(database_path: str, exc: OSError) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"the folder of {database_path} must be there and writable, and it is not ({exc.strerror}): "
        "make it so, or give another path"
    )
