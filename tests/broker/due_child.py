"""A process to be killed: fires reminders and a schedule as fast as it can, and says what it stored.

One line of JSON for each answer, written after the answer. Its wall clock begins at the given instant and runs a
thousand times as fast as ours.
"""

import json
import logging
import os
import sys
import time

import trio

import hive_broker
from hive_broker import _clock


def say(**facts):
    """Write one whole line in one call: a kill leaves all of it or nothing."""
    os.write(1, json.dumps(facts).encode() + b"\n")


async def remind_for_ever(broker, name):
    """Leave reminders that are due soon."""
    mailbox = broker.mailbox(name)
    while True:
        try:
            reminder = await mailbox.remind(f"{name} {os.getpid()}", delay_seconds=20)
        except hive_broker.RequestRefused:
            await trio.sleep(0.01)  # fifty are pending
        else:
            say(reminded=reminder.id)


async def main(path, begins_at):
    """Run until killed."""
    _clock._PACE_SECONDS = _clock._RECHECK_SECONDS = 0.001
    begun = time.time()

    logging.getLogger("hive_broker").setLevel(logging.ERROR)

    def fast_clock():
        return begins_at + (time.time() - begun) * 1000

    async with hive_broker.open_broker(path, owner="to be killed", clock=fast_clock) as broker:
        await broker.set_agents(["iris", "otto"])
        operator = broker.mailbox("operator")
        if not await operator.schedules():
            await operator.request_schedule(
                targets=["iris", "otto"], body="tick", first_fire_at=fast_clock() + 1, interval_seconds=60
            )
        async with trio.open_nursery() as nursery:
            for name in ("iris", "otto"):
                nursery.start_soon(remind_for_ever, broker, name)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], float(sys.argv[2]))
