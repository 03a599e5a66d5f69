"""The real Claude CLI against the scripted model: what one says, the other understands."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import psutil
import pytest
import trio

from hive_agent.testing import (
    ScriptedModel,
    ServedModel,
    Usage,
    call,
    claude_command,
    claude_test_environment,
    cut,
    fail,
    half,
    open_scripted_model,
    prompt_too_long,
    say,
    stall,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FLAGS = ["-p", "--output-format", "stream-json", "--verbose", "--tools", "Edit,Glob,Grep,Read,Skill,Write"]
"""As a harness starts a turn."""

BOUND_SECONDS = 60
"""A turn takes half a second; a loaded machine may take its time."""


@attrs.frozen
class Run:
    """What one process of the CLI left behind."""

    code: int
    events: list[dict]
    stderr: str

    @property
    def result(self) -> dict:
        (result,) = [event for event in self.events if event["type"] == "result"]
        return result

    def blocks(self, kind: str) -> list[dict]:
        contents = [event["message"]["content"] for event in self.events if event["type"] in {"assistant", "user"}]
        return [block for content in contents for block in content if block["type"] == kind]


@attrs.frozen
class Cli:
    """Starts the CLI in one home, each process in a group of its own, which is always killed."""

    home: object
    served: ServedModel

    async def run(self, prompt: str, *flags: str, when_started=None, **environment: str) -> Run:
        """One process, from prompt to exit; ``when_started`` may deal with it while it runs."""
        with trio.fail_after(BOUND_SECONDS):
            process = await trio.lowlevel.open_process(
                [claude_command(), *FLAGS, *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.home,
                env={**claude_test_environment(self.home, self.served.base_url), **environment},
                start_new_session=True,
            )
            output = {process.stdout: bytearray(), process.stderr: bytearray()}
            try:
                async with process.stdin, process.stdout, process.stderr, trio.open_nursery() as nursery:
                    for stream in output:
                        nursery.start_soon(read_all, stream, output[stream])
                    await process.stdin.send_all(prompt.encode())
                    await process.stdin.aclose()
                    if when_started is not None:
                        await when_started(process)
                    code = await process.wait()
            finally:
                with trio.CancelScope(shield=True):
                    kill_group(process.pid)
                    await process.wait()
        lines = output[process.stdout].decode().splitlines()
        return Run(code, [json.loads(line) for line in lines], output[process.stderr].decode())


async def read_all(stream, into: bytearray) -> None:
    async for chunk in stream:
        into += chunk


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def cli(model, tmp_path):
    async with open_scripted_model(model) as served:
        yield Cli(tmp_path, served)
    assert not model.unmatched
    assert not model.strays


async def test_a_turn_is_one_request_and_its_figures_reach_the_result(cli, model):
    """TURN-7: the figures of a turn are the model's own."""
    usage = Usage(input=1200, output=30, cache_read=7, cache_creation=5)
    model.when(last_user="wake", system="Agent SDK", tools={"Read", "Write"}).reply(say("Good morning."), usage=usage)
    run = await cli.run("wake up")
    assert (run.code, run.result["result"], run.result["num_turns"]) == (0, "Good morning.", 1)
    assert {name: run.result["usage"][name] for name in ("input_tokens", "output_tokens")} == {
        "input_tokens": 1200,
        "output_tokens": 30,
    }
    assert run.result["usage"]["cache_read_input_tokens"] == 7
    assert run.result["usage"]["cache_creation_input_tokens"] == 5
    assert len(model.requests) == 1
    assert model.requests[0].headers["user-agent"].startswith("claude-cli/")


async def test_a_tool_loop_runs_and_several_calls_of_one_reply_come_back_together(cli, model):
    """SURF-3: the model's calls are made and their results are found by the tools' names."""
    for name in ("one", "two"):
        (cli.home / name).write_text(f"content of {name}\n")
    model.when(last_user="read both").reply(
        say("Reading."), *(call("Read", file_path=str(cli.home / name)) for name in ("one", "two"))
    )
    model.when(tool_result=("Read", re.compile("content of two"))).reply(
        lambda request: say(" + ".join(result.text.split("\t")[1].strip() for result in request.tool_results))
    )
    run = await cli.run("read both")
    assert [block["name"] for block in run.blocks("tool_use")] == ["Read", "Read"]
    assert "content of one" in run.result["result"]
    assert "content of two" in run.result["result"]
    assert [result.name for result in model.requests[1].tool_results] == ["Read", "Read"]


async def test_a_session_goes_on_by_its_title(cli, model):
    """TURN-3: the second turn sees the first one, and ids do not collide."""
    model.when(last_user="one").reply(say("first answer"))
    model.when(last_user="two", where=lambda request: "first answer" in str(request.messages)).reply(say("second"))
    await cli.run("turn one", "-n", "hive-session")
    run = await cli.run("turn two", "--resume", "hive-session")
    assert run.result["result"] == "second"


