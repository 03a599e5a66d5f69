"""The Claude runtime over fake CLIs: small scripts that misbehave in every way a process can."""

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import psutil
import pytest
import trio

from hive_agent import (
    AgentConfig,
    ClaudeRuntime,
    ClaudeSettings,
    McpServer,
    Outcome,
    RunLine,
    RunNote,
    RunReport,
    RunRequest,
    RunStarted,
    RuntimeUnavailable,
    Signal,
    find_claude,
)
from hive_agent._runtime._orphans import OWNER_VARIABLE

BOUND_SECONDS = 10
SESSION = "d0259c59-c2ad-4a1a-ab50-f6dcaaa3648f"
OTHER = "aaa5cef0-26d1-4b93-875c-7a4652beeaba"
TOKEN = "a-token-that-nobody-may-see"
REQUEST = RunRequest(
    prompt="wake up",
    system_prompt="You are iris.",
    mcp_servers={"hyperhive": McpServer(url="http://127.0.0.1:9/", headers={"Authorization": TOKEN})},
)


def init(**more) -> str:
    """What the CLI prints once it knows its servers."""
    servers = [{"name": "hyperhive", "status": "connected"}]
    return json.dumps({"type": "system", "subtype": "init", "session_id": SESSION, "mcp_servers": servers} | more)


DONE = json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "hi"})


def says(*lines: str) -> str:
    """Shell that prints these lines."""
    return "\n".join(f"printf '%s\\n' {shlex.quote(line)}" for line in lines)


NAP = "while :; do sleep 0.02; done"
"""A shell that hears signals: one that comes just before a long sleep begins would wait for its end."""

WELL = f"cat > /dev/null\n{says(init(), DONE)}"


@attrs.frozen
class Ended:
    """One run from beginning to end."""

    items: list[RunStarted | RunLine | RunNote]
    report: RunReport

    @property
    def types(self) -> list[str]:
        return [item.data.get("type") for item in self.items if isinstance(item, RunLine)]

    @property
    def notes(self) -> list[str]:
        return [item.text for item in self.items if isinstance(item, RunNote)]

    @property
    def starts(self) -> int:
        return sum(isinstance(item, RunStarted) for item in self.items)


@attrs.frozen
class Agent:
    """An agent whose CLI is a script of the test."""

    config: AgentConfig

    @property
    def harness(self) -> Path:
        return self.config.harness_dir

    def runtime(self, script: str, *, interpreter: str = "/bin/sh") -> ClaudeRuntime:
        """The runtime whose CLI is this script, here and in later lives."""
        command = Path(str(self.config.claude.command))
        command.write_text(f"#!{interpreter}\n{script}\n")
        command.chmod(0o755)
        return ClaudeRuntime(self.config)

    async def run(self, script: str, request: RunRequest = REQUEST, **more) -> Ended:
        """One run to its end."""
        with trio.fail_after(BOUND_SECONDS):
            async with self.runtime(script, **more).open_run(request) as run:
                items = []
                while (item := await run.next()) is not None:
                    items.append(item)
                assert await run.next() is None
                return Ended(items, run.report)


@pytest.fixture
def make_agent(tmp_path) -> Callable[..., Agent]:
    """Makes the agent's folders and its configuration."""

    def _make(**more) -> Agent:
        folders = {name: tmp_path / name for name in ("state_dir", "harness_dir", "config_dir")}
        for folder in folders.values():
            folder.mkdir()
        claude = ClaudeSettings(command=str(tmp_path / "claude"), **more.pop("claude", {}))
        return Agent(AgentConfig(name="iris", claude=claude, **folders, **more))

    return _make


@pytest.fixture
def agent(make_agent) -> Agent:
    """An agent with nothing special about it."""
    return make_agent()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    """No test leaves a descriptor, a child or a process of its agent."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert psutil.Process().children() == []
    assert marked(tmp_path / "harness_dir") == []


def marked(harness: Path) -> list[int]:
    """The processes that carry the mark of this agent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(OWNER_VARIABLE) == str(harness):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def next_started(run) -> int:
    """The pid of a run that has just begun."""
    item = await run.next()
    assert isinstance(item, RunStarted)
    return item.pid


async def wait_line(run) -> RunLine:
    """The next line of a run."""
    while not isinstance(item := await run.next(), RunLine):
        assert item is not None
    return item


# --- a run that goes well, and what the CLI is given


