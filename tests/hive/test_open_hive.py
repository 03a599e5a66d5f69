"""A hive inside a test program: what embedding promises, and what the supervisor does (EMBED-1, HOST-5, STOP-3)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import trio
from logs import captured_logs
from waiting import eventually

import hive_agent
import hive_broker
from hive import AgentSettings, HiveConfig, HiveUnavailable, RuntimeConfig, open_hive, open_host_client
from hive_agent import EventKind
from hive_agent.testing import ScriptedModel, call, open_scripted_model, say, stall

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

SLEEPER = "cat >/dev/null; exec sleep 1000"
"""A runtime that reads its prompt and thinks for ever."""


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., HiveConfig]:
    def make(*names: str, script: str = SLEEPER, grace_seconds: float = 0.2, **more: object) -> HiveConfig:
        command = tmp_path / "fake-claude"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        settings = AgentSettings(runtime=RuntimeConfig(command=str(command), grace_seconds=grace_seconds))
        return HiveConfig(
            state_dir=tmp_path / "state", agents=dict.fromkeys(names or ("ruth",), settings), manager="ruth", **more
        )

    return make


def marked(config: HiveConfig) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HIVE_RUNTIME_OWNER", "").startswith(str(config.state_dir)):
                found.append(process)
        except psutil.Error:
            continue
    return found


async def is_running(control: object, number: int, wanted: bool) -> bool:
    return (await control.agent_status())[number].running is wanted


async def wait_thinking(config: HiveConfig) -> None:
    """Return once the one process that is left is the one that thinks: its shell has read its prompt by then."""

    def thinks() -> bool:
        try:
            return [process.name() for process in marked(config)] == ["sleep"]
        except psutil.Error:  # it ended in between
            return False

    await eventually(thinks)


async def test_a_block_that_ends_leaves_no_task_process_thread_or_address_file(make_config) -> None:
    """EMBED-1, STOP-3: leaving the block is the stop."""
    config = make_config("ruth", "iris")
    threads = threading.active_count()
    async with open_hive(config) as hive:
        assert json.loads(config.paths.hive_json.read_text())["agents"].keys() == {"ruth", "iris"}
        assert await hive.list_agents() == ("ruth", "iris")
    assert not config.paths.hive_json.exists()
    assert not config.paths.host_sock.exists()
    assert marked(config) == []
    await eventually(lambda: threading.active_count() <= threads)


@pytest.mark.slow
async def test_cancelling_the_scope_around_a_thinking_hive_is_a_graceful_stop(make_config) -> None:
    """EMBED-1: within the grace the turn may end; past it, it is cut off and its mail goes back."""
    config = make_config()
    with trio.CancelScope() as scope:
        async with open_hive(config) as hive:
            await hive.send(to="ruth", body="hello", in_reply_to=None)
            await wait_thinking(config)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert marked(config) == []
    async with hive_broker.open_broker(config.paths.broker_db, owner="test") as broker:
        await broker.set_agents(["ruth"])
        assert (await broker.counts())["ruth"].unread == 1


@pytest.mark.slow
async def test_cancelling_an_idle_hive_takes_under_two_seconds(make_config) -> None:
    """STOP-3, with a hundred agents in it."""
    config = make_config("ruth", *(f"a{number}" for number in range(99)))
    with trio.CancelScope() as scope:
        async with open_hive(config):
            scope.cancel()
            with trio.fail_after(2):
                await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_an_error_of_the_body_leaves_as_it_is(make_config) -> None:
    """EMBED-1: no exception groups around what the embedder raised."""
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with open_hive(make_config()):
            raise error
    assert caught.value is error
    assert error.__context__ is None


async def test_a_hive_that_cannot_start_says_why_in_one_error(make_config, tmp_path: Path) -> None:
    """EMBED-1: the documented shapes."""
    config = make_config()
    async with open_hive(config):
        with pytest.raises(hive_broker.BrokerLocked, match=str(os.getpid())):
            async with open_hive(config):
                raise AssertionError("two hives on one state")
    missing = HiveConfig(
        state_dir=tmp_path / "other", agents={"ruth": AgentSettings(runtime=RuntimeConfig(command="/nowhere/claude"))}
    )
    with pytest.raises(hive_agent.RuntimeUnavailable, match=r"hyperhive\[claude\]"):
        async with open_hive(missing):
            raise AssertionError("no runtime")
    (tmp_path / "file").touch()
    nowhere = HiveConfig(state_dir=tmp_path / "file" / "state", agents=config.agents)
    with pytest.raises(HiveUnavailable, match="state_dir"):
        async with open_hive(nowhere):
            raise AssertionError("no folder")


async def test_a_kept_port_that_was_taken_meanwhile_is_given_up_and_a_wanted_one_is_not(make_config) -> None:
    """SURF-1."""
    config = make_config()
    async with open_hive(config):
        port = int(config.paths.mcp_port_file.read_text())
    async with hive_agent.open_listener(port=port):
        with captured_logs() as lines:
            async with open_hive(config):
                assert int(config.paths.mcp_port_file.read_text()) != port
        assert [line["event"] for line in lines if line["log_level"] == "warning"] != []
        with pytest.raises(hive_agent.ListenerUnavailable):
            async with open_hive(make_config(mcp_port=port)):
                raise AssertionError("a port in use")


async def test_a_stopped_agent_is_started_again_over_the_socket_and_mail_waits(make_config) -> None:
    """HOST-1, HOST-2."""
    config = make_config("ruth", "iris")
    async with open_hive(config), open_host_client(config.paths.host_sock) as client:
        await client.stop(("iris",), graceful=True)
        await eventually(lambda: is_running(client, 1, False))
        assert "iris" not in json.loads(config.paths.hive_json.read_text())["agents"]
        await client.send(to="iris", body="for later", in_reply_to=None)
        await client.start(("iris",))
        await wait_thinking(config)
        assert (await client.agent_status())[1].running
        assert "iris" in json.loads(config.paths.hive_json.read_text())["agents"]


@pytest.mark.slow
async def test_an_agent_that_breaks_is_started_again_and_the_manager_is_told(make_config) -> None:
    """HOST-5, SYS-1: one agent's trouble is not the hive's, and its URL is the same afterwards."""
    config = make_config("ruth", "iris")
    config.paths.agent_dir("iris").mkdir(parents=True)
    (config.paths.agent_dir("iris") / "state").touch()  # a file where its folder must be
    with captured_logs() as lines:
        async with open_hive(config) as hive:
            rows = {row.name: row for row in await hive.agent_status()}
            assert rows["ruth"].running
            assert not rows["iris"].running
            detail = {agent.name: agent for agent in (await hive.hive_status()).agents}["iris"]
            assert "FileExistsError" in detail.note
            (told,) = (await hive.inbox(agent="ruth", limit=5, unread_only=False)).messages
            crash = json.loads(told.body)
            assert (told.sender, crash["event"], crash["agent"]) == ("system", "container_crash", "iris")
            (config.paths.agent_dir("iris") / "state").unlink()
            await eventually(lambda: is_running(hive, 1, True))
    assert [line["agent"] for line in lines if line["event"] == "an agent ended unplanned"] == ["iris"]


async def test_an_agent_that_runs_elsewhere_is_left_alone_and_the_hive_says_so(make_config) -> None:
    """TURN-4: whoever holds the agent's folder runs it; nothing of it is touched from here."""
    config = make_config("ruth", "iris")
    harness = config.paths.agent_harness_dir("iris")
    with hive_agent.own_harness(harness, name="iris"):
        (harness / "runtime-may-run").touch()
        async with open_hive(config) as hive:
            ruth, iris = (await hive.hive_status()).agents
            assert (ruth.running, iris.running) == (True, False)
            assert "run by another process already" in iris.note
    assert (harness / "runtime-may-run").exists(), "its runtime was looked for, or worse"


