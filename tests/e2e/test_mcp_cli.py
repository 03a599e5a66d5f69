"""The real Claude CLI at the tools' door: what the model gets to see, word by word."""

import json
import subprocess

import attrs
import pytest
import trio

from hive_agent import open_listener
from hive_agent.testing import ScriptedModel, call, claude_command, claude_test_environment, open_scripted_model, say
from hive_broker import open_broker

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BOUND_SECONDS = 60
"""A turn takes half a second; a loaded machine may take its time."""


@attrs.define(kw_only=True)
class Services:
    """What the harness gives the tools."""

    mailbox: object
    name: str = "iris"
    turn_id: int | None = None
    stop_notice: str | None = None
    status: str = ""

    def set_status(self, text: str) -> None:
        self.status = text


@attrs.define
class Turns:
    """Runs turns of iris with the real CLI against a real broker."""

    model: ScriptedModel
    services: Services
    broker: object
    url: str
    home: object
    base_url: str

    async def run(self, prompt: str, *, turn: str | None = None) -> None:
        """One process of the CLI, started as a harness starts it."""
        headers = {"Authorization": "Bearer a-token-of-iris", "Hive-Turn": turn or str(self.services.turn_id)}
        config = self.home / "mcp.json"
        config.write_text(
            json.dumps({"mcpServers": {"hyperhive": {"type": "http", "url": self.url, "headers": headers}}})
        )
        command = [claude_command(), "-p", "--output-format", "stream-json", "--verbose", "--tools", "Read"]
        command += ["--strict-mcp-config", "--mcp-config", str(config), "--allowedTools", "mcp__hyperhive"]
        with trio.fail_after(BOUND_SECONDS):
            done = await trio.run_process(
                command,
                stdin=prompt.encode(),
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
                cwd=self.home,
                env=claude_test_environment(self.home, self.base_url) | {"ENABLE_TOOL_SEARCH": "false"},
            )
        assert done.returncode == 0, done.stdout[-2000:]

    def result(self, number: int) -> str:
        """The text of the one tool result in the request with this number."""
        (result,) = self.model.requests[number - 1].tool_results
        return result.text


@pytest.fixture
async def turns(tmp_path):
    model = ScriptedModel()
    home = tmp_path / "home"
    home.mkdir()
    async with (
        open_broker(tmp_path / "broker.sqlite", owner="test") as broker,
        open_listener() as listener,
        open_scripted_model(model) as served,
    ):
        await broker.set_agents(["iris", "otto"])
        services = Services(mailbox=broker.mailbox("iris"))
        services.turn_id = (await services.mailbox.open_turn(cause="test")).id
        with listener.mount(services, token="a-token-of-iris") as mount:
            yield Turns(model, services, broker, mount.urls["hyperhive"], home, served.base_url)
    assert not model.unmatched


async def test_the_model_is_offered_the_tools_and_reads_plain_text(turns):
    """SURF-3: names as promised, and text where structured results would show JSON."""
    await turns.broker.mailbox("otto").send(to="iris", body="ping")
    turns.model.when(last_user="wake").reply(call("mcp__hyperhive__recv", max=3))
    turns.model.when(tool_result=("mcp__hyperhive__recv", "ping")).reply(
        call("mcp__hyperhive__send", to="otto", body="pong", in_reply_to=1)
    )
    turns.model.when(tool_result="mcp__hyperhive__send").reply(call("mcp__hyperhive__set_status", text="answered"))
    turns.model.when(tool_result="mcp__hyperhive__set_status").reply(say("done"))
    await turns.run("wake up")
    assert set(turns.model.requests[0].tools) == {
        "Read",
        *(f"mcp__hyperhive__{name}" for name in ("send", "recv", "ack_until", "set_status")),
    }
    shown = turns.result(2)
    assert shown.startswith("[msg #1] from otto · ")
    assert shown.endswith("· thread #1\nping\n\nno more unread messages.")
    assert turns.result(3) == "sent: message #2 to otto"
    assert turns.result(4) == "status set: answered"
    assert turns.services.status == "answered"
    received = await turns.broker.mailbox("otto").recv()
    assert received.deliveries[0].message.thread_id == 1


async def test_a_full_answer_is_shown_whole(turns):
    """SURF-3: at our limit the CLI neither cuts nor moves it into a file."""
    await turns.broker.mailbox("otto").send(to="iris", body="蜂" * 60_000)
    turns.model.when(last_user="wake").reply(call("mcp__hyperhive__recv"))
    turns.model.when(tool_result=("mcp__hyperhive__recv", "cut here")).reply(call("mcp__hyperhive__recv"))
    turns.model.when(tool_result=("mcp__hyperhive__recv", "continued")).reply(say("done"))
    await turns.run("wake up")
    assert turns.result(2).count("蜂") + turns.result(3).count("蜂") == 60_000
    assert len(turns.result(2)) > 44_000


async def test_a_cli_of_an_ended_turn_is_told_to_stop(turns):
    """MSG-5: its call pops nothing."""
    await turns.broker.mailbox("otto").send(to="iris", body="for the next turn")
    turns.model.when(last_user="wake").reply(call("mcp__hyperhive__recv"))
    turns.model.when(tool_result="mcp__hyperhive__recv").reply(say("stopping"))
    await turns.run("wake up", turn="999")
    assert "turn 999 is over, so nothing was done" in turns.result(2)
    assert (await turns.services.mailbox.summary()).unread == 1
