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

import trio

from hive._errors import SocketUnusable
from hive._paths import require_socket_path

__all__ = ["open_listener"]

_SOCKET_MODE = 0o660
_FOLDER_MODE = 0o751
_BACKLOG = 128
_PROBE_SECONDS = 1.0  # a listener that lives accepts at once


@asynccontextmanager
async def open_listener(path: Path) -> AsyncIterator[trio.SocketListener]:
    """A listener at ``path`` (0660); its file goes when the block ends, if it is still ours.

    The folder is made (0751) when it is not there. A socket nobody listens on is replaced.

    Raises:
        SocketPathTooLong: no unix socket can have this path.
        SocketUnusable: a live process listens there, or something that is no socket is there, or the folder says no.
    """
    require_socket_path(path)
    await _clear_the_way(path)
    listener, inode = _listen(path)
    try:
        async with listener:
            yield listener
    finally:
        _remove(path, inode)


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


def _listen(path: Path) -> tuple[trio.SocketListener, int]:
    sock = socket.socket(socket.AF_UNIX)
    try:
        _make_folder(path.parent)
        # The file that bind makes takes its mode from the socket: nobody gets in before it is what it should be.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        path.chmod(_SOCKET_MODE)
        sock.listen(_BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock)), path.stat().st_ino
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


def _remove(path: Path, inode: int) -> None:
    # Only our own: whoever replaced the file meanwhile needs theirs.
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
