"""Backups and dead letters over the admin socket, and a restore by the command (HOST-2, MSG-6, REL-5)."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

import hive_broker
from hive import (
    AgentSettings,
    ConfigInvalid,
    HiveConfig,
    RequestRefused,
    RuntimeConfig,
    open_hive,
    open_host_client,
    parse_config,
)
from hive.cli._hive import hive as hive_command
from hive.cli._hivectl import hivectl


@pytest.fixture
def config(tmp_path: Path) -> HiveConfig:
    command = tmp_path / "fake-claude"
    command.write_text("#!/bin/sh\ncat >/dev/null; exec sleep 1000\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    settings = AgentSettings(runtime=RuntimeConfig(command=str(command), grace_seconds=0.2))
    return HiveConfig(state_dir=tmp_path / "state", agents={"ruth": settings})


@pytest.fixture
def ctl(config: HiveConfig) -> Callable[..., object]:
    """Runs ``hivectl`` on the hive from a thread beside it."""

    async def run(*args: str) -> Result:
        command = ["--state", str(config.state_dir), *args]
        return await trio.to_thread.run_sync(lambda: CliRunner().invoke(hivectl, command, catch_exceptions=False))

    return run


@pytest.fixture
def restore(config: HiveConfig) -> Callable[..., Result]:
    """Runs ``hive restore`` on the hive's state folder."""

    def run(*args: str) -> Result:
        command = ["restore", *args, "--state", str(config.state_dir)]
        return CliRunner().invoke(hive_command, command, catch_exceptions=False)

    return run


async def kill(broker: hive_broker.Broker) -> int:
    """Make one message of the operator's to itself a dead letter."""
    operator = broker.mailbox("operator")
    sent = await operator.send(to="operator", body="do it")
    for _ in range(5):
        turn = await operator.open_turn(cause="look")
        await operator.recv(turn_id=turn.id)
        await operator.close_turn(turn.id, acked=False, record={})
    return sent.id


async def test_hivectl_backs_a_running_hive_up(config: HiveConfig, ctl, tmp_path: Path) -> None:
    """HOST-2: beside the earlier ones, or to a file relative to where it is called."""
    async with open_hive(config) as hive:
        await hive.broker.deliver("system", "operator", "x")
        result = await ctl("backup")
        (made,) = config.paths.backups_dir.iterdir()
        assert result.output.startswith(f"backed up 1 message to {made} (")
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
        named = json.loads((await ctl("backup", "--json", str(tmp_path / "mine.sqlite"))).output)
        assert (named["path"], named["messages"]) == (str(tmp_path / "mine.sqlite"), 1)
        again = await ctl("backup", str(tmp_path / "mine.sqlite"))
        assert again.exit_code == 1
        assert "a backup never replaces a file" in again.stderr
        async with open_host_client(config.paths.host_sock) as client:
            with pytest.raises(RequestRefused, match="path must be an absolute path"):
                await client.backup(Path("relative.sqlite"))


async def test_hivectl_lists_requeues_and_drops_dead_letters(config: HiveConfig, ctl) -> None:
    """MSG-6, HOST-2: and what cannot be done is said."""
    async with open_hive(config) as hive:
        assert (await ctl("dead-letters")).output == "no dead letters\n"
        letter = await kill(hive.broker)
        shown = (await ctl("dead-letters")).output
        assert f"#{letter}  operator -> operator" in shown
        assert "dead letter after 5 attempts" in shown
        assert f"hivectl dead-letters requeue {letter}" in shown
        assert (await ctl("dead-letters", "list", "--before", str(letter))).output == "no dead letters\n"
        requeued = await ctl("dead-letters", "requeue", str(letter))
        assert requeued.output == f"#{letter} is unread again for operator\n"
        refused = await ctl("dead-letters", "drop", str(letter))
        assert refused.exit_code == 1
        assert f"#{letter} is no dead letter" in refused.stderr
        second = await kill(hive.broker)
        (row,) = json.loads((await ctl("dead-letters", "--json")).output)["messages"]
        assert row["id"] in (letter, second)
        dropped = json.loads((await ctl("dead-letters", "drop", "--json", str(row["id"]))).output)
        assert dropped["dropped_at"] == dropped["acked_at"]
        assert (await ctl("dead-letters", "list")).output == "no dead letters\n"
        assert "dropped" in (await ctl("thread", str(row["id"]))).output