@pytest.mark.slow
async def test_haste_cuts_the_grace_short(make_config) -> None:
    """STOP-3."""
    config = make_config(grace_seconds=60)
    with trio.fail_after(8):
        async with open_hive(config) as hive:
            await hive.send(to="ruth", body="hello", in_reply_to=None)
            await wait_thinking(config)
            hive.hasten()
            await hive.wait_shutdown()
    assert marked(config) == []


@pytest.mark.slow
async def test_a_stop_of_one_agent_can_be_hastened_while_it_is_under_way(make_config) -> None:
    """STOP-3, at the level of one agent."""
    config = make_config(grace_seconds=60)
    with trio.fail_after(8):
        async with open_hive(config) as hive:
            await hive.send(to="ruth", body="hello", in_reply_to=None)
            await wait_thinking(config)
            await hive.stop(("ruth",), graceful=True)
            await hive.stop(("ruth",), graceful=False)
            await eventually(lambda: is_running(hive, 0, False))


async def test_what_happens_is_told_to_watchers_and_a_slow_one_is_let_go(make_config) -> None:
    """BUS-3 at the hive's level."""
    config = make_config()
    async with open_hive(config) as hive:
        with hive.watch() as happenings:
            await hive.send(to="ruth", body="hello", in_reply_to=None)
            with trio.fail_after(5):
                async for event in happenings:
                    if isinstance(event, hive_broker.MessageSent):
                        break
            hive.hasten()
    with trio.fail_after(5):
        async with open_hive(config) as hive:
            with hive.watch() as happenings:
                for number in range(5000):
                    hive.observe(
                        "ruth", hive_agent.AgentEvent(seq=number, at=0.0, kind=EventKind.STREAM, turn_id=None, data={})
                    )
                seen = [event async for event in happenings]
            assert len(seen) < 5000


