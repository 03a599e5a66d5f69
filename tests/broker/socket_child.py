"""A client to be killed: sends and works over mailboxes' sockets as fast as it can, and says what was answered."""

import sys

import trio
from kill_child import say

from hive_broker import open_mailbox_client


async def send_for_ever(folder):
    async with open_mailbox_client(f"{folder}/iris.sock", name="iris", runs_turns=True) as iris:
        n = 0
        while True:
            n += 1
            body = f"{sys.argv[2]} {n}"
            sent = await iris.send(to="ruth", body=body)
            say(sent=sent.id, body=body)


async def work_for_ever(folder):
    async with open_mailbox_client(f"{folder}/ruth.sock", name="ruth", runs_turns=True) as ruth:
        while True:
            await ruth.wait_unread()
            turn = await ruth.open_turn(cause="mail")
            received = await ruth.recv(limit=3, turn_id=turn.id)
            say(popped=[delivery.message.id for delivery in received.deliveries])
            closed = await ruth.close_turn(turn.id, acked=True, record={})
            say(acked=closed.acked)


async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_for_ever, sys.argv[1])
        nursery.start_soon(work_for_ever, sys.argv[1])


if __name__ == "__main__":
    trio.run(main)
