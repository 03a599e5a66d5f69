"""Agents that run outside of their hive, and the sockets every agent's mailbox has (WAKE-2, HOST-6)."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from waiting import eventually

import hive_broker
from hive import AgentSettings, ConfigInvalid, HiveConfig, Runs, RuntimeConfig, SocketPathTooLong, open_hive
from hive._config_file import parse_config
from hive._errors import RequestRefused


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., HiveConfig]:
    command = tmp_path / "fake-claude"
    command.write_text("#!/bin/sh\ncat >/dev/null; exec sleep 1000\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def make(**runs: Runs) -> HiveConfig:
        agents = {
            name: AgentSettings(
                # One that runs outside needs no runtime here.
                runtime=RuntimeConfig(command=str(command) if how is Runs.INLINE else "/nowhere", grace_seconds=0.2),
                runs=how,
            )
            for name, how in runs.items()
        }
        return HiveConfig(state_dir=tmp_path / "state", agents=agents, manager=next(iter(agents)))

    return make


async def wake(path: Path, line: bytes) -> object:
    async with await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(line + b"\n")
        with trio.fail_after(5):
            return json.loads(await stream.receive_some())


async def test_every_agent_has_a_socket_that_wakes_it(make_config) -> None:
    """WAKE-2, SEC-1: its address is in hive.json, and it goes with the hive."""
    config = make_config(ruth=Runs.OUTSIDE, iris=Runs.INLINE)
    async with open_hive(config) as hive:
        addresses = json.loads(config.paths.hive_json.read_text())["agents"]
        for name in ("ruth", "iris"):
            path = Path(addresses[name]["broker_sock"])
            assert path == config.paths.socket_dir / "agents" / name / "mcp.sock"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            answer = await wake(path, b'{"cmd":"wake","from":"cron","body":"it is five"}')
            (stored,) = await hive.broker.inbox(name)
            assert (answer["ok"], answer["sent"]["id"], stored.sender) == (True, stored.id, "cron")
        assert addresses["ruth"]["mcp"] == {}
        assert addresses["ruth"]["mcp_token_file"] is None
        hive.hasten()
    assert not path.exists()


async def test_an_agent_outside_is_served_and_not_run_and_status_says_so(make_config) -> None:
    """HOST-6, HOST-2."""
    config = make_config(ruth=Runs.OUTSIDE, iris=Runs.INLINE)
    path = config.paths.broker_sock("ruth")
    async with open_hive(config) as hive:

        async def row() -> tuple[bool, str]:
            (ruth, _) = (await hive.hive_status()).agents
            return ruth.running, ruth.note or ""

        assert await row() == (False, f"runs outside of the hive, and is not there: start hive-agent on {path}")
        async with hive_broker.open_mailbox_client(path, name="ruth", runs_turns=True) as mailbox:
            await mailbox.summary()
            assert await row() == (True, f"runs outside of the hive (hive-agent, pid {os.getpid()})")
            await hive.send(to="ruth", body="hello", in_reply_to=None)
            await mailbox.wait_unread()
        await eventually(lambda: row_is(row, False))
    assert not config.paths.hive_json.exists()


async def row_is(row, running) -> bool:
    return (await row())[0] is running


async def test_a_client_that_is_there_to_the_end_leaves_no_address_file(make_config) -> None:
    """STOP-3: what its going changes is told to nobody any more."""
    config = make_config(ruth=Runs.OUTSIDE)
    path = config.paths.broker_sock("ruth")
    async with hive_broker.open_mailbox_client(path, name="ruth", runs_turns=True) as mailbox:
        async with open_hive(config):
            await mailbox.summary()
        assert not config.paths.hive_json.exists()
        assert not path.exists()


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
async def test_what_runs_outside_is_not_started_or_stopped_from_here(make_config, verb) -> None:
    """HOST-2: refused in words when it is all that was asked for, left out when it is not."""
    config = make_config(ruth=Runs.OUTSIDE, iris=Runs.INLINE)
    calls = {
        "start": lambda hive, names: hive.start(names),
        "stop": lambda hive, names: hive.stop(names, graceful=False),
        "restart": lambda hive, names: hive.restart(names[0]),
    }
    async with open_hive(config) as hive:
        with pytest.raises(RequestRefused, match="ruth: it runs outside of the hive"):
            await calls[verb](hive, ("ruth",))
        await calls[verb](hive, ("iris", "ruth"))


async def test_an_agent_that_moves_in_again_finds_its_mail(make_config) -> None:
    """TURN-4: what its last life outside had open ends when the hive runs it itself."""
    outside = make_config(ruth=Runs.OUTSIDE)
    async with open_hive(outside) as hive:
        await hive.send(to="ruth", body="hello", in_reply_to=None)
        path = outside.paths.broker_sock("ruth")
        async with hive_broker.open_mailbox_client(path, name="ruth", runs_turns=True) as mailbox:
            await mailbox.recv(turn_id=(await mailbox.open_turn(cause="mail")).id)
    async with open_hive(outside) as hive:
        assert (await hive.broker.counts())["ruth"].in_flight == 1
    async with open_hive(make_config(ruth=Runs.INLINE)) as hive:
        await eventually(lambda: is_thinking(hive))
        hive.hasten()


async def is_thinking(hive) -> bool:
    (ruth,) = (await hive.hive_status()).agents
    return ruth.turn_state == "thinking"


def test_hive_toml_says_who_runs_an_agent(tmp_path: Path) -> None:
    """HOST-6: inline unless it says otherwise; a slip is refused in words."""
    config = parse_config('[agents.ruth]\n[agents.iris]\nruns = "outside"\n', base=tmp_path)
    assert [settings.runs for settings in config.agents.values()] == [Runs.INLINE, Runs.OUTSIDE]
    with pytest.raises(ConfigInvalid, match=r'\[agents.ruth\] runs must be "inline" or "outside", got \'away\''):
        parse_config('[agents.ruth]\nruns = "away"\n', base=tmp_path)


def test_a_state_folder_without_room_for_an_agents_socket_is_refused_in_words(tmp_path: Path) -> None:
    """REL-3: before anything is started, with what to do."""
    deep = Path("/tmp") / ("x" * 70)
    with pytest.raises(SocketPathTooLong, match="runtime_dir"):
        HiveConfig(state_dir=deep, agents={"a-name-of-some-length": AgentSettings()}, manager="a-name-of-some-length")