@pytest.mark.slow
@pytest.mark.e2e
def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    """EMBED-1: twenty lines embed a hive, on the real CLI."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "embed_hive.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ruth: Forty-two.\n", "")


@pytest.mark.slow
async def test_kill_9_of_the_harness_process_leaves_an_orphan_that_the_next_life_ends(make_config) -> None:
    """TURN-4, REL-1: found by its mark, although nobody wrote down its pid."""
    config = make_config()
    program = (
        "import sys, trio\n"
        "from pathlib import Path\n"
        "from hive import *\n"
        "async def main():\n"
        "    settings = AgentSettings(runtime=RuntimeConfig(command=sys.argv[2]))\n"
        "    async with open_hive(HiveConfig(state_dir=Path(sys.argv[1]), agents={'ruth': settings})) as hive:\n"
        "        await hive.send(to='ruth', body='hello', in_reply_to=None)\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    command = config.agents["ruth"].runtime.command
    first = await trio.lowlevel.open_process([sys.executable, "-c", program, str(config.state_dir), command])
    try:
        await wait_thinking(config)
        (orphan,) = marked(config)
    finally:
        with trio.CancelScope(shield=True):
            first.send_signal(signal.SIGKILL)
            await first.wait()
    assert orphan.is_running()
    async with open_hive(config) as hive:
        await wait_thinking(config)
        assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
        assert len(marked(config)) == 1
        hive.hasten()


@pytest.mark.slow
async def test_addresses_that_cannot_be_written_cost_no_agent(make_config) -> None:
    """REL-3, HOST-5: another agent's restart must not end the hive because of a file for scripts."""
    config = make_config("ruth", "iris")
    with captured_logs() as lines:
        async with open_hive(config) as hive:
            config.paths.hive_json.unlink()
            config.paths.hive_json.mkdir()
            await hive.restart("iris")
            await eventually(lambda: any("cannot be written" in line["event"] for line in lines))
            await eventually(lambda: is_running(hive, 1, True))
            assert (await hive.agent_status())[0].running
            config.paths.hive_json.rmdir()
            await hive.restart("iris")
            await eventually(config.paths.hive_json.exists)
    assert len([line for line in lines if "hive.json cannot be written" in line["event"]]) == 1


