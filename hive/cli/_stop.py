"""Asking a hive to stop, and knowing when it has.

Owns what "gone" means: its process has ended, or nobody owns its state any more and its hive.json is away. The second
comes alone where the process is out of sight, and where the hive is part of a program that goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import trio

from hive._errors import HiveVanished
from hive._hostsock import open_host_client
from hive._paths import HivePaths
from hive_broker import owner_of

from ._find import FoundHive
from ._text import on_terminal

__all__ = ["Stopped", "stop_hive"]

_LOOK_SECONDS = 0.1  # between two looks for what nothing announces
_UNKNOWN = object()  # a hive.json that is there, and says of nobody whose it is
_LINGER_SECONDS = 5.0  # a program whose hive has ended ends at once, or has other things to do


@attrs.frozen(kw_only=True)
class Stopped:
    """A hive that is no more.

    Attributes:
        hive: its name.
        pid: the process it was in.
        process_goes_on: it was part of a program that still runs.
    """

    hive: str
    pid: int
    process_goes_on: bool


async def stop_hive(found: FoundHive, *, graceful: bool, tell: Callable[[str], None]) -> Stopped:
    """Ask the hive to stop and wait until it is gone, for as long as its own grace takes.

    Args:
        found: which one.
        graceful: let running turns finish.
        tell: gets a line for a person who waits.

    Raises:
        HiveError: it could not be asked, or refused.
    """
    life = _life(found.hive_json)
    async with open_host_client(found.host_sock) as client:
        status = await client.hive_status()
        with _watched(status.pid) as pidfd:
            # One that is quicker than its answer vanishes; whether it is gone is found out next.
            with suppress(HiveVanished):
                await client.shutdown(graceful=graceful)
            tell(f"stopping hive {on_terminal(status.hive)} (pid {status.pid}); Ctrl-C leaves it to stop by itself")
            goes_on = not await _wait_gone(pidfd, lambda: _has_ended(found, life, status.pid))
    return Stopped(hive=status.hive, pid=status.pid, process_goes_on=goes_on)


@contextmanager
def _watched(pid: int) -> Iterator[int | None]:
    """A descriptor that becomes readable when the process ends; None when it is in no sight of ours."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None  # another pid namespace, or gone this instant: its files say
        return
    try:
        yield pidfd
    finally:
        os.close(pidfd)


async def _wait_gone(pidfd: int | None, has_ended: Callable[[], bool]) -> bool:
    """Return once the hive is gone; False if its process seems to stay."""
    while not has_ended():
        if await _is_over_within(pidfd, _LOOK_SECONDS):
            return True
    return pidfd is None or await _is_over_within(pidfd, _LINGER_SECONDS)


async def _is_over_within(pidfd: int | None, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        if pidfd is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(pidfd)
            return True
    return False


def _has_ended(found: FoundHive, life: object, pid: int) -> bool:
    """Whether nothing of that life of the hive is left."""
    if (now := _life(found.hive_json)) is not None:
        return now not in (life, _UNKNOWN)  # a successor says so only when it owns the state
    # The file goes first of all, and turns may take their grace after that; the broker goes last.
    database = HivePaths(state_dir=found.hive_json.parent.parent, runtime_dir=found.host_sock.parent).broker_db
    try:
        owner = owner_of(database)
    except OSError:
        return False  # nobody else can know; the process says
    return owner is None or owner[1] != pid


def _life(hive_json: Path) -> object:
    """What tells one life of a hive from the next in its hive.json; None when there is none."""
    try:
        said = json.loads(hive_json.read_bytes())
        return said.get("pid"), said.get("started_at")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, RecursionError):
        return _UNKNOWN
