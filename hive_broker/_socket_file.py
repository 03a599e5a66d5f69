"""A unix socket that is there for as long as it is served: making its file, and making it again when it is removed.

Owns modes, the kernel's limit on paths, and whose file may be removed. Knows no protocol; a hive serves its mailboxes
and its admin socket with it.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import final

import trio

from ._errors import MailboxSocketUnusable
from ._log import get_logger

__all__ = ["check_socket_path", "serve_unix_socket"]

_log = get_logger("hive_broker")

_MAX_PATH_BYTES = 107
"""Linux has 108 bytes for the path of a unix socket, and the last one is NUL."""

_LOOK_SECONDS = 15.0
"""Between two looks whether the socket's file is still there: nothing announces that somebody removed it."""

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


async def serve_unix_socket(
    path: Path,
    welcome: Callable[[trio.SocketStream], Awaitable[None]],
    *,
    mode: int,
    folder_mode: int,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve connections at ``path`` until cancelled; the file is gone afterwards.

    A file that somebody removes is made again, and open connections go on; where another process listens by then, it is
    left alone until it goes (REL-3).

    Args:
        path: of the socket. A socket nobody listens on is replaced.
        welcome: serves one connection; must not raise.
        mode: of the file, such as 0o600.
        folder_mode: of its folder, where it is not there yet.
        task_status: started once connections are taken.

    Raises:
        MailboxSocketUnusable: the path is too long, a live process listens there, something that is no socket is
            there, or the folder says no.
    """
    make = partial(_make, path, mode, folder_mode)
    own = await make()
    try:
        async with trio.open_nursery() as connections:
            task_status.started()
            while True:
                await _accept_until_lost(own, welcome, connections)
                _log.warning("a socket was removed by somebody; making it again", path=str(path))
                own.close()
                own = await _make_again(path, make)
    finally:
        own.close()


async def _accept_until_lost(
    own: _OwnSocket, welcome: Callable[[trio.SocketStream], Awaitable[None]], connections: trio.Nursery
) -> None:
    async with trio.open_nursery() as accepting:
        accepting.start_soon(partial(trio.serve_listeners, welcome, [own.listener], handler_nursery=connections))
        while own.is_there():  # noqa: ASYNC110 - see _LOOK_SECONDS
            await trio.sleep(_LOOK_SECONDS)
        accepting.cancel_scope.cancel()


async def _make_again(path: Path, make: Callable[[], Awaitable[_OwnSocket]]) -> _OwnSocket:
    said = ""
    while True:
        try:
            if _mode_of(path) is not None:
                await trio.sleep(_LOOK_SECONDS)  # somebody who has just made it may be about to listen
            return await make()
        except MailboxSocketUnusable as exc:
            if str(exc) != said:
                said = str(exc)
                _log.warning("a socket cannot be made again, trying on", reason=said)
            await trio.sleep(_LOOK_SECONDS)


@final
class _OwnSocket:
    """A socket file of this process, with its listener."""

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

    def close(self) -> None:
        """Stop listening and take the file away, if it is still this one's: whoever replaced it needs theirs."""
        with suppress(OSError):
            if self.is_there():
                self._path.unlink()
        self.listener.socket.close()


async def _make(path: Path, mode: int, folder_mode: int) -> _OwnSocket:
    check_socket_path(path)
    await _clear_the_way(path)
    return _listen(path, mode, folder_mode)


async def _clear_the_way(path: Path) -> None:
    """Remove what a process that was killed left behind."""
    if (mode := _mode_of(path)) is None:
        return
    if not stat.S_ISSOCK(mode):
        raise MailboxSocketUnusable(
            f"a socket must be at {path}, and something that is no socket is there: move that away"
        )
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


def _listen(path: Path, mode: int, folder_mode: int) -> _OwnSocket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        if not path.parent.is_dir():  # one that was there is perhaps for others too: its mode is its owner's choice
            path.parent.mkdir(parents=True)
            path.parent.chmod(folder_mode)
        # The file that bind makes takes its mode from the socket: nobody gets in before it is what it should be.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(os.fspath(path))
        path.chmod(mode)
        sock.listen(_BACKLOG)
        return _OwnSocket(path, trio.SocketListener(trio.socket.from_stdlib_socket(sock)))
    except OSError as exc:
        sock.close()
        raise MailboxSocketUnusable(
            f"no socket can be made at {path} ({exc.strerror}): give a folder this user can write, as runtime_dir"
        ) from exc
