"""A child process that cannot be left behind.

Owns spawning, the pipes, signals to the whole process group, and reaping. Knows nothing of what the child says.

Children are spawned on the calling thread and watched through a pidfd: a helper thread that ends takes children with a
parent-death signal along, and a pid alone can be somebody else's by the time it is signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import final

import trio

from hive_broker import get_logger

__all__ = ["ChildProcess", "SpawnFailed", "open_child"]

_log = get_logger("hive_agent.runtime")

REAP_SECONDS = 10.0
"""A killed process is gone in milliseconds; one in uninterruptible sleep may take as long as its disk does."""


class SpawnFailed(Exception):
    """The command could not be started; the sentence says why. Nothing runs."""


@final
class ChildProcess:
    """A running child, leader of its own process group. Made by ``open_child``.

    Attributes:
        pid: its process id, and that of its group.
        stdin: closed by the caller when everything is said.
        stdout: what it prints.
        stderr: what it complains of.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *, pidfd: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = popen.pid
        self.stdin = trio.lowlevel.FdStream(stdin)
        self.stdout = trio.lowlevel.FdStream(stdout)
        self.stderr = trio.lowlevel.FdStream(stderr)
        self._popen = popen
        self._pidfd = pidfd

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the process and all it started that stayed in its group; nothing happens once it is reaped."""
        if self._popen.returncode is None:
            # The leader is not reaped, so its pid, and with it the group's, cannot be anybody else's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def wait(self) -> int:
        """Wait until the process is gone, end what is left of its group, and give its exit code.

        A negative code is the signal that ended it. After a cancellation nothing has changed.
        """
        if self._popen.returncode is None:
            await trio.lowlevel.wait_readable(self._pidfd)
            self.signal_group(signal.SIGKILL)
            self._popen.wait()
        return self._popen.returncode

    async def _leave(self) -> None:
        self.signal_group(signal.SIGKILL)
        with trio.move_on_after(REAP_SECONDS, shield=True) as scope:
            await self.wait()
        if scope.cancelled_caught:
            _log.error("a killed process does not go away", pid=self.pid, waited_seconds=REAP_SECONDS)
        for stream in (self.stdin, self.stdout, self.stderr):
            with trio.CancelScope(shield=True):
                await stream.aclose()
        os.close(self._pidfd)


@contextlib.asynccontextmanager
async def open_child(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> AsyncIterator[ChildProcess]:
    """Run ``command`` in its own session and process group for as long as the block lasts.

    However the block is left, the whole group is killed and the process reaped before it returns.

    Args:
        command: the program and its arguments.
        cwd: where it runs.
        env: its whole environment; nothing of ours is added.

    Raises:
        SpawnFailed: it could not be started.
    """
    await trio.lowlevel.checkpoint()
    child = _spawn(command, cwd, env)
    try:
        yield child
    finally:
        await child._leave()  # noqa: ASYNC102, SLF001 - the block's own object; shielded and bounded there


def _spawn(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> ChildProcess:
    try:
        return _spawn_or_raise(command, cwd, env)
    except OSError as exc:
        what = exc.strerror or str(exc)
        about = f" ({os.fsdecode(exc.filename)!r})" if exc.filename is not None else ""
        raise SpawnFailed(f"cannot start {command[0]!r}: {what}{about}") from exc
    except ValueError as exc:
        # A NUL or an unencodable character. The error's own words may quote an argument, so they stay in the cause.
        raise SpawnFailed(
            f"cannot start {command[0]!r}: an argument or variable cannot be passed to a program"
        ) from exc


def _spawn_or_raise(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> ChildProcess:
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

        def pipe(read: contextlib.ExitStack, write: contextlib.ExitStack) -> tuple[int, int]:
            reader, writer = os.pipe()
            read.callback(os.close, reader)
            write.callback(os.close, writer)
            return reader, writer

        stdin_theirs, stdin_ours = pipe(theirs, ours)
        stdout_ours, stdout_theirs = pipe(ours, theirs)
        stderr_ours, stderr_theirs = pipe(ours, theirs)
        popen = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=stdin_theirs,
            stdout=stdout_theirs,
            stderr=stderr_theirs,
            start_new_session=True,
        )
        try:
            pidfd = os.pidfd_open(popen.pid)
        except OSError:
            # It runs and cannot be watched (no descriptor left): it must not live on unwatched.
            popen.kill()
            popen.wait()
            raise
        child = ChildProcess(popen, pidfd=pidfd, stdin=stdin_ours, stdout=stdout_ours, stderr=stderr_ours)
        ours.pop_all()
        return child
