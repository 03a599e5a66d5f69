"""A process to be killed: works on the broker as fast as it can, and says what has been acknowledged.

One line of JSON for each answer, written after the answer: ``sent``, ``popped``, ``closed`` (with what was acked).
"""

import json
import os
import sys

import trio

import hive_broker


def say(**facts):
    """Write one whole line in one call: a kill leaves all of it or nothing."""
    os.write(1, json.dumps(facts).encode() + b"\n")


async def send_for_ever(broker, name):
    """Send to the agent that reads."""
    mailbox = broker.mailbox(name)
    n = 0
    while True:
        n += 1
        body = f"{name} {os.getpid()} {n}"
        sent = await mailbox.send(to="ruth", body=body)
        say(sent=sent.id, body=body)


async def work_for_ever(broker):
    """Turns that pop, and end well or not."""
    ruth = broker.mailbox("ruth")
    n = 0
    while True:
        await ruth.wait_unread()
        turn = await ruth.open_turn(cause="mail")
        received = await ruth.recv(limit=3, turn_id=turn.id)
        say(popped=[delivery.message.id for delivery in received.deliveries])
        n += 1
        closed = await ruth.close_turn(turn.id, acked=n % 4 != 0, record={"n": n})
        say(acked=closed.acked, turn=turn.id)


async def main(path):
    """Run until killed."""
    async with hive_broker.open_broker(path, owner="to be killed", max_deliveries=1_000_000) as broker:
        await broker.set_agents(["iris", "otto", "ruth"])
        async with trio.open_nursery() as nursery:
            for name in ("iris", "otto", "operator"):
                nursery.start_soon(send_for_ever, broker, name)
            nursery.start_soon(work_for_ever, broker)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
