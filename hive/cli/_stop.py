"""Asking a hive to stop, and knowing when it has.

Owns what "gone" means: its process has ended, or, where that is out of sight, its hive.json is away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import attrs
import trio

from hive._errors import HiveVanished
from hive._hostsock import open_host_client

from ._find import FoundHive
from ._text import on_terminal

__all__ = ["Stopped", "stop_hive"]

_LOOK_SECONDS = 0.1  # between two looks for hive.json, whose going nothing announces


@attrs.frozen(kw_only=True)
class Stopped:
    """A hive that is no more.

    Attributes:
        hive: its name.
        pid: the process it was in.
    """

    hive: str
    pid: int


async def stop_hive(found: FoundHive, *, graceful: bool, tell: Callable[[str], None]) -> Stopped:
    """Ask the hive to stop and wait until it is gone, for as long as its own grace takes.

    Args:
        found: which one.
        graceful: let running turns finish.
        tell: gets a line for a person who waits.

    Raises:
        HiveError: it could not be asked, or refused.
    """
    async with open_host_client(found.host_sock) as client:
        status = await client.hive_status()
        with _watched(status.pid) as pidfd:
            # One that is quicker than its answer vanishes; whether it is gone is found out next.
            with suppress(HiveVanished):
                await client.shutdown(graceful=graceful)
            tell(f"stopping hive {on_terminal(status.hive)} (pid {status.pid}); Ctrl-C leaves it to stop by itself")
            await _wait_gone(found, pidfd)
    return Stopped(hive=status.hive, pid=status.pid)


@contextmanager
def _watched(pid: int) -> Iterator[int | None]:
    """A descriptor that becomes readable when the process ends; None when it is in no sight of ours."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None  # another pid namespace, or gone this instant: its hive.json says
        return
    try:
        yield pidfd
    finally:
        os.close(pidfd)


async def _wait_gone(found: FoundHive, pidfd: int | None) -> None:
    if pidfd is not None:
        return await trio.lowlevel.wait_readable(pidfd)
    while found.hive_json.exists():  # noqa: ASYNC110  # another process removes it
        await trio.sleep(_LOOK_SECONDS)
    return None
