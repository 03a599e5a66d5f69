"""``hivectl stop``: when it says that a hive has stopped, nothing of it is left, whatever became of its process."""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from fake_hive import FakeHive, publish

import hive_broker
from hive import AgentSettings, HiveConfig, RuntimeConfig, open_hive
from hive._hostsock import serve_host_socket
from hive.cli._find import find_hive
from hive.cli._stop import Stopped, _has_ended, _life, stop_hive


@pytest.fixture
def config(tmp_path: Path) -> HiveConfig:
    command = tmp_path / "fake-claude"
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    settings = AgentSettings(runtime=RuntimeConfig(command=str(command), grace_seconds=1))
    return HiveConfig(state_dir=tmp_path / "state", agents={"ruth": settings}, manager="ruth")


@pytest.fixture
def lingers_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.cli._stop._LINGER_SECONDS", 0.05)
    monkeypatch.setattr("hive.cli._stop._LOOK_SECONDS", 0.01)


async def run_until_stopped(config: HiveConfig, *, task_status: trio.TaskStatus[None]) -> None:
    async with open_hive(config) as hive:
        task_status.started()
        await hive.wait_shutdown()


def found_in(state_dir: Path):
    return find_hive(state_dir, environ={}, folder=Path("/nowhere"))


@pytest.mark.slow
async def test_a_hive_inside_another_program_stops_and_its_program_goes_on(config: HiveConfig, lingers_briefly: None):
    """EMBED-1, STOP-1: the wait ends with the hive; the next one of the same process is another one."""
    for _ in range(2):
        told: list[str] = []
        async with trio.open_nursery() as nursery:
            await nursery.start(run_until_stopped, config)
            with trio.fail_after(5):
                stopped = await stop_hive(found_in(config.state_dir), graceful=True, tell=told.append)
            assert hive_broker.owner_of(config.paths.broker_db) is None, "the broker closes last"
        assert stopped == Stopped(hive=config.name, pid=os.getpid(), process_goes_on=True)
        assert len(told) == 1


@pytest.mark.slow
async def test_a_hive_that_is_started_again_at_once_is_no_reason_to_wait(config: HiveConfig, lingers_briefly: None):
    """EMBED-1: the successor has the same process, socket and state."""

    async def run_twice(*, task_status: trio.TaskStatus[None]) -> None:
        await run_until_stopped(config, task_status=task_status)
        async with open_hive(config):
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(run_twice)
        with trio.fail_after(5):
            stopped = await stop_hive(found_in(config.state_dir), graceful=True, tell=lambda _: None)
        assert stopped.process_goes_on
        nursery.cancel_scope.cancel()


async def test_a_hive_has_not_ended_while_anything_of_it_is_left(tmp_path: Path):
    """STOP-3: its address file goes first, and turns may take their grace before the broker closes."""
    hive_json = publish(tmp_path).with_name("hive.json")
    found = found_in(tmp_path)
    has_ended = partial(_has_ended, found, _life(hive_json), os.getpid())
    async with hive_broker.open_broker(tmp_path / "db" / "broker.sqlite", owner="test"):
        assert not has_ended()
        hive_json.unlink()
        assert not has_ended()
        assert _has_ended(found, None, os.getpid() + 1), "somebody else's state now"
    assert has_ended()


def test_a_successor_in_the_address_file_means_the_end(tmp_path: Path):
    """HOST-2: another pid, or another start of the same one; what cannot be read means nothing."""
    hive_json = publish(tmp_path).with_name("hive.json")
    found = found_in(tmp_path)

    def write(**said: object) -> None:
        hive_json.write_text(json.dumps({"host_sock": str(found.host_sock), **said}))

    write(pid=7, started_at=1.0)
    life = _life(hive_json)
    write(pid=7, started_at=1.0, agents={"ruth": {}})
    assert not _has_ended(found, life, 7)
    write(pid=7, started_at=2.0)
    assert _has_ended(found, life, 7)
    write(pid=8, started_at=1.0)
    assert _has_ended(found, life, 7)
    for text in ("", "[]", "\xff", "[" * 100_000):
        hive_json.write_text(text)
        assert not _has_ended(found, life, 7)
        assert not _has_ended(found, _life(hive_json), 7)
    hive_json.unlink()
    assert _has_ended(found, life, 7), "there is no database that anybody owns"


async def test_a_hive_out_of_sight_is_gone_with_its_files(tmp_path: Path, nursery: trio.Nursery, lingers_briefly: None):
    """HOST-2: in another pid namespace; nothing is said of a process that cannot be seen."""
    hive = FakeHive("ruth")
    hive_json = publish(tmp_path).with_name("hive.json")

    async def end(*, graceful: bool) -> None:
        await trio.lowlevel.checkpoint()
        hive_json.unlink()

    async def status_out_of_sight():
        return attrs.evolve(await FakeHive.hive_status(hive), pid=2**31 - 1)

    hive.shutdown, hive.hive_status = end, status_out_of_sight  # type: ignore[method-assign]
    await nursery.start(serve_host_socket, tmp_path / "run" / "host.sock", hive)
    with trio.fail_after(5):
        stopped = await stop_hive(found_in(tmp_path), graceful=True, tell=lambda _: None)
    assert stopped == Stopped(hive="fake", pid=2**31 - 1, process_goes_on=False)
