"""Runtime processes that outlived their harness: found by a mark they cannot lose, and ended (TURN-4).

A harness killed between spawning a child and writing down its pid would otherwise start a second child beside the
first. So a file says *before* each spawn that a runtime may be running, and every process of the runtime carries its
owner in its environment, which its own children inherit.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import final

import trio

from hive_broker import get_logger

__all__ = ["OWNER_VARIABLE", "RuntimeMark", "find_runtimes"]

OWNER_VARIABLE = "HIVE_RUNTIME_OWNER"
"""Environment variable of every runtime process: the harness folder it belongs to."""

_log = get_logger("hive_agent.runtime")

PATIENCE_SECONDS = 2.0
"""How long an orphan may take to leave after SIGINT; its session file is whole by then."""


@final
class RuntimeMark:
    """The mark of one agent's runtime.

    Args:
        harness_dir: the agent's harness folder; its real path is the owner's name.
    """

    def __init__(self, harness_dir: Path) -> None:
        self._owner = str(harness_dir.resolve())
        self._entry = os.fsencode(f"{OWNER_VARIABLE}={self._owner}")
        self._file = harness_dir / "runtime-may-run"

    @property
    def environment(self) -> Mapping[str, str]:
        """What the runtime's environment must contain."""
        return {OWNER_VARIABLE: self._owner}

    def set(self) -> None:
        """Say that a runtime may be running; call before the spawn."""
        self._file.touch(mode=0o600)

    def clear(self) -> None:
        """Say that it is reaped. A disk that does not take this costs one look around at the next start."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)

    def find(self) -> tuple[int, ...]:
        """Give the pids of all running processes that carry this owner's mark."""
        return tuple(pid for pid in _pids() if self._entry in _environment(pid))

    async def end_orphans(self) -> tuple[int, ...]:
        """End whatever an earlier life of this harness left running, and give the pids that were found.

        Asks first, kills after ``PATIENCE_SECONDS``, and looks again until nothing is found: an orphan may start
        children while it is being ended.
        """
        if not self._file.exists():
            return ()
        ended: list[int] = []
        for number in (signal.SIGINT, signal.SIGKILL, signal.SIGKILL):
            found = self.find()
            if not found:
                break
            ended += [pid for pid in found if pid not in ended]
            await self._signal_and_wait(found, number)
        if left := self.find():
            # Killed, and stuck in the kernel. It does nothing any more; the next start looks again.
            _log.error("a killed process of an earlier life does not go away", pids=left)
        else:
            self.clear()
        return tuple(ended)

    async def _signal_and_wait(self, pids: tuple[int, ...], number: signal.Signals) -> None:
        with contextlib.ExitStack() as stack:
            pidfds: list[int] = []
            for pid in pids:
                # Gone meanwhile, or no descriptor left to hold it by: then it is found again.
                with contextlib.suppress(OSError):
                    pidfd = os.pidfd_open(pid)
                    stack.callback(os.close, pidfd)
                    # Only now is the pid pinned: look once more whose it is.
                    if self._entry in _environment(pid):
                        signal.pidfd_send_signal(pidfd, number)
                        pidfds.append(pidfd)
            with trio.move_on_after(PATIENCE_SECONDS):
                for pidfd in pidfds:
                    await trio.lowlevel.wait_readable(pidfd)


def find_runtimes() -> Mapping[str, tuple[int, ...]]:
    """Give the pids of all runtime processes this user can see, by the real path of the harness folder they are of."""
    found: dict[str, tuple[int, ...]] = {}
    prefix = os.fsencode(f"{OWNER_VARIABLE}=")
    for pid in _pids():
        for entry in _environment(pid):
            if entry.startswith(prefix):
                owner = os.fsdecode(entry.removeprefix(prefix))
                found[owner] = (*found.get(owner, ()), pid)
    return found


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 - names are all that is needed


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        # Gone, or not ours to read: then it is not ours to end either.
        return []
