"""The file of the admin socket: making it, and finding out whether the one that is there is dead.

Owns modes, and whose file may be removed. Knows no protocol.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import final

import trio

from hive._errors import SocketUnusable
from hive._paths import require_socket_path

__all__ = ["OwnSocket", "is_taken", "open_own_socket"]

_SOCKET_MODE = 0o660
_FOLDER_MODE = 0o751
_BACKLOG = 128
_PROBE_SECONDS = 1.0  # a listener that lives accepts at once


@final
class OwnSocket:
    """A socket file of this process, with its listener. Made by ``open_own_socket``."""

    def __init__(self, path: Path, listener: trio.SocketListener) -> None:
        self.listener = listener
        self._path = path
        self._made = path.lstat()  # no other file gets its inode while the socket is open

    def is_there(self) -> bool:
        """Whether the path still leads to this socket."""
        try:
            return os.path.samestat(self._path.lstat(), self._made)
        except OSError:
            return False

    def remove(self) -> None:
        """Take the file away, if it is still this one's: whoever replaced it needs theirs."""
        with suppress(OSError):
            if self.is_there():
                self._path.unlink()


@asynccontextmanager
async def open_own_socket(path: Path) -> AsyncIterator[OwnSocket]:
    """A listener at ``path`` (0660); its file goes when the block ends, if it is still ours.

    The folder is made (0751) when it is not there. A socket nobody listens on is replaced.

    Raises:
        SocketPathTooLong: no unix socket can have this path.
        SocketUnusable: a live process listens there, or something that is no socket is there, or the folder says no.
    """
    require_socket_path(path)
    await _clear_the_way(path)
    own = _listen(path)
    async with own.listener:
        try:
            yield own
        finally:
            own.remove()


def is_taken(path: Path) -> bool:
    """Whether something is at ``path``, whatever it is."""
    return os.path.lexists(path)


async def _clear_the_way(path: Path) -> None:
    """Remove what a hive that was killed left behind."""
    if (found := _mode_of(path)) is None:
        return
    if not stat.S_ISSOCK(found):
        raise SocketUnusable(f"the hive's socket must be at {path}, and something that is no socket is there; move it")
    if await _is_listened_on(path):
        raise SocketUnusable(f"another process listens on {path}; stop that hive first: hivectl stop")
    try:
        _unlink(path)
    except OSError as exc:
        raise SocketUnusable(f"the dead socket {path} cannot be removed: {exc.strerror}; remove it") from exc


def _mode_of(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise SocketUnusable(f"{path} must be a place for a socket: {exc.strerror}") from exc


async def _is_listened_on(path: Path) -> bool:
    with trio.socket.socket(socket.AF_UNIX) as probe, trio.move_on_after(_PROBE_SECONDS):
        try:
            await probe.connect(os.fspath(path))
        except OSError as exc:
            # Anything but a plain refusal (no permission, a full backlog) is no proof that nobody is there.
            return exc.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


def _listen(path: Path) -> OwnSocket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        _make_folder(path.parent)
        # The file that bind makes takes its mode from the socket: nobody gets in before it is what it should be.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        path.chmod(_SOCKET_MODE)
        sock.listen(_BACKLOG)
        return OwnSocket(path, trio.SocketListener(trio.socket.from_stdlib_socket(sock)))
    except OSError as exc:
        sock.close()
        raise SocketUnusable(
            f"no socket can be made at {path}: {exc.strerror}; set runtime_dir to a folder of yours"
        ) from exc


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return  # it was there before us, perhaps for others too: its mode is its owner's choice
    folder.mkdir(parents=True)
    folder.chmod(_FOLDER_MODE)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
