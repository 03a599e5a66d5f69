"""A hive of two agents whose runtime only sleeps, as a process: ready when it says so, over when its input ends.

Called with the state folder. Nothing but the suite reads the agents' mail, though it wakes them as in any hive.
"""

import stat
import sys
from pathlib import Path

import trio

from hive import AgentSettings, HiveConfig, RuntimeConfig, open_hive


async def main(state: Path) -> None:
    command = state.with_name("sleeping-claude")
    command.write_text("#!/bin/sh\ncat >/dev/null; exec sleep 1000\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    settings = AgentSettings(runtime=RuntimeConfig(command=str(command), grace_seconds=0.1))
    config = HiveConfig(
        state_dir=state,
        agents=dict.fromkeys(("ruth", "iris"), settings),
        manager="ruth",
        pair_messages_per_hour=10_000,
        sender_messages_per_hour=10_000,
        hive_messages_per_hour=10_000,
    )
    async with open_hive(config):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
