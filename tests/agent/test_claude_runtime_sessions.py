"""The one session of an agent, over fake CLIs that lose it, double it, or refuse it."""

import json
import shlex

import pytest
import trio
from fake_claude import (
    BOUND_SECONDS,
    DONE,
    NAP,
    REQUEST,
    SESSION,
    Agent,
    init,
    make_agent,
    next_started,
    nothing_left,
    says,
    wait_line,
)

from hive_agent import Outcome, RunLine, RunStarted, Signal

OTHER = "aaa5cef0-26d1-4b93-875c-7a4652beeaba"


@pytest.fixture
def agent(tmp_path) -> Agent:
    """An agent with nothing special about it."""
    return make_agent(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    """No test leaves a descriptor, a child or a process of its agent."""
    with nothing_left(tmp_path):
        yield


def resumes(answers: dict[str, str]) -> str:
    """A CLI that answers by what it is told to resume, ``-n`` for a new session, and notes each start."""
    cases = "\n".join(f"{shlex.quote(plan)}) {answer} ;;" for plan, answer in answers.items())
    return (
        'cat > /dev/null\nwhile [ $# -gt 2 ]; do shift; done\necho "$1 $2" >> starts\n'
        f'case "$1 $2" in\n{cases}\n*) exit 99 ;;\nesac'
    )


def refusal(words: str) -> str:
    """Shell that ends as the CLI does when it cannot resume."""
    result = json.dumps({"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [words]})
    return f"{says(result)}\nprintf '%s\\n' {shlex.quote(words)} >&2\nexit 1"


NOT_FOUND = refusal("does not match any session title")
NO_ID = refusal(f"No conversation found with session ID: {SESSION}")
TWICE = refusal(f'--resume "hive-session" matches 2 sessions.\n  {OTHER}  (modified …)\n  {SESSION}  (modified …)')
FINE = says(init(), DONE)


def starts(agent: Agent) -> list[str]:
    """How the CLI was started, each time."""
    return (agent.config.state_dir / "starts").read_text().splitlines()


async def test_the_first_turn_makes_the_session_and_the_second_resumes_it(agent):
    """TURN-3: one constant title."""
    script = resumes({"-n hive-session": FINE, "--resume hive-session": FINE})
    for _ in range(3):
        assert (await agent.run(script)).report.outcome is Outcome.DONE

    assert starts(agent) == ["-n hive-session", "--resume hive-session", "--resume hive-session"]


async def test_a_session_whose_first_turn_was_killed_is_resumed(agent):
    """TURN-3: the CLI's own file shows that it exists."""
    made = agent.harness / "home/.claude/projects/-x"
    made.mkdir(parents=True)
    (made / f"{SESSION}.jsonl").touch()
    await agent.run(resumes({"--resume hive-session": FINE}))

    assert starts(agent) == ["--resume hive-session"]


async def test_a_home_of_the_operators_choice_is_where_sessions_are_looked_for(tmp_path):
    """TURN-3: HOME can be set for the CLI."""
    made = tmp_path / "elsewhere/.claude/projects/-x"
    made.mkdir(parents=True)
    (made / f"{SESSION}.jsonl").touch()
    agent = make_agent(tmp_path, claude={"env": {"HOME": str(tmp_path / "elsewhere")}})
    await agent.run(resumes({"--resume hive-session": FINE}))

    assert starts(agent) == ["--resume hive-session"]


async def test_a_lost_session_is_begun_anew_with_a_note(agent):
    """TURN-3: nothing was asked of the model before, so nothing is done twice."""
    script = resumes({"-n hive-session": FINE, "--resume hive-session": NOT_FOUND, f"--resume {SESSION}": NO_ID})
    await agent.run(script)
    ended = await agent.run(script)

    assert ended.report.outcome is Outcome.DONE
    assert ended.starts == 3
    assert starts(agent)[1:] == ["--resume hive-session", f"--resume {SESSION}", "-n hive-session"]
    assert ended.notes[-1] == "the session 'hive-session' cannot be resumed; starting a new one"
    assert [item.result for item in ended.items if isinstance(item, RunLine)] == [False, False, False, True]


async def test_a_session_that_is_not_found_by_its_title_is_found_by_its_id(agent):
    """TURN-3: titles are looked up by folder: a moved agent keeps its memory, now and later."""
    script = resumes({"-n hive-session": FINE, "--resume hive-session": NOT_FOUND, f"--resume {SESSION}": FINE})
    await agent.run(script)
    ended = await agent.run(script)
    await agent.run(script)

    assert ended.notes == [f"no session here is called 'hive-session'; going on with {SESSION}"]
    assert starts(agent)[1:] == ["--resume hive-session", f"--resume {SESSION}", f"--resume {SESSION}"]


async def test_a_doubled_title_goes_on_with_the_session_that_is_remembered(agent):
    """TURN-3: a fork inherits its title."""
    script = resumes({"-n hive-session": FINE, "--resume hive-session": TWICE, f"--resume {SESSION}": FINE})
    await agent.run(script)
    ended = await agent.run(script)

    assert ended.report.outcome is Outcome.DONE
    assert ended.notes == [f"several sessions are called 'hive-session'; going on with {SESSION}"]
    assert starts(agent)[1:] == ["--resume hive-session", f"--resume {SESSION}"]


async def test_a_doubled_title_of_which_nothing_is_remembered_goes_on_with_the_latest(agent):
    """TURN-3: the CLI names the latest first."""
    (agent.harness / "home/.claude/projects/-x").mkdir(parents=True)
    (agent.harness / "home/.claude/projects/-x/y.jsonl").touch()
    other = says(init(session_id=OTHER), DONE)
    ended = await agent.run(resumes({"--resume hive-session": TWICE, f"--resume {OTHER}": other}))

    assert ended.report.outcome is Outcome.DONE
    assert starts(agent) == ["--resume hive-session", f"--resume {OTHER}"]


async def test_a_cli_that_refuses_every_session_fails_the_turn(agent):
    """TURN-3: healing has an end."""
    everything = resumes(dict.fromkeys(("-n hive-session", "--resume hive-session", f"--resume {SESSION}"), NOT_FOUND))
    ended = await agent.run(everything)

    assert ended.report.outcome is Outcome.FAILED
    assert ended.starts == 3


async def test_an_interrupted_run_is_not_healed(agent):
    """TURN-6: who asked for the end gets it."""
    script = f"trap {shlex.quote(NOT_FOUND)} INT\n{says(json.dumps({'type': 'x'}))}\n{NAP}"
    with trio.fail_after(BOUND_SECONDS):
        async with agent.runtime(script).open_run(REQUEST) as run:
            await next_started(run)
            await wait_line(run)
            run.signal(Signal.INTERRUPT)
            items = []
            while (item := await run.next()) is not None:
                items.append(item)

    assert not any(isinstance(item, RunStarted) for item in items)
