"""Children that cannot be left behind: real processes, real signals."""

import contextlib
import os
import re
import resource
import signal
import threading
from pathlib import Path

import psutil
import pytest
import trio

from hive_agent._runtime._process import ChildProcess, SpawnFailed, open_child

ENV = {"PATH": os.environ["PATH"]}
BOUND_SECONDS = 5


def script(*lines: str) -> list[str]:
    """A shell that runs these lines."""
    return ["/bin/sh", "-c", "\n".join(lines)]


def descriptors() -> dict[str, str]:
    """Our open descriptors and where they lead, but for the one that looks."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[entry.name] = str(entry.readlink())
    return found


def children() -> list[int]:
    """The pids of our children, the dead and unreaped ones included."""
    return [process.pid for process in psutil.Process().children()]


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def wait_gone(pid: int) -> None:
    """Return when the process runs no more."""
    with trio.fail_after(BOUND_SECONDS):
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            await trio.lowlevel.wait_readable(pidfd)
        finally:
            os.close(pidfd)


async def read_line(child: ChildProcess) -> bytes:
    """The first line of what it prints."""
    line = b""
    while not line.endswith(b"\n"):
        line += await child.stdout.receive_some(1)
    return line


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No test leaves a descriptor or a child, a zombie included."""
    before = descriptors(), children()
    yield
    assert (descriptors(), children()) == before


async def test_a_child_gets_what_is_said_and_says_its_own(tmp_path):
    """TURN-3: prompt in, answer out, complaints apart, exit code."""
    with trio.fail_after(BOUND_SECONDS):
        async with open_child(script("cat", "echo bad >&2", "exit 3"), cwd=tmp_path, env=ENV) as child:
            await child.stdin.send_all(b"prompt")
            await child.stdin.aclose()
            assert b"".join([chunk async for chunk in child.stdout]) == b"prompt"
            assert b"".join([chunk async for chunk in child.stderr]) == b"bad\n"
            assert await child.wait() == 3
            assert await child.wait() == 3


async def test_a_child_sees_the_environment_it_is_given_and_runs_where_it_is_told(tmp_path):
    """SEC-5: nothing of ours is inherited."""
    os.environ["HIVE_TEST_SECRET"] = "hush"
    try:
        with trio.fail_after(BOUND_SECONDS):
            async with open_child(["/usr/bin/env"], cwd=tmp_path, env={"A": "1"}) as child:
                assert b"".join([chunk async for chunk in child.stdout]) == b"A=1\n"
            async with open_child(["/bin/pwd"], cwd=tmp_path, env=ENV) as child:
                assert await read_line(child) == os.fsencode(tmp_path) + b"\n"
    finally:
        del os.environ["HIVE_TEST_SECRET"]


async def test_a_child_leads_a_group_and_a_session_of_its_own(tmp_path):
    """TURN-6: a signal to it must not reach us."""
    async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV) as child:
        assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid != os.getpgid(0)


async def test_leaving_the_block_kills_and_reaps(tmp_path):
    """REL-3: however a turn's task ends, its process does not outlive it."""
    async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV) as child:
        pid = child.pid
        assert runs(pid)
    assert not psutil.pid_exists(pid)


async def test_an_error_in_the_block_kills_and_leaves_as_it_is(tmp_path):
    """REL-3: the error is not hidden by what is done about the child."""
    with pytest.raises(LookupError, match="mine"):
        async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV) as child:
            raise LookupError("mine")
    assert not psutil.pid_exists(child.pid)


@pytest.mark.parametrize("waiting_for", ["a line", "a complaint", "the exit", "room to write", "nothing"])
async def test_cancelling_any_wait_kills_and_reaps(tmp_path, waiting_for):
    """REL-3: cancellation may come at each await."""
    pid = 0
    with trio.fail_after(BOUND_SECONDS), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                nonlocal pid
                async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV) as child:
                    pid = child.pid
                    match waiting_for:
                        case "a line":
                            await child.stdout.receive_some()
                        case "a complaint":
                            await child.stderr.receive_some()
                        case "the exit":
                            await child.wait()
                        case "room to write":
                            await child.stdin.send_all(bytes(1024 * 1024))
                        case _:
                            await trio.sleep_forever()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert runs(pid)
            scope.cancel()
    assert scope.cancelled_caught
    assert not psutil.pid_exists(pid)


async def test_a_cancelled_start_starts_nothing(tmp_path):
    """TURN-4: what is not started needs no reaping."""
    before = children()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV):
            raise AssertionError("the block must not be entered")
    assert scope.cancelled_caught
    assert children() == before


async def test_a_child_that_ignores_every_polite_signal_is_killed(tmp_path):
    """TURN-6: asking has an end."""
    stubborn = script("trap '' INT TERM HUP", "echo ready", "while :; do sleep 60; done")
    with trio.fail_after(BOUND_SECONDS):
        async with open_child(stubborn, cwd=tmp_path, env=ENV) as child:
            await read_line(child)
            child.signal_group(signal.SIGINT)
            child.signal_group(signal.SIGTERM)
            await trio.testing.wait_all_tasks_blocked()
            assert runs(child.pid)
    assert not psutil.pid_exists(child.pid)


