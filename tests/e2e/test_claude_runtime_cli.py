"""The Claude runtime with the real CLI against the scripted model: sessions, servers, and each way a turn can end."""

import json
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
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
    Signal,
)
from hive_agent.testing import (
    ScriptedModel,
    ServedModel,
    Usage,
    call,
    claude_command,
    claude_test_environment,
    fail,
    open_scripted_model,
    prompt_too_long,
    say,
    stall,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BOUND_SECONDS = 60
"""A turn takes half a second; a loaded machine may take its time."""

Wait = Callable[[], Awaitable[None]]
OTHER = "aaa5cef0-26d1-4b93-875c-7a4652beeaba"
NO_RETRY = {"CLAUDE_CODE_MAX_RETRIES": "0"}


@attrs.frozen
class Ended:
    """One turn from beginning to end."""

    items: list[RunStarted | RunLine | RunNote]
    report: RunReport

    @property
    def notes(self) -> list[str]:
        return [item.text for item in self.items if isinstance(item, RunNote)]

    @property
    def starts(self) -> int:
        return sum(isinstance(item, RunStarted) for item in self.items)


@attrs.frozen
class Agent:
    """An agent that runs on the real CLI; its folders stay from turn to turn."""

    folder: Path
    served: ServedModel

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def sessions(self) -> list[Path]:
        """The CLI's own files of this agent's sessions."""
        return list(self.home.glob(".claude/projects/*/*.jsonl"))

    def runtime(self, *, without: str | None = None, **environment: str) -> ClaudeRuntime:
        """A runtime of the agent, as after each restart of its harness."""
        env = {**claude_test_environment(self.home, self.served.base_url), **environment}
        env.pop(without or "", None)
        folders = {name: self.folder / name for name in ("state_dir", "harness_dir", "config_dir")}
        return ClaudeRuntime(
            AgentConfig(name="iris", claude=ClaudeSettings(command=claude_command(), env=env), **folders)
        )

    async def wait_written(self, words: str) -> None:
        """Return when the CLI has these words in a session's file: it writes some 0.1 s behind what it does."""
        while True:
            if any(words in session.read_text() for session in self.sessions):
                return
            await trio.lowlevel.checkpoint()

    async def turn(self, prompt: str, *, signal: Signal | None = None, when: Wait | None = None, **more) -> Ended:
        """One turn to its end; it is signalled when ``when`` returns, by default when the model was asked."""
        servers = more.pop("servers", {})
        request = RunRequest(prompt=prompt, system_prompt="You are iris.", mcp_servers=servers)
        items: list[RunStarted | RunLine | RunNote] = []
        with trio.fail_after(BOUND_SECONDS):
            async with self.runtime(**more).open_run(request) as run, trio.open_nursery() as nursery:

                async def interfere() -> None:
                    await (when or partial(self.served.model.wait_requests, 1))()
                    if signal is not None:
                        run.signal(signal)

                nursery.start_soon(interfere)
                while (item := await run.next()) is not None:
                    items.append(item)
                nursery.cancel_scope.cancel()
            return Ended(items, run.report)


@pytest.fixture
def model() -> ScriptedModel:
    """A model without rules."""
    return ScriptedModel()


@pytest.fixture
async def agent(model, tmp_path):
    """An agent whose model is ``model``."""
    for name in ("home", "state_dir", "harness_dir", "config_dir"):
        (tmp_path / name).mkdir()
    async with open_scripted_model(model) as served:
        yield Agent(tmp_path, served)


def remembered(agent: Agent) -> dict:
    """What the harness knows of the session."""
    return json.loads((agent.folder / "harness_dir/session.json").read_text())


async def test_the_second_turn_remembers_the_first(agent, model):
    """TURN-3: one session, whose transcript the model gets each time; the system prompt is the agent's."""
    model.otherwise(say("noted"), usage=Usage(input=100, cache_read=20, output=3))
    first = await agent.turn("The word is heron.")
    second = await agent.turn("Which word?")

    assert (first.report.outcome, second.report.outcome) == (Outcome.DONE, Outcome.DONE)
    assert (first.starts, second.starts, second.notes) == (1, 1, [])
    said = json.dumps(model.requests[-1].messages)
    assert "The word is heron." in said
    assert "Which word?" in said
    assert "You are iris." in model.requests[-1].system
    assert len(agent.sessions) == 1
    assert second.report.statistics["session_id"] == agent.sessions[0].stem == remembered(agent)["id"]
    assert second.report.statistics["context_usage"]["cache_read_input_tokens"] == 20


async def test_a_lost_session_heals_with_a_note(agent, model):
    """TURN-3: the CLI's files are gone, ours is not; the turn is done all the same, and once."""
    model.otherwise(say("hi"))
    await agent.turn("one")
    shutil.rmtree(agent.home / ".claude/projects")
    healed = await agent.turn("two")
    after = await agent.turn("three")

    assert healed.report.outcome is Outcome.DONE
    assert healed.notes[-1] == "the session 'hive-session' cannot be resumed; starting a new one"
    assert (after.starts, after.notes) == (1, [])
    assert len(model.requests) == 3


async def test_a_moved_agent_keeps_its_session(agent, model):
    """TURN-3: the CLI finds titles by folder; an id is found from everywhere."""
    model.otherwise(say("hi"))
    await agent.turn("The word is heron.")
    (agent.folder / "state_dir").rename(agent.folder / "elsewhere")
    (agent.folder / "state_dir").symlink_to(agent.folder / "elsewhere")
    moved = await agent.turn("two")

    assert moved.report.outcome is Outcome.DONE
    assert len(moved.notes) == 1
    assert "going on with" in moved.notes[0]
    assert "The word is heron." in json.dumps(model.requests[-1].messages)


async def test_a_doubled_title_goes_on_with_the_session_that_is_remembered(agent, model):
    """TURN-3: somebody made a second session of the same name in the agent's folder."""
    model.otherwise(say("hi"))
    await agent.turn("The word is heron.")
    (mine,) = agent.sessions
    double = mine.with_name(f"{OTHER}.jsonl")
    double.write_text(mine.read_text().replace(mine.stem, OTHER).replace("heron", "stork"))
    healed = await agent.turn("two")
    after = await agent.turn("three")

    assert healed.report.outcome is Outcome.DONE
    assert healed.notes == [f"several sessions are called 'hive-session'; going on with {mine.stem}"]
    assert (after.starts, after.notes) == (1, [])
    said = json.dumps(model.requests[-1].messages)
    assert "The word is heron." in said
    assert "stork" not in said


async def test_a_doubled_title_heals_when_nothing_is_remembered(agent, model):
    """TURN-3: the harness folder was restored from nothing."""
    model.otherwise(say("hi"))
    await agent.turn("one")
    (mine,) = agent.sessions
    mine.with_name(f"{OTHER}.jsonl").write_text(mine.read_text().replace(mine.stem, OTHER))
    (agent.folder / "harness_dir/session.json").unlink()
    healed = await agent.turn("two")

    assert healed.report.outcome is Outcome.DONE
    assert healed.starts == 2
    assert remembered(agent)["id"] in (mine.stem, OTHER)


async def test_a_required_server_that_is_down_fails_the_turn(agent, model):
    """SURF-7: the CLI itself would go on and call it a success."""
    model.otherwise(say("I have done everything."))
    down = McpServer(url="http://127.0.0.1:9/mcp/hyperhive", headers={})
    ended = await agent.turn("go", servers={"hyperhive": down})

    assert ended.report.outcome is Outcome.FAILED
    assert ended.report.detail == "the tool server hyperhive did not connect"
    assert ended.notes == ["the tool server hyperhive did not connect"]


async def test_an_optional_server_that_is_down_is_a_note(agent, model):
    """SURF-7: the turn is done without it."""
    model.otherwise(say("hi"))
    down = McpServer(url="http://127.0.0.1:9/mcp/files", headers={}, required=False)
    ended = await agent.turn("go", servers={"files": down})

    assert ended.report.outcome is Outcome.DONE
    assert ended.notes == ["the tool server files did not connect"]


async def test_only_the_tools_of_a_turn_exist(agent, model):
    """PERM-3: a shell, a subagent or a to-do list of the CLI's own is not among them."""
    model.otherwise(say("hi"))
    await agent.turn("go")

    assert sorted(model.requests[0].tools) == ["Edit", "Glob", "Grep", "Read", "Skill", "Write"]


async def test_without_credentials_a_login_is_needed(agent, model, monkeypatch):
    """TURN-5: told without a request to the model."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    ended = await agent.turn("go", without="ANTHROPIC_API_KEY")

    assert ended.report.outcome is Outcome.NEEDS_LOGIN
    assert "Not logged in" in ended.report.detail
    assert model.requests == ()


async def test_a_login_that_is_refused_again_and_again_is_not_retried_for_minutes(agent, model):
    """TURN-5: left alone the CLI tries ten times over three minutes and says nothing that people see."""
    model.otherwise(fail(401))
    ended = await agent.turn("go")

    assert ended.report.outcome is Outcome.NEEDS_LOGIN
    assert "refuses the credentials" in ended.report.detail
    notes = [item.text for item in ended.items if isinstance(item, RunNote)]
    assert notes == ["the model's service answered 401; the runtime tries again (1 of 10)"]


USAGE_LIMIT = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-reset": "1893456000",
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (fail(401), Outcome.NEEDS_LOGIN),
        (fail(403), Outcome.NEEDS_LOGIN),
        (fail(429, retry_after=900), Outcome.RATE_LIMITED),
        (fail(500), Outcome.OVERLOADED),
        (fail(529), Outcome.OVERLOADED),
        (prompt_too_long(), Outcome.PROMPT_TOO_LONG),
        (fail(400, "Your credit balance is too low to access the Anthropic API."), Outcome.REFUSED),
        (fail(404), Outcome.FAILED),
    ],
    ids=lambda value: getattr(value, "status", getattr(value, "value", "")),
)
async def test_an_error_of_the_service_has_its_outcome(agent, model, answer, outcome):
    """TURN-5: in the service's own words, which are the operator's."""
    model.otherwise(answer)
    ended = await agent.turn("go", **NO_RETRY)

    assert ended.report.outcome is outcome
    assert ended.report.detail
    assert ended.report.exit_code == 1


async def test_a_usage_limit_names_its_reset_time(agent, model):
    """TURN-5: a subscription that is used up comes back at a time, and is not tried before."""
    model.otherwise(fail(429, headers=USAGE_LIMIT))
    token = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-scripted"}
    ended = await agent.turn("go", without="ANTHROPIC_API_KEY", **token, **NO_RETRY)

    assert ended.report.outcome is Outcome.RATE_LIMITED
    assert ended.report.reset_at == 1893456000.0
    assert "hit your 5-hour limit" in ended.report.detail


async def test_an_interrupted_turn_can_be_gone_on_with(agent, model):
    """TURN-6: the CLI leaves with 0 and calls nothing a success."""
    model.when(last_user="begin").reply(say("thinking about the heron"), stall())
    model.otherwise(say("hi"))
    cut_short = await agent.turn("begin", signal=Signal.INTERRUPT)
    after = await agent.turn("go on")

    assert cut_short.report.outcome is Outcome.INTERRUPTED
    assert cut_short.report.exit_code == 0
    assert after.report.outcome is Outcome.DONE
    assert "begin" in json.dumps(model.requests[-1].messages)


async def test_a_killed_turn_can_be_gone_on_with(agent, model):
    """TURN-6: the session stays resumable, also when its very first turn was killed."""
    model.when(last_user="The word is heron.").reply(call("Glob", pattern="*"))
    model.when(tool_result="Glob").reply(stall())
    model.otherwise(say("hi"))
    written = partial(agent.wait_written, '"tool_result"')
    killed = await agent.turn("The word is heron.", signal=Signal.KILL, when=written)
    after = await agent.turn("Which word?")

    assert (killed.report.outcome, killed.report.exit_code) == (Outcome.CRASHED, -9)
    assert after.report.outcome is Outcome.DONE
    assert "The word is heron." in json.dumps(model.requests[-1].messages)
    assert len(agent.sessions) == 1


async def test_a_turn_killed_before_anything_was_written_can_be_done_again(agent, model):
    """TURN-3: a session with a title and nothing in it cannot be resumed, and heals."""
    model.when(last_user="begin", times=1).reply(stall())
    model.otherwise(say("hi"))
    killed = await agent.turn("begin", signal=Signal.KILL)
    after = [await agent.turn("begin"), await agent.turn("go on"), await agent.turn("go on")]

    assert killed.report.outcome is Outcome.CRASHED
    assert [ended.report.outcome for ended in after] == [Outcome.DONE] * 3
    assert after[-1].starts == 1
    assert len(model.requests) == 4


async def test_a_terminated_turn_is_told_with_its_code(agent, model):
    """TURN-6: no result comes any more."""
    model.otherwise(stall())
    ended = await agent.turn("go", signal=Signal.TERMINATE)

    assert (ended.report.outcome, ended.report.exit_code) == (Outcome.CRASHED, 143)


async def test_a_cancelled_turn_leaves_no_process(agent, model):
    """STOP-3: and the next one finds the session whole."""
    model.when(last_user="begin").reply(stall())
    model.otherwise(say("hi"))
    request = RunRequest(prompt="begin", system_prompt="", mcp_servers={})
    with trio.fail_after(BOUND_SECONDS), trio.CancelScope() as scope:
        async with agent.runtime().open_run(request) as run:
            await run.next()
            await model.wait_requests(1)
            scope.cancel()
            await run.next()
    assert await agent.runtime().end_orphans() == ()

    assert (await agent.turn("go on")).report.outcome is Outcome.DONE