async def test_a_run_gives_its_start_its_lines_and_its_report(agent):
    """TURN-3: in the order in which they happened."""
    ended = await agent.run(WELL)

    assert [type(item) for item in ended.items] == [RunStarted, RunLine, RunLine]
    assert [item.result for item in ended.items if isinstance(item, RunLine)] == [False, True]
    assert (ended.report.outcome, ended.report.exit_code) == (Outcome.DONE, 0)


async def test_the_report_is_there_when_the_run_is_over_and_not_before(agent):
    """TURN-5: asking too early is a mistake of the caller."""
    async with agent.runtime(WELL).open_run(REQUEST) as run:
        with pytest.raises(RuntimeError, match="call next\\(\\) until it gives None"):
            _ = run.report


async def test_the_prompt_comes_on_stdin_and_stdin_ends(agent):
    """TURN-3: whatever its size, and whatever a service put into it."""
    for prompt in ("wäke up\n", "", "x" * 3_000_000, "half a character \ud800"):
        await agent.run("cat > prompt", attrs.evolve(REQUEST, prompt=prompt))

        assert (agent.config.state_dir / "prompt").read_text() == prompt.replace("\ud800", "\\ud800")


async def test_the_environment_is_built_and_not_inherited(make_agent, monkeypatch):
    """SEC-5: a secret of ours reaches no agent, and the operator's own settings have the last word but one."""
    monkeypatch.setenv("HIVE_TEST_SECRET", "hush")
    monkeypatch.setenv("HOME", "/home/operator")
    monkeypatch.setenv(OWNER_VARIABLE, "somebody else")
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "LC_ALL",
        "SSL_CERT_FILE",
        "TZ",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    agent = make_agent(claude={"env": {"EXTRA": "1", "LANG": "de_DE.UTF-8", OWNER_VARIABLE: "a wish"}})
    dump = "import json, os; json.dump(dict(os.environ), open('env', 'w'))"
    await agent.run(f"import sys; sys.stdin.read()\n{dump}", interpreter=f"{sys.executable} -IS")
    seen = json.loads((agent.config.state_dir / "env").read_text())
    seen.pop("LC_CTYPE", None)  # Python's own

    home = str(agent.harness / "home")
    assert seen == {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_TMPDIR": home,
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "EXTRA": "1",
        "HOME": home,
        "LANG": "de_DE.UTF-8",
        OWNER_VARIABLE: str(agent.harness),
        "PATH": os.environ["PATH"],
    }


async def test_no_token_is_on_the_command_line(agent):
    """SEC-5: everybody on the machine can read it."""
    async with agent.runtime(f"{says(init())}\nsleep 60").open_run(REQUEST) as run:
        with trio.fail_after(BOUND_SECONDS):
            pid = await next_started(run)
            await wait_line(run)
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")

    assert TOKEN not in " ".join(arguments)
    assert arguments[arguments.index("--mcp-config") + 1] == str(agent.harness / "mcp.json")
    assert TOKEN not in repr(REQUEST)


async def test_the_command_line_gives_the_tools_of_a_turn_and_no_more(make_agent):
    """PERM-3, SURF-7: what exists and what is granted; model and effort when they are set."""
    agent = make_agent(claude={"model": "opus", "effort": "high"})
    await agent.run('printf "%s\\n" "$@" > arguments')
    harness = str(agent.harness)

    assert (agent.config.state_dir / "arguments").read_text().splitlines() == [
        *("-p", "--output-format", "stream-json", "--verbose"),
        *("--tools", "Edit,Glob,Grep,Read,Skill,Write"),
        *("--allowedTools", "Edit,Glob,Grep,Read,Skill,Write,mcp__hyperhive"),
        *("--mcp-config", f"{harness}/mcp.json", "--strict-mcp-config"),
        *("--append-system-prompt-file", f"{harness}/system-prompt.md", "--system-prompt-snapshot", "off"),
        *("--model", "opus", "--effort", "high", "-n", "hive-session"),
    ]


async def test_the_files_of_a_turn_are_private_and_whole(agent):
    """SURF-7, SEC-5: tokens in a file that only we can read; the CLI sees what it was promised."""
    await agent.run(WELL, attrs.evolve(REQUEST, system_prompt="You are iris.\n{not a template}"))
    mcp = agent.harness / "mcp.json"

    assert stat.S_IMODE(mcp.stat().st_mode) == 0o600
    assert json.loads(mcp.read_text()) == {
        "mcpServers": {"hyperhive": {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"Authorization": TOKEN}}}
    }
    assert (agent.harness / "system-prompt.md").read_text() == "You are iris.\n{not a template}"
    assert stat.S_IMODE((agent.harness / "home").stat().st_mode) == 0o700


