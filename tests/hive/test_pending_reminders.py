"""What the doors say of reminders is what the broker holds."""

import stat

import pytest
import trio

from hive import AgentSettings, HiveConfig, RuntimeConfig, open_hive


@pytest.fixture
def config(tmp_path):
    """Two agents whose runtime reads its prompt and thinks for ever."""
    command = tmp_path / "fake-claude"
    command.write_text("#!/bin/sh\ncat >/dev/null; exec sleep 1000\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    settings = AgentSettings(runtime=RuntimeConfig(command=str(command), grace_seconds=0.2))
    return HiveConfig(state_dir=tmp_path / "state", agents={"iris": settings, "ruth": settings}, manager="ruth")


async def pending(hive):
    return {row.name: row.pending_reminders for row in await hive.agent_status()}


async def until_pushed(rows, number):
    """Read on until the row of iris says so."""
    while (row := await rows.next_row()).name != "iris" or row.pending_reminders != number:
        pass


async def test_the_number_of_pending_reminders_is_the_true_one_and_its_change_is_pushed(config):
    """HOST-1, INB-3: also after a restart."""
    with trio.fail_after(20):
        async with open_hive(config) as hive:
            with hive.subscribe_agent_status() as rows:
                reminder = await hive.broker.mailbox("iris").remind("x", delay_seconds=1000)
                await hive.broker.mailbox("iris").remind("y", delay_seconds=1000)
                await until_pushed(rows, 2)
        async with open_hive(config) as hive:
            assert await pending(hive) == {"iris": 2, "ruth": 0}
            with hive.subscribe_agent_status() as rows:
                await hive.broker.mailbox("iris").cancel_reminder(reminder.id)
                await until_pushed(rows, 1)
            assert await pending(hive) == {"iris": 1, "ruth": 0}
