"""One process per agent: the claim on an agent's harness folder (TURN-4).

Owns a lock on the folder itself, which dies with its process and is taken before anything of the agent is touched: who
comes second must not end the runtime of the first, take its port, or change its session.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ._errors import AgentRunning
from ._files import read_small_file, write_private

__all__ = ["own_harness"]

_PID_BYTES = 32


@contextmanager
def own_harness(harness_dir: Path, *, name: str) -> Iterator[None]:
    """Be the one process that runs the agent, until the block is left or the process dies.

    Args:
        harness_dir: the agent's harness folder; made (0700) when it is not there.
        name: the agent, for people.

    Raises:
        AgentRunning: another process, or another task of this one, runs the agent; nothing was touched.
        OSError: the folder cannot be made or opened.
    """
    harness_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(harness_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        pid_file = harness_dir / "pid"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = _pid_in(pid_file)
            raise AgentRunning(f"{name} is run by another process already{who}: stop that one first") from None
        # Only words for whoever comes second: the lock is what counts, and a full disk must not keep an agent down.
        with suppress(OSError):
            write_private(pid_file, f"{os.getpid()}\n")
        yield
    finally:
        os.close(descriptor)


def _pid_in(path: Path) -> str:
    try:
        pid = read_small_file(path, limit_bytes=_PID_BYTES)[0].strip().decode("ascii", "replace")
    except OSError:
        return ""
    return f" (pid {pid})" if pid.isdigit() else ""