# --- runs that end badly


@pytest.mark.parametrize("first", ["", "cat > /dev/null\n"], ids=["without reading", "after reading"])
async def test_a_cli_that_exits_at_once_has_crashed(agent, first):
    """TURN-5: its last words are what the operator reads."""
    request = attrs.evolve(REQUEST, prompt="x" * 1_000_000)
    ended = await agent.run(f"{first}echo one >&2; echo 'last words' >&2; exit 7", request)

    assert (ended.report.outcome, ended.report.exit_code) == (Outcome.CRASHED, 7)
    assert ended.report.detail == "the runtime exited with code 7 and gave no result: last words"


async def test_a_flood_of_complaints_is_kept_in_its_end_only(agent):
    """REL-4: stderr is bounded, and a full pipe never blocks the CLI."""
    ended = await agent.run("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo 'the end' >&2; exit 1")

    assert ended.report.detail.endswith("the end")


async def test_garbage_is_noted_up_to_a_bound_and_counted(agent):
    """REL-4, TURN-5: twenty lines say what is going on, a thousand do not say more."""
    ended = await agent.run("i=0; while [ $i -lt 1000 ]; do echo garbage $i; i=$((i+1)); done; exit 1")

    assert ended.notes == [f"the runtime printed a line that is not JSON: garbage {number}" for number in range(20)]
    assert "(1000 of its lines were not JSON)" in ended.report.detail


async def test_a_turn_goes_on_after_garbage(agent):
    """TURN-5: a warning on stdout costs nothing."""
    ended = await agent.run(f"echo warning\n{WELL}")

    assert ended.report.outcome is Outcome.DONE
    assert len(ended.notes) == 1


async def test_a_line_of_three_mebibytes_is_dropped_with_a_note(agent):
    """REL-4: and the lines after it are read."""
    flood = "import sys; sys.stdin.read(); print('x' * 3 * 1024 * 1024)"
    ended = await agent.run(f"{sys.executable} -c {shlex.quote(flood)}\n{says(init(), DONE)}")

    assert ended.notes == ["a line of 3145728 bytes from the runtime was dropped"]
    assert ended.report.outcome is Outcome.DONE


async def test_a_last_line_without_a_line_break_is_read(agent):
    """TURN-5: the result counts however it ends."""
    ended = await agent.run(f"cat > /dev/null\n{says(init())}\nprintf '%s' {shlex.quote(DONE)}")

    assert ended.report.outcome is Outcome.DONE


async def test_more_lines_than_anybody_takes_wait_for_their_reader(agent):
    """BUS-3, REL-4: nothing is lost and nothing piles up; the process waits."""
    line = json.dumps({"type": "assistant", "n": "x" * 1000})
    script = f"i=0; while [ $i -lt 500 ]; do {says(line)}; i=$((i+1)); done\n{WELL}"
    with trio.fail_after(30):
        async with agent.runtime(script).open_run(REQUEST) as run:
            await trio.testing.wait_all_tasks_blocked(0.05)
            types = []
            while (item := await run.next()) is not None:
                types += [item.data["type"]] if isinstance(item, RunLine) else []

    assert types == ["assistant"] * 500 + ["system", "result"]
    assert run.report.outcome is Outcome.DONE


async def test_a_signal_that_ended_the_cli_is_told(agent):
    """TURN-5: a CLI that kills itself has crashed."""
    ended = await agent.run("kill -SEGV $$")

    assert ended.report.outcome is Outcome.CRASHED
    assert ended.report.exit_code == -11


# --- runs that do not end


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


# --- a world that says no


async def test_a_state_folder_that_is_gone_fails_the_turn_in_words(agent):
    """REL-3: the operator learns which folder."""
    agent.config.state_dir.rmdir()
    ended = await agent.run(WELL)

    assert ended.report.outcome is Outcome.FAILED
    assert str(agent.config.state_dir) in ended.report.detail
    assert ended.report.exit_code is None


async def test_a_harness_folder_that_is_gone_fails_the_turn_in_words(agent):
    """REL-3: the runtime's files cannot be written."""
    runtime = agent.runtime(WELL)
    agent.harness.rmdir()
    with trio.fail_after(BOUND_SECONDS):
        async with runtime.open_run(REQUEST) as run:
            assert await run.next() is None

    assert run.report.outcome is Outcome.FAILED
    assert run.report.detail.startswith("cannot prepare the runtime: ")
    assert str(agent.harness) in run.report.detail