@pytest.mark.slow
async def test_addresses_that_somebody_removed_are_written_again(make_config, monkeypatch) -> None:
    """REL-3: also when the whole folder went."""
    monkeypatch.setattr("hive._hive._LOOK_SECONDS", 0.02)
    config = make_config()
    async with open_hive(config):
        shutil.rmtree(config.paths.run_dir)
        await eventually(config.paths.hive_json.exists)


async def test_addresses_that_can_never_be_written_are_refused_at_the_start(make_config) -> None:
    """EMBED-1, REL-3: one documented error, and words."""
    config = make_config()
    config.paths.hive_json.mkdir(parents=True)
    with pytest.raises(HiveUnavailable, match=r"hive\.json must be a file"):
        async with open_hive(config):
            raise AssertionError("a folder in the file's place")


@pytest.mark.slow
async def test_a_flood_of_restarts_becomes_two(make_config) -> None:
    """REL-4: what a peer asks for again and again is asked for once."""
    config = make_config("ruth", "iris")
    async with open_hive(config) as hive:
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(1000):
            await hive.restart("iris")
        assert trio.lowlevel.current_statistics().tasks_living < before + 10
        await eventually(lambda: is_running(hive, 1, True))
        await hive.send(to="iris", body="are you there?", in_reply_to=None)
        await wait_thinking(config)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["config/prompt.md", "harness/session.json"])
async def test_a_pipe_in_the_place_of_a_file_holds_up_nobody(make_config, place: str) -> None:
    """SEC-4: one agent's folder is not the whole hive's trouble."""
    config = make_config("ruth", "iris", script="cat >/dev/null; exit 3")
    async with open_hive(config) as hive:
        path = config.paths.agent_dir("iris") / place
        os.mkfifo(path)
        await hive.send(to="iris", body="hello", in_reply_to=None)

        async def ended() -> bool:
            return (await hive.hive_status()).agents[1].last_outcome is not None

        await eventually(ended, seconds=5)


@pytest.mark.slow
@pytest.mark.e2e
async def test_a_turn_that_runs_when_the_scope_is_cancelled_keeps_its_tools(tmp_path: Path) -> None:
    """STOP-1, STOP-2: within the grace it can still write, and what it reads is the notice to stop."""
    recv, send = "mcp__hyperhive__recv", "mcp__hyperhive__send"
    hold = trio.Event()
    model = ScriptedModel()
    model.when(tool_result=(recv, "graceful-stop")).reply(say("Stopping."))
    model.when(tool_result=send).reply(call(recv))
    model.when(tool_result=recv).reply(stall(hold), call(send, to="operator", body="the answer"))
    model.when(last_user="unread").reply(call(recv))
    async with open_scripted_model(model) as served:
        env = {"ANTHROPIC_BASE_URL": served.base_url, "ANTHROPIC_API_KEY": "sk-ant-scripted-model"}
        settings = AgentSettings(runtime=RuntimeConfig(env=env, grace_seconds=20))
        config = HiveConfig(state_dir=tmp_path / "state", agents={"ruth": settings})
        with trio.CancelScope() as scope:
            async with open_hive(config) as hive:
                await hive.send(to="ruth", body="please answer", in_reply_to=None)
                with trio.fail_after(20):
                    await model.wait_requests(2)
                scope.cancel()
                hold.set()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert not model.unmatched
    async with hive_broker.open_broker(config.paths.broker_db, owner="test") as broker:
        (answer,) = await broker.inbox("operator")
        (question,) = await broker.inbox("ruth")
        assert answer.body == "the answer"
        assert question.acked_at is not None
