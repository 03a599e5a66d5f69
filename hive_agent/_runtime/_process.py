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

import structlog
import trio

__all__ = ["ChildProcess", "SpawnFailed", "open_child"]

_log = structlog.get_logger("hive_agent.runtime")

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

    def __init__(self, popen: subprocess.Popen[bytes], *, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = popen.pid
        self.stdin = trio.lowlevel.FdStream(stdin)
        self.stdout = trio.lowlevel.FdStream(stdout)
        self.stderr = trio.lowlevel.FdStream(stderr)
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)

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
        await child._leave()  # noqa: SLF001 - the block's own object


def _spawn(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> ChildProcess:
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

        def pipe(read: contextlib.ExitStack, write: contextlib.ExitStack) -> tuple[int, int]:
            reader, writer = os.pipe()
            read.callback(os.close, reader)
            write.callback(os.close, writer)
            return reader, writer

        stdin_theirs, stdin_ours = pipe(theirs, ours)
        stdout_ours, stdout_theirs = pipe(ours, theirs)
        stderr_ours, stderr_theirs = pipe(ours, theirs)
        try:
            popen = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(env),
                stdin=stdin_theirs,
                stdout=stdout_theirs,
                stderr=stderr_theirs,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            what = getattr(exc, "strerror", None) or str(exc)
            raise SpawnFailed(f"cannot start {command[0]!r}: {what}") from exc
        child = ChildProcess(popen, stdin=stdin_ours, stdout=stdout_ours, stderr=stderr_ours)
        ours.pop_all()
        return child