async def test_a_cli_that_is_gone_fails_the_turn_in_words(agent):
    """REL-3: an update may have removed it since the agent started."""
    runtime = agent.runtime(WELL)
    Path(str(agent.config.claude.command)).unlink()
    with trio.fail_after(BOUND_SECONDS):
        async with runtime.open_run(REQUEST) as run:
            assert await run.next() is None

    assert run.report.outcome is Outcome.FAILED
    assert "No such file or directory" in run.report.detail


async def test_a_session_id_that_cannot_be_written_down_costs_no_turn(agent):
    """REL-3: what was done is done."""
    (agent.harness / "session.json").mkdir()
    ended = await agent.run(WELL)

    assert ended.report.outcome is Outcome.DONE
    assert len(ended.notes) == 1
    assert "could not be written down" in ended.notes[0]


async def test_a_harness_folder_removed_during_the_run_costs_no_turn(agent):
    """REL-3: what was done is done."""
    ended = await agent.run(f"rm -r {shlex.quote(str(agent.harness))}\n{WELL}")

    assert ended.report.outcome is Outcome.DONE


# --- servers


async def test_a_required_server_that_is_down_ends_the_run(agent):
    """SURF-7: the CLI would go on without its tools."""
    down = init(mcp_servers=[{"name": "hyperhive", "status": "failed"}])
    ended = await agent.run(f"trap 'exit 0' INT\n{says(down)}\n{NAP}")

    assert ended.report.outcome is Outcome.FAILED
    assert ended.notes == ["the tool server hyperhive did not connect"]


async def test_an_optional_server_that_is_down_is_a_note(agent):
    """SURF-7: the turn goes on."""
    optional = McpServer(url="http://127.0.0.1:9/x", headers={}, required=False)
    request = attrs.evolve(REQUEST, mcp_servers={**REQUEST.mcp_servers, "files": optional})
    ended = await agent.run(WELL, request)

    assert ended.report.outcome is Outcome.DONE
    assert ended.notes == ["the tool server files did not connect"]


# --- sessions


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


async def test_a_home_of_the_operators_choice_is_where_sessions_are_looked_for(make_agent, tmp_path):
    """TURN-3: HOME can be set for the CLI."""
    made = tmp_path / "elsewhere/.claude/projects/-x"
    made.mkdir(parents=True)
    (made / f"{SESSION}.jsonl").touch()
    agent = make_agent(claude={"env": {"HOME": str(tmp_path / "elsewhere")}})
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


# --- finding the CLI


def executable(path: Path) -> Path:
    """A file that could be a CLI."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_command_of_the_configuration_comes_first(tmp_path, monkeypatch):
    """HOST-6: a path, a name on PATH, or a path from here."""
    command = executable(tmp_path / "bin/my-claude")
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(command.parent)

    for given in (str(command), "my-claude", "./my-claude", "../bin/my-claude", "~/bin/my-claude"):
        assert Path(find_claude(given)).samefile(command)
        assert Path(find_claude(given)).is_absolute()


@pytest.mark.parametrize("command", ["", "/nowhere/claude", "no-such-claude", "~no-such-user/claude", "/tmp", "a\0b"])
def test_a_command_that_is_none_names_the_setting(command):
    """TURN-5: what to correct, and what to do instead."""
    with pytest.raises(RuntimeUnavailable, match=r"correct `command` in \[runtime\] of hive.toml"):
        find_claude(command)


def test_the_cli_of_the_extra_comes_before_the_one_on_path(tmp_path, monkeypatch):
    """HOST-6: the version that was tested."""
    bundled = executable(tmp_path / "site/claude_agent_sdk/_bundled/claude")
    on_path = executable(tmp_path / "bin/claude")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "empty"), str(tmp_path / "site")])
    assert find_claude(None) == str(bundled)

    bundled.chmod(0o644)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "empty")])
    assert find_claude(None) == str(on_path)


def test_no_cli_at_all_names_the_extra_and_the_setting(tmp_path, monkeypatch):
    """TURN-5: the first thing a new user may see."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(RuntimeUnavailable, match=r"pip install 'hyperhive\[claude\]'.*put `claude` on PATH.*`command`"):
        find_claude(None)