@pytest.mark.parametrize(
    ("failure", "environment", "status", "requests"),
    [
        (fail(429, retry_after=600), {}, 429, 1),
        (fail(401), {"CLAUDE_CODE_MAX_RETRIES": "0"}, 401, 1),
        (fail(403), {}, 403, 1),
        (fail(529), {"CLAUDE_CODE_MAX_RETRIES": "1"}, 529, 2),
        (fail(413), {}, 413, None),
    ],
    ids=["rate limit", "key", "forbidden", "overloaded", "too large"],
)
async def test_an_error_of_the_api_is_the_error_of_the_turn(cli, model, failure, environment, status, requests):
    """TURN-5: each outcome can be brought about."""
    model.otherwise(failure)
    run = await cli.run("go", **environment)
    assert run.code == 1
    assert (run.result["is_error"], run.result["api_error_status"]) == (True, status)
    if requests is not None:
        assert len(model.requests) == requests


async def test_a_prompt_that_is_too_long_is_told_in_the_words_of_the_cli(cli, model):
    """COMP-2: the refusal is recognised as such, not as some bad request."""
    model.otherwise(prompt_too_long())
    run = await cli.run("go", DISABLE_AUTO_COMPACT="1")
    assert run.code == 1
    assert "prompt is too long" in run.result["result"].lower()


async def test_an_error_that_passes_is_overcome(cli, model):
    """TURN-5: a retry after a moment succeeds."""
    model.when(times=1).reply(fail(529))
    model.otherwise(say("there"))
    run = await cli.run("go")
    assert (run.code, run.result["result"], len(model.requests)) == (0, "there", 2)
    assert [event["subtype"] for event in run.events if event.get("subtype") == "api_retry"] == ["api_retry"]


async def test_a_cut_stream_is_noticed_by_the_cli(cli, model):
    """TURN-5: half an answer is not taken for a whole one."""
    model.when(times=1).reply(say("half an"), cut())
    model.otherwise(say("a whole answer"))
    run = await cli.run("go")
    assert (run.code, run.result["result"], len(model.requests)) == (0, "a whole answer", 2)


async def test_a_call_that_was_cut_in_its_arguments_is_not_made(cli, model):
    """TURN-5: half a call does nothing."""
    target = cli.home / "never"
    model.when(times=1).reply(half(call("Write", file_path=str(target), content="x" * 100)), cut())
    model.otherwise(say("done"))
    run = await cli.run("go", "--allowedTools", "Write")
    assert run.result["result"] == "done"
    assert not target.exists()


async def test_a_waiting_cli_holds_no_connection_but_to_loopback(cli, model):
    """SEC-3: a test reaches nobody outside of this host."""
    gate = trio.Event()
    model.otherwise(stall(gate), say("done"))
    peers = []

    async def look_when_asked(process):
        await model.wait_requests(1)
        connections = psutil.Process(process.pid).net_connections(kind="inet")
        peers.extend(connection.raddr.ip for connection in connections if connection.raddr)
        gate.set()

    await cli.run("go", when_started=look_when_asked)
    assert set(peers) == {"127.0.0.1"}


@pytest.mark.parametrize("steps", [[stall()], [say("one moment"), stall()]], ids=["before", "after"])
async def test_a_stalled_turn_can_be_killed_and_frees_the_server(cli, model, steps):
    """TURN-6: a hanging model is brought about, and the kill is seen."""
    model.when(times=1).reply(*steps)

    async def kill_when_asked(process):
        await model.wait_requests(1)
        os.killpg(process.pid, signal.SIGKILL)

    run = await cli.run("go", when_started=kill_when_asked)
    assert run.code == -signal.SIGKILL
    with trio.fail_after(5):
        await cli.served.wait_idle()


async def test_an_interrupted_stall_ends_with_a_result(cli, model):
    """TURN-5: an interrupt in the middle of an answer is told in the stream."""
    model.when().reply(say("one moment"), stall())

    async def interrupt_when_asked(process):
        await model.wait_requests(1)
        process.send_signal(signal.SIGINT)

    run = await cli.run("go", when_started=interrupt_when_asked)
    assert (run.code, run.result["subtype"]) == (0, "error_during_execution")


async def test_the_size_of_the_context_is_asked_for_and_answered(tmp_path):
    """COMP-1: the CLI's own report is built on the scripted figure."""
    model = ScriptedModel(count=lambda request: 4321)
    async with open_scripted_model(model) as served:
        run = await Cli(tmp_path, served).run("/context")
    assert run.code == 0
    assert model.counts
    assert not model.requests


async def test_a_request_that_no_rule_matches_fails_the_turn_fast_and_in_words(tmp_path):
    """EMBED-1: a hole in a script costs seconds and says where it is."""
    model = ScriptedModel()
    async with open_scripted_model(model) as served:
        run = await Cli(tmp_path, served).run("nobody expects this")
    assert run.code == 1
    assert "no rule of the scripted model matches" in run.result["result"]
    assert "nobody expects this" in run.result["result"]
    assert 1 <= len(model.unmatched) <= 6


def test_the_example_of_the_documentation_prints_what_the_page_says():
    """EMBED-1: an example that does not run is none."""
    docs = Path(__file__).parents[2] / "docs"
    done = subprocess.run(
        [sys.executable, docs / "examples" / "scripted_model.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    assert f"```\n{done.stdout}```\n" in (docs / "scripted-model.md").read_text()
