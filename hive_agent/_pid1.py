"""What the first process of a container owes it (HOST-6): reaping what nobody else does, and passing signals on.

The real program runs in a child of its own. So it can wait for its own children without this process taking their exit
codes away, and this process stays small. When it exits, the kernel ends whatever else is left in the container.
"""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["become_init"]

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def become_init() -> int | None:
    """Go on as the child of a process that does pid 1's duties. Call it before there are threads or an event loop.

    Returns:
        None in the child, which goes on. In the first process the child's exit code, once that has ended; 128 and the
        signal's number if one ended it.
    """
    watched = {*_PASSED_ON, signal.SIGCHLD}
    # Blocked before there is a child: none of them can come between.
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        return None
    while True:
        number = signal.sigwait(watched)
        if number == signal.SIGCHLD:
            if (status := _reap(child)) is not None:
                return status if status >= 0 else 128 - status
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended: the next signal says so
                os.kill(child, number)


def _reap(child: int) -> int | None:
    """Reap everything that has ended; the exit code of ``child``, negative for a signal, None while it lives."""
    code: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
    return code