async def test_a_restore_puts_a_backup_back_and_says_what_is_lost(config: HiveConfig, restore, tmp_path: Path) -> None:
    """HOST-2, REL-5: the whole way, with a hive before and after."""
    backup = tmp_path / "one.sqlite"
    async with open_hive(config) as hive:
        await hive.broker.deliver("system", "operator", "before")
        await hive.backup(backup)
        await hive.broker.deliver("system", "operator", "after")
        refused = await trio.to_thread.run_sync(restore, str(backup))
        assert refused.exit_code == 1
        assert "belongs to \"hive 'hive'\"" in refused.stderr
    done = restore(str(backup))
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith(f"{config.paths.broker_db} is {backup} now: 1 messages, as of 20")
    assert lines[1].startswith(f"What was there is kept as {config.paths.broker_db}.replaced-")
    assert lines[2].startswith("1 messages newer than the backup (after #1) are not in it")
    assert lines[-1] == "Ids go on at #3. Start the hive with hive up."
    async with open_hive(config) as hive:
        assert [message.body for message in (await hive.inbox(agent=None, limit=9, unread_only=False)).messages] == [
            "before"
        ]
        assert (await hive.broker.deliver("system", "operator", "new")).id == 3


async def test_a_restore_tells_what_it_cannot_know(config: HiveConfig, restore, tmp_path: Path) -> None:
    """REL-5: over a damaged file it knows how much at most, on a bare machine nothing."""
    backup = tmp_path / "one.sqlite"
    async with hive_broker.open_broker(config.paths.broker_db, owner="test") as broker:
        await broker.deliver("system", "operator", "before")
        await broker.backup(backup)
        await broker.deliver("system", "operator", "after")
    config.paths.broker_db.write_bytes(b"damaged")
    output = restore(str(backup)).output
    assert "Ids up to #2 had been given out and the backup ends at #1: at most 1 messages are lost." in output
    for file in config.paths.broker_db.parent.iterdir():
        file.unlink()
    output = restore(str(backup)).output
    assert "nothing here says how many" in output
    assert "Ids go on at #1000002." in output
    assert json.loads(restore(str(backup), "--json").output)["next_message_id"] == 1_000_002


def test_what_is_no_backup_is_refused(config: HiveConfig, restore, tmp_path: Path) -> None:
    """REL-3."""
    (tmp_path / "no.sqlite").write_text("no")
    result = restore(str(tmp_path / "no.sqlite"))
    assert result.exit_code == 1
    assert "no sound backup" in result.stderr
    assert not config.paths.broker_db.exists()


def test_budgets_are_keys_of_hive_toml(tmp_path: Path) -> None:
    """MSG-10: generous where nothing is said, and wrong ones are refused."""
    keys = "pair_messages_per_hour = 5\nsender_messages_per_hour = 6\nhive_messages_per_hour = 7"
    read = parse_config(f"[hive]\n{keys}\n[agents.ruth]\n", base=tmp_path)
    assert read.budgets == hive_broker.LoopBudgets(
        pair_messages_per_hour=5, sender_messages_per_hour=6, hive_messages_per_hour=7
    )
    assert parse_config("[agents.ruth]\n", base=tmp_path).budgets == hive_broker.LoopBudgets(
        pair_messages_per_hour=120, sender_messages_per_hour=600, hive_messages_per_hour=3000
    )
    with pytest.raises(ConfigInvalid, match="pair_messages_per_hour must be a whole number from 1 to"):
        parse_config("[hive]\npair_messages_per_hour = 0\n[agents.ruth]\n", base=tmp_path)


async def test_budgets_of_a_hive_reach_its_broker(config: HiveConfig) -> None:
    """MSG-10: what the file says is what stops an agent."""
    tight = HiveConfig(state_dir=config.state_dir, agents=config.agents, pair_messages_per_hour=1)
    async with open_hive(tight) as hive:
        ruth = hive.broker.mailbox("ruth")
        await ruth.send(to="operator", body="1")
        with pytest.raises(hive_broker.MessageRefused, match="ruth sent the operator 1 messages within an hour, and 1"):
            await ruth.send(to="operator", body="2")
