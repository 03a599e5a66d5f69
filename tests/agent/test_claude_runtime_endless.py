"""The Claude runtime over fake CLIs that do not end: signals, what is left behind, cancellation."""

import shlex

import psutil
import pytest
import trio
from fake_claude import (
    BOUND_SECONDS,
    DONE,
    NAP,
    REQUEST,
    WELL,
    Agent,
    init,
    make_agent,
    next_started,
    nothing_left,
    runs,
    says,
    wait_line,
)

from hive_agent import Outcome, Signal


@pytest.fixture
def agent(tmp_path) -> Agent:
    """An agent with nothing special about it."""
    return make_agent(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    """No test leaves a descriptor, a child or a process of its agent."""
    with nothing_left(tmp_path):
        yield


async def test_a_cli_that_lives_on_after_its_result_is_killed_and_its_result_counts(agent):
    """TURN-6: the turn is done; only the process is not."""
    with trio.fail_after(BOUND_SECONDS):
        async with agent.runtime(f"{says(init(), DONE)}\ntrap '' INT TERM\nwhile :; do sleep 60; done").open_run(
            REQUEST
        ) as run:
            await next_started(run)
            await wait_line(run)
            assert (await wait_line(run)).result
            run.signal(Signal.KILL)
            assert await run.next() is None

    assert (run.report.outcome, run.report.exit_code) == (Outcome.DONE, -9)


async def test_a_cli_that_ignores_polite_signals_is_ended_by_a_kill(agent):
    """TURN-6: asked, told, killed."""
    script = f"trap '' INT TERM\n{says(init())}\nwhile :; do sleep 60; done"
    with trio.fail_after(BOUND_SECONDS):
        async with agent.runtime(script).open_run(REQUEST) as run:
            pid = await next_started(run)
            await wait_line(run)
            run.signal(Signal.INTERRUPT)
            run.signal(Signal.TERMINATE)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert psutil.Process(pid).is_running()
            run.signal(Signal.KILL)
            assert await run.next() is None

    assert (run.report.outcome, run.report.exit_code) == (Outcome.CRASHED, -9)


@pytest.mark.parametrize(
    ("signal", "code"), [(Signal.INTERRUPT, 11), (Signal.TERMINATE, 12)], ids=lambda value: str(value)
)
async def test_a_polite_signal_reaches_the_whole_group(agent, signal, code):
    """TURN-6: also what the CLI had started."""
    script = f"trap 'exit 11' INT\ntrap 'exit 12' TERM\n{says(init())}\n{NAP}"
    with trio.fail_after(BOUND_SECONDS):
        async with agent.runtime(script).open_run(REQUEST) as run:
            await next_started(run)
            await wait_line(run)
            run.signal(signal)
            assert await run.next() is None

    assert run.report.exit_code == code


async def test_a_signal_before_the_process_exists_is_told_as_soon_as_it_does(agent):
    """TURN-6: an interrupt at the very start of a turn is not lost."""
    with trio.fail_after(BOUND_SECONDS):
        async with agent.runtime("trap '' INT\nsleep 60").open_run(REQUEST) as run:
            run.signal(Signal.KILL)
            await next_started(run)
            assert await run.next() is None

    assert run.report.exit_code == -9


async def test_a_signal_after_the_end_is_told_to_nobody(agent):
    """TURN-6: a watchdog can fire while the run ends."""
    with trio.fail_after(BOUND_SECONDS):
        async with agent.runtime(WELL).open_run(REQUEST) as run:
            while await run.next() is not None:
                pass
            run.signal(Signal.KILL)

    assert run.report.outcome is Outcome.DONE


async def test_a_cli_that_closes_its_stdout_and_lives_on_is_still_a_run(agent):
    """TURN-6: its end is its exit; silence is the watchdog's business."""
    with trio.fail_after(BOUND_SECONDS):
        async with agent.runtime(f"{says(init())}\nexec >&- 2>&-\nsleep 60").open_run(REQUEST) as run:
            await next_started(run)
            await wait_line(run)
            with trio.move_on_after(0.1) as scope:
                await run.next()
            assert scope.cancelled_caught
            run.signal(Signal.KILL)
            assert await run.next() is None

    assert run.report.outcome is Outcome.CRASHED


@pytest.mark.slow
@pytest.mark.parametrize("prints", ["", 'while :; do echo \'{"type":"late"}\'; done'], ids=["silent", "chatty"])
async def test_what_the_cli_left_behind_holds_no_run_open_and_is_ended(agent, prints):
    """TURN-6: a process in a session of its own keeps the pipes, and may print for ever."""
    daemon = shlex.quote(f"echo $$ > left\n{prints}\nexec sleep 60")
    left = f"setsid sh -c {daemon} &\nuntil [ -s left ]; do :; done"
    ended = await agent.run(f"{left}\n{WELL}")

    assert ended.report.outcome is Outcome.DONE
    assert [kind for kind in ended.types if kind != "late"] == ["system", "result"]
    assert not runs(int((agent.config.state_dir / "left").read_text()))


async def test_what_stays_in_the_group_dies_with_the_cli(agent):
    """TURN-6: the CLI's own background children are not waited for."""
    ended = await agent.run(f"sleep 60 & echo $! > left\n{WELL}")

    assert ended.report.outcome is Outcome.DONE


@pytest.mark.parametrize("after", ["the start", "a line", "nothing"])
async def test_a_cancelled_block_leaves_nothing_running(agent, after):
    """STOP-3: wherever the turn's task is."""
    with trio.CancelScope() as scope:
        async with agent.runtime(f"{says(init())}\ntrap '' INT TERM\nsleep 60").open_run(REQUEST) as run:
            with trio.fail_after(BOUND_SECONDS):
                if after != "nothing":
                    await next_started(run)
                if after == "a line":
                    await wait_line(run)
            scope.cancel()
            await run.next()
    assert scope.cancelled_caught


async def test_an_error_in_the_block_leaves_as_it_is(agent):
    """EMBED-1: in one shape, and nothing runs on."""

    async def fail() -> None:
        async with agent.runtime("sleep 60").open_run(REQUEST) as run:
            await next_started(run)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()


async def test_a_block_that_is_left_early_ends_the_cli(agent):
    """STOP-3: without an error, too."""
    async with agent.runtime("sleep 60").open_run(REQUEST) as run:
        pid = await next_started(run)

    assert not runs(pid)


async def test_the_next_life_ends_what_a_killed_harness_left(agent, tmp_path):
    """TURN-4: there are never two runtimes of one agent."""
    runtime = agent.runtime(f"{says(init())}\nsleep 60")
    async with runtime.open_run(REQUEST) as run:
        with trio.fail_after(BOUND_SECONDS):
            pid = await next_started(run)
            await wait_line(run)
            assert pid in await agent.runtime(WELL).end_orphans()
            assert await run.next() is None
