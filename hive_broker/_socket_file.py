"""The file of a mailbox's socket: making it, and finding out whether the one that is there is dead.

Owns modes, the kernel's limit on paths, and whose file may be removed. Knows no protocol.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import final

import trio

from ._errors import MailboxSocketUnusable

__all__ = ["OwnSocket", "check_socket_path", "make_own_socket"]

_MAX_PATH_BYTES = 107
"""Linux has 108 bytes for the path of a unix socket, and the last one is NUL."""

_BACKLOG = 128
"""Peers that may wait for the event loop to let them in."""

_PROBE_SECONDS = 1.0
"""A listener that lives accepts at once."""


def check_socket_path(path: Path) -> None:
    """Refuse a path no unix socket can have.

    Raises:
        MailboxSocketUnusable: it is too long, or has a NUL in it.
    """
    length = len(os.fsencode(path))
    if length > _MAX_PATH_BYTES or "\0" in str(path):
        raise MailboxSocketUnusable(
            f"the path of a unix socket must have at most {_MAX_PATH_BYTES} bytes and no NUL, {str(path)!r} has "
            f"{length}: use a folder with a shorter path"
        )


@final
class OwnSocket:
    """A socket file of this process, with its listener. Made by ``make_own_socket``."""

    def __init__(self, path: Path, listener: trio.SocketListener) -> None:
        self.listener = listener
        self._path = path
        self._inode = path.stat().st_ino

    def is_there(self) -> bool:
        """Whether the path still leads to this socket."""
        try:
            return self._path.lstat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Stop listening and take the file away, if it is still this one's: whoever replaced it needs theirs."""
        with suppress(OSError):
            if self.is_there():
                self._path.unlink()
        self.listener.socket.close()


async def make_own_socket(path: Path) -> OwnSocket:
    """Listen at ``path`` (0600); the caller closes it.

    The folder is made (0700) when it is not there. A socket nobody listens on is replaced.

    Raises:
        MailboxSocketUnusable: the path is too long, a live process listens there, something that is no socket is
            there, or the folder says no.
    """
    check_socket_path(path)
    await _clear_the_way(path)
    return _listen(path)


async def _clear_the_way(path: Path) -> None:
    """Remove what a process that was killed left behind."""
    if (mode := _mode_of(path)) is None:
        return
    if not stat.S_ISSOCK(mode):
        raise MailboxSocketUnusable(f"a mailbox's socket must be at {path}, where something else is: move that away")
    if await _is_listened_on(path):
        raise MailboxSocketUnusable(f"another process listens on {path}: stop it first")
    _unlink(path)


def _mode_of(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise MailboxSocketUnusable(f"{path} must be a place for a socket ({exc.strerror}): correct its path") from exc


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        raise MailboxSocketUnusable(f"the dead socket {path} cannot be removed ({exc.strerror}): remove it") from exc


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
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        # The file that bind makes takes its mode from the socket: nobody gets in before it is what it should be.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        sock.listen(_BACKLOG)
        return OwnSocket(path, trio.SocketListener(trio.socket.from_stdlib_socket(sock)))
    except OSError as exc:
        sock.close()
        raise MailboxSocketUnusable(
            f"no socket can be made at {path} ({exc.strerror}): give a folder this user can write"
        ) from exc
