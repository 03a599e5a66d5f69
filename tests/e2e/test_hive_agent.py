"""An agent outside of its hive: ``hive-agent`` on the real Claude CLI and the scripted model, and its bad days."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import trio
from e2e.hive_process import BIN, claude_processes, environment, hive_up, hivectl, rows
from waiting import eventually

from hive_agent.testing import ScriptedModel, call, open_scripted_model, say, stall

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RECV, SEND = "mcp__hyperhive__recv", "mcp__hyperhive__send"


def write_config(folder: Path) -> Path:
    """A hive.toml whose one agent runs outside."""
    (folder / "hive.toml").write_text('[agents.ruth]\nruns = "outside"\n')
    return folder / "hive-state"


@asynccontextmanager
async def hive_agent(state_dir: Path, base_url: str) -> AsyncIterator[trio.Process]:
    """Run ``hive-agent`` for ruth; it and what it left are killed when the block ends."""
    folder = state_dir / "agents" / "ruth"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "agent.toml"
    config.write_text(
        "grace_seconds = 2\n"
        f'env = {{ ANTHROPIC_BASE_URL = "{base_url}", ANTHROPIC_API_KEY = "sk-ant-scripted-model" }}\n'
    )
    output = folder / f"hive-agent-{len(list(folder.glob('*.out')))}.out"
    with output.open("wb") as sink:
        process = await trio.lowlevel.open_process(
            [str(BIN / "hive-agent"), "--verbose", "--config", str(config)],
            env={
                **environment(folder),
                "HIVE_NAME": "ruth",
                "HIVE_STATE_DIR": str(folder),
                "HIVE_BROKER_SOCKET": str(state_dir / "run" / "agents" / "ruth" / "mcp.sock"),
            },
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            for left in claude_processes(state_dir):
                left.kill()


def reporting_model() -> ScriptedModel:
    """An agent that reads its mail, answers the operator and is done."""
    model = ScriptedModel()
    model.when(tool_result=SEND).reply(say("Done."))
    model.when(tool_result=RECV).reply(call(SEND, to="operator", body="I have read it."))
    model.when(last_user="unread").reply(call(RECV, max=5))
    return model


async def is_attached(state_dir: Path, *, wanted: bool) -> bool:
    (agent,) = (await hivectl("status", state_dir=state_dir))["agents"]
    return bool(agent["running"]) is wanted


def handled(state_dir: Path) -> list[int]:
    return [row["id"] for row in rows(state_dir) if row["recipient"] == "ruth" and row["acked_at"] is not None]


async def test_an_agent_outside_reads_its_mail_answers_and_stops_as_asked(tmp_path: Path) -> None:
    """HOST-6, WAKE-2, STOP-2: message in, reply out, over one socket; status says that it is there."""
    async with open_scripted_model(reporting_model()) as served:
        state_dir = write_config(tmp_path)
        async with hive_up(cwd=tmp_path, state_dir=state_dir) as hive:
            assert (await hivectl("status", state_dir=state_dir))["agents"][0]["running"] is False
            async with hive_agent(state_dir, served.base_url) as agent:
                await eventually(lambda: is_attached(state_dir, wanted=True))
                sent = await hivectl("send", "ruth", "Read this.", state_dir=state_dir)
                await eventually(lambda: handled(state_dir) == [sent["id"]])
                (reply,) = (await hivectl("inbox", state_dir=state_dir))["messages"]
                assert (reply["sender"], reply["body"]) == ("ruth", "I have read it.")
                agent.send_signal(signal.SIGTERM)
                with trio.fail_after(10):
                    assert await agent.wait() == 0
            await eventually(lambda: is_attached(state_dir, wanted=False))
            assert claude_processes(state_dir) == []
            hive.process.send_signal(signal.SIGTERM)
            assert await hive.wait_exit(10) == 0
            assert not (state_dir / "run" / "hive.json").exists()


async def test_kill_9_of_hive_agent_in_a_turn_brings_its_mail_back_to_the_next_one(tmp_path: Path) -> None:
    """REL-1, TURN-4: the orphan is ended, the rows come again marked, and are acked once."""
    model = ScriptedModel()
    model.when(tool_result=(RECV, "redelivered (attempt 2)")).reply(say("Read."))
    model.when(tool_result=RECV, times=1).reply(stall())
    model.when(last_user="unread").reply(call(RECV, max=5))
    async with open_scripted_model(model) as served:
        state_dir = write_config(tmp_path)
        async with hive_up(cwd=tmp_path, state_dir=state_dir):
            async with hive_agent(state_dir, served.base_url) as first:
                sent = await hivectl("send", "ruth", "Think about this.", state_dir=state_dir)
                await model.wait_requests(2)
                (orphan,) = claude_processes(state_dir)
                first.send_signal(signal.SIGKILL)
                await first.wait()
                (row,) = rows(state_dir)
                assert row["turn_id"] is not None, "in flight until the agent's next life says otherwise"
                async with hive_agent(state_dir, served.base_url):
                    await eventually(lambda: handled(state_dir) == [sent["id"]], seconds=20)
                    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
            (row,) = rows(state_dir)
            assert row["attempts"] == 2
            assert not model.unmatched


async def test_kill_9_of_the_hive_in_a_turn_of_an_agent_outside_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """SURF-4, REL-1: the turn outlives the hive, its call waits for the next one, and the row is acked once."""
    model = ScriptedModel()
    hold = trio.Event()
    model.when(tool_result=SEND).reply(say("Done."))
    model.when(tool_result=RECV, times=1).reply(stall(hold), call(SEND, to="operator", body="I have read it."))
    model.when(last_user="unread").reply(call(RECV, max=5))
    async with open_scripted_model(model) as served:
        state_dir = write_config(tmp_path)
        async with hive_up(cwd=tmp_path, state_dir=state_dir) as first, hive_agent(state_dir, served.base_url):
            sent = await hivectl("send", "ruth", "Think about this.", state_dir=state_dir)
            await model.wait_requests(2)
            first.process.send_signal(signal.SIGKILL)
            await first.wait_exit(5)
            hold.set()
            async with hive_up(cwd=tmp_path, state_dir=state_dir):
                await eventually(lambda: handled(state_dir) == [sent["id"]], seconds=20)
                stored = rows(state_dir)
                assert [row["sender"] for row in stored] == ["operator", "ruth"]
                assert stored[0]["attempts"] == 1


async def test_a_second_hive_agent_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    """TURN-4: one life at a time."""
    async with open_scripted_model(reporting_model()) as served:
        state_dir = write_config(tmp_path)
        async with hive_up(cwd=tmp_path, state_dir=state_dir), hive_agent(state_dir, served.base_url) as first:
            await eventually(lambda: is_attached(state_dir, wanted=True))
            async with hive_agent(state_dir, served.base_url) as second:
                with trio.fail_after(15):
                    assert await second.wait() == 1
            said = (state_dir / "agents" / "ruth" / "hive-agent-1.out").read_text()
            assert f"pid {first.pid}" in said
            assert "Traceback" not in said
            assert first.poll() is None
