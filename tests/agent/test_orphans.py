"""Processes of an earlier life: found by their mark, and ended."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import trio

from hive_agent._runtime._orphans import OWNER_VARIABLE, RuntimeMark

BOUND_SECONDS = 10

Start = Callable[..., int]


@pytest.fixture
def mark(tmp_path) -> RuntimeMark:
    """The mark of an agent whose harness was killed while its runtime ran."""
    mark = RuntimeMark(tmp_path)
    mark.set()
    return mark


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a shell script with an environment; give its pid once it said that it is ready."""
    started: list[subprocess.Popen[bytes]] = []

    def _start(script: str, **environment: str) -> int:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process.pid

    yield _start
    for process in started:
        process.kill()
        process.communicate()


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def wait_found(mark: RuntimeMark, count: int) -> tuple[int, ...]:
    """Give what carries the mark as soon as it is so many: children appear when they like."""
    while True:
        if len(found := mark.find()) >= count:
            return found
        await trio.lowlevel.checkpoint()


QUIET = "echo ready; read line"
"""One process that waits: a second program in its place would have no environment for an instant."""

STUBBORN = "trap '' INT TERM; echo ready; while :; do sleep 60 & wait; done"


async def test_a_process_of_an_earlier_life_is_found_and_ended(mark, start):
    """TURN-4: no pid file is needed, so no crash can come before it is written."""
    pid = start(QUIET, **mark.environment)

    assert mark.find() == (pid,)
    with trio.fail_after(BOUND_SECONDS):
        assert await mark.end_orphans() == (pid,)
    assert not runs(pid)
    assert mark.find() == ()


async def test_it_is_asked_before_it_is_killed(mark, start, tmp_path):
    """TURN-4: a runtime that is interrupted leaves its session whole."""
    said = tmp_path / "said"
    pid = start(f"trap 'echo asked > {said}; exit 0' INT; echo ready; while :; do sleep 0.02; done", **mark.environment)

    with trio.fail_after(BOUND_SECONDS):
        assert pid in await mark.end_orphans()
    assert said.read_text() == "asked\n"


@pytest.mark.slow
async def test_one_that_does_not_listen_is_killed_with_its_children(mark, start):
    """TURN-4: the children carry the mark as well, whatever their session is."""
    pid = start(f"setsid sh -c \"trap '' INT; sleep 61\" & {STUBBORN}", **mark.environment)
    with trio.fail_after(BOUND_SECONDS):
        marked = await wait_found(mark, 4)
        ended = await mark.end_orphans()

    assert pid in ended
    assert set(marked) <= set(ended)
    assert not any(map(runs, ended))


async def test_anothers_process_is_left_alone(mark, start, tmp_path):
    """TURN-4: neither another agent's, nor one whose folder only begins like ours, nor one without a mark."""
    owner = mark.environment[OWNER_VARIABLE]
    others = [
        start(QUIET, **{OWNER_VARIABLE: f"{owner}-2"}),
        start(QUIET, **{OWNER_VARIABLE: str(tmp_path.parent)}),
        start(QUIET, **{f"X{OWNER_VARIABLE}": owner}),
        start(QUIET, HARMLESS=f"{OWNER_VARIABLE}={owner}"),
        start(QUIET),
    ]

    assert mark.find() == ()
    assert await mark.end_orphans() == ()
    assert all(map(runs, others))


async def test_an_agent_that_ended_in_order_is_not_looked_for(mark, start):
    """TURN-4: a start with nothing to clean up costs a look at one file."""
    pid = start(QUIET, **mark.environment)
    mark.clear()

    assert await mark.end_orphans() == ()
    assert runs(pid)


async def test_what_was_ended_is_not_looked_for_again(mark, tmp_path):
    """TURN-4: the file goes when nothing is left, and not before."""
    assert list(tmp_path.iterdir()) != []
    assert await mark.end_orphans() == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
async def test_a_cancelled_search_is_done_again_at_the_next_start(mark, start):
    """TURN-4: the file stays until the last of them is gone."""
    pid = start(STUBBORN, **mark.environment)
    with trio.CancelScope() as scope:
        scope.cancel()
        await mark.end_orphans()

    assert scope.cancelled_caught
    with trio.fail_after(BOUND_SECONDS):
        assert pid in await RuntimeMark(Path(mark.environment[OWNER_VARIABLE])).end_orphans()
    assert not runs(pid)


async def test_processes_that_vanish_meanwhile_are_no_trouble(mark, start):
    """TURN-4: what is listed may be gone before it is looked at."""
    with trio.fail_after(BOUND_SECONDS):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                pid = start(QUIET, **mark.environment)
                nursery.start_soon(mark.end_orphans)
                nursery.start_soon(mark.end_orphans)
                os.kill(pid, signal.SIGKILL)
    assert mark.find() == ()


async def test_two_paths_to_one_folder_are_one_owner(mark, start, tmp_path):
    """TURN-4: a link to the state folder must not hide an orphan."""
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    pid = start(QUIET, **RuntimeMark(link).environment)

    assert mark.find() == (pid,)


async def test_a_folder_whose_name_is_no_text_can_be_an_owner(start, tmp_path):
    """SEC-4: a path is bytes."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    odd.mkdir()
    mark = RuntimeMark(odd)
    mark.set()
    pid = start(QUIET, **mark.environment)

    with trio.fail_after(BOUND_SECONDS):
        assert await mark.end_orphans() == (pid,)


def test_a_mark_that_cannot_be_removed_is_no_error(tmp_path):
    """REL-3: a turn is not lost because a disk turned read-only at its end."""
    (tmp_path / "runtime-may-run").mkdir()

    RuntimeMark(tmp_path).clear()