async def test_a_stopped_child_is_killed(tmp_path):
    """TURN-6: a process that was suspended cannot act on a polite signal at all."""
    with trio.fail_after(BOUND_SECONDS):
        async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV) as child:
            child.signal_group(signal.SIGSTOP)
    assert not psutil.pid_exists(child.pid)


async def test_a_grandchild_in_the_group_goes_with_the_child(tmp_path):
    """TURN-6: when the child exits by itself, and when the block is left."""
    for ending in ("exit 0", "wait"):
        with trio.fail_after(BOUND_SECONDS):
            async with open_child(script("sleep 60 & echo $!", ending), cwd=tmp_path, env=ENV) as child:
                grandchild = int(await read_line(child))
                if ending == "exit 0":
                    assert await child.wait() == 0
            await wait_gone(grandchild)


async def test_a_grandchild_of_another_session_does_not_keep_the_block_open(tmp_path):
    """TURN-6: it can hold the pipes for ever, but nobody waits for it."""
    daemon = "setsid sh -c 'echo $$; exec sleep 60' &"
    with trio.fail_after(BOUND_SECONDS):
        async with open_child(script(daemon, "read go"), cwd=tmp_path, env=ENV) as child:
            survivor = int(await read_line(child))
            await child.stdin.send_all(b"go\n")
            assert await child.wait() == 0
        assert runs(survivor)
        os.kill(survivor, signal.SIGKILL)
        await wait_gone(survivor)


async def test_a_signal_after_the_exit_reaches_nobody(tmp_path):
    """TURN-6: the pid may be somebody else's by then."""
    async with open_child(["/bin/true"], cwd=tmp_path, env=ENV) as child:
        assert await child.wait() == 0
        child.signal_group(signal.SIGKILL)
    child.signal_group(signal.SIGKILL)
    assert await child.wait() == 0


async def test_the_signal_that_ended_a_child_is_told(tmp_path):
    """TURN-5: a negative code."""
    with trio.fail_after(BOUND_SECONDS):
        async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV) as child:
            child.signal_group(signal.SIGTERM)
            assert await child.wait() == -signal.SIGTERM


async def test_a_cancelled_wait_can_be_repeated(tmp_path):
    """TURN-6: after a cancellation nothing has changed."""
    with trio.fail_after(BOUND_SECONDS):
        async with open_child(script("read line", "exit 4"), cwd=tmp_path, env=ENV) as child:
            with trio.CancelScope() as scope:
                scope.cancel()
                await child.wait()
            await child.stdin.send_all(b"go\n")
            assert await child.wait() == 4


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["/nowhere/claude"], "cannot start '/nowhere/claude': No such file or directory"),
        (["/etc/passwd"], "cannot start '/etc/passwd': Permission denied"),
        (["/bin/echo", "a\0b"], "an argument or variable cannot be passed"),
        (["/bin/echo", "\ud800"], "an argument or variable cannot be passed"),
        (["/bin/echo", "x" * 200_000], "cannot start '/bin/echo': Argument list too long"),
    ],
    ids=["missing", "not executable", "NUL", "half a character", "too long"],
)
async def test_a_command_that_cannot_be_started_says_why(tmp_path, command, says):
    """TURN-5: the sentence is for the operator; nothing runs, and no descriptor is left."""
    with pytest.raises(SpawnFailed, match=re.escape(says)) as caught:
        async with open_child(command, cwd=tmp_path, env=ENV):
            raise AssertionError("the block must not be entered")
    assert caught.value.__cause__ is not None


async def test_a_folder_that_is_gone_is_named(tmp_path):
    """TURN-5: otherwise the command would be blamed for it."""
    gone = tmp_path / "gone"
    with pytest.raises(SpawnFailed, match=f"No such file or directory .*{re.escape(str(gone))}"):
        async with open_child(["/bin/true"], cwd=gone, env=ENV):
            raise AssertionError("the block must not be entered")


@pytest.mark.parametrize("spare", range(12))
async def test_a_machine_without_descriptors_says_so_and_leaves_nothing(tmp_path, spare):
    """REL-3: whichever descriptor is the one too many, none is kept and nothing runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, descriptors()))
    holes = [fd for fd in range(highest) if not Path(f"/proc/self/fd/{fd}").exists()]
    fillers = [os.open("/dev/null", os.O_RDONLY) for _ in holes]
    before = children()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max((highest, *fillers)) + 1 + spare, hard))
    failure = None
    try:
        async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV):
            pass
    except SpawnFailed as exc:
        failure = str(exc)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)
    assert failure in (None, "cannot start '/bin/sleep': Too many open files")
    assert children() == before


@pytest.mark.slow
async def test_fifty_children_at_once_end_as_they_should(tmp_path):
    """TURN-4: each has its own pipes, group and exit code."""
    ended: dict[int, int] = {}

    async def run(number: int) -> None:
        async with open_child(script("read code", "exit $code"), cwd=tmp_path, env=ENV) as child:
            await child.stdin.send_all(f"{number}\n".encode())
            ended[number] = await child.wait()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(run, number)
    assert ended == {number: number for number in range(50)}


async def test_the_thread_of_the_loop_is_the_one_that_spawns(tmp_path):
    """TURN-6: a parent-death signal follows the thread that spawned, and a helper thread ends when it is idle."""
    async with open_child(["/bin/sleep", "60"], cwd=tmp_path, env=ENV) as child:
        spawned_here = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
        assert str(child.pid) in spawned_here
