"""The Claude runtime over fake CLIs: what a run is given, how it ends, and a world that says no."""

import json
import os
import shlex
import stat
import sys
from pathlib import Path

import attrs
import pytest
import trio
from fake_claude import (
    BOUND_SECONDS,
    DONE,
    NAP,
    REQUEST,
    TOKEN,
    WELL,
    Agent,
    init,
    make_agent,
    next_started,
    nothing_left,
    says,
    wait_line,
)

from hive_agent import McpServer, Outcome, RunLine, RunStarted
from hive_agent._runtime._orphans import OWNER_VARIABLE


@pytest.fixture
def agent(tmp_path) -> Agent:
    """An agent with nothing special about it."""
    return make_agent(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    """No test leaves a descriptor, a child or a process of its agent."""
    with nothing_left(tmp_path):
        yield


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


async def test_the_environment_is_built_and_not_inherited(tmp_path, monkeypatch):
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
    agent = make_agent(tmp_path, claude={"env": {"EXTRA": "1", "LANG": "de_DE.UTF-8", OWNER_VARIABLE: "a wish"}})
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


async def test_the_command_line_gives_the_tools_of_a_turn_and_no_more(tmp_path):
    """PERM-3, SURF-7: what exists and what is granted; model and effort when they are set."""
    agent = make_agent(tmp_path, claude={"model": "opus", "effort": "high"})
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
