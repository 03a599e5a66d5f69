"""Strangers at an agent's door who send what they like: they cost their own connections and nothing else (REL-4)."""

import json
import os
import random
import re
import secrets
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from children import open_crew

import hive_broker

SEED = os.environ.get("HIVE_TORTURE_SEED") or secrets.token_hex(4)

STRANGERS = 8
LINES_EACH = 150

ENDLESS_BYTES = 256 * 2**20

GROWTH_LIMIT_BYTES = 96 * 2**20
"""Each connection may hold a line of 1 MiB, what was made of it, and an answer; what is sent is far more than that."""

pytestmark = pytest.mark.slow


def a_line(dice):
    """Something that a careless or a hostile program might write."""
    deep = dice.randint(1, 400_000)
    call = {"version": 1, "id": dice.randint(-1, 9), "method": dice.choice(["send", "recv", "attach", "close_turn", 7])}
    cases = [
        dice.randbytes(dice.randint(0, 2000)),
        dice.randbytes(dice.randint(0, 3 << 20)).replace(b"\n", b" "),
        b"[" * deep + b"]" * deep,
        b'{"a":' * deep + b"1" + b"}" * deep,
        b'{"cmd":"wake","from":"\xff\xfe","body":"x"}',
        json.dumps({"cmd": "wake", "from": "x" * dice.randint(0, 90), "body": "y" * dice.randint(0, 300_000)}).encode(),
        json.dumps({"cmd": dice.choice(["wake", "stop", None, []]), "from": ["ci"], "body": {"a": 1}}).encode(),
        json.dumps({**call, "params": {"limit": dice.choice([0, 10**30, -1, True, "5", 2.5])}}).encode(),
        json.dumps({**call, "params": dice.choice([[], None, "x", {"to": 1}, {"": {}}])}).encode(),
        b'{"version":1,"id":1,"method":"send","params":{"to":"ruth","body":"\\ud83d"}}',
        b"9" * 5000,
        b'{"version":1e999,"id":NaN}',
    ]
    return dice.choice(cases) + dice.choice([b"\n", b"\n", b"\n", b"", b"\r\n"])


async def be_strange(socket, dice):
    """Write lines, read little, and come back when thrown out."""
    left = LINES_EACH
    while left > 0:
        with suppress(OSError, trio.BrokenResourceError):
            async with await trio.open_unix_socket(socket) as stream:
                for _ in range(dice.randint(1, 20)):
                    left -= 1
                    with trio.move_on_after(0.2):
                        await stream.send_all(a_line(dice))
                    with trio.move_on_after(0.005):
                        await stream.receive_some(1000)
        left -= 1


def most_memory_of(pid):
    """What a process had resident at its worst moment, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


async def never_end(socket):
    """Write one line that has no end."""
    with suppress(OSError, trio.BrokenResourceError):
        async with await trio.open_unix_socket(socket) as stream:
            for _ in range(ENDLESS_BYTES >> 20):
                await stream.send_all(bytes(1 << 20))


async def test_a_door_that_is_pelted_serves_its_agent_and_does_not_grow(path, socket_folder):
    """REL-4, MSG-1: every call of the agent is answered meanwhile, and what it sent is there."""
    print(f"HIVE_TORTURE_SEED={SEED}")
    socket = str(socket_folder / "ruth")
    with trio.fail_after(120):
        async with open_crew() as crew:
            server = await crew.start("server", path, socket_folder)
            await crew.wait_lines(2)
            async with hive_broker.open_mailbox_client(socket, name="ruth", runs_turns=True) as ruth:
                before = most_memory_of(server.process.pid)
                sent = []
                async with trio.open_nursery() as service:

                    async def work():
                        while True:
                            sent.append((await ruth.send(to="otto", body=f"{len(sent)}")).id)

                    async with trio.open_nursery() as strangers:
                        service.start_soon(work)
                        strangers.start_soon(never_end, socket)
                        for number in range(STRANGERS):
                            dice = random.Random(f"{SEED} {number}")  # noqa: S311 -- dice
                            strangers.start_soon(be_strange, socket, dice)
                    service.cancel_scope.cancel()
                grown = most_memory_of(server.process.pid) - before
                print(f"{len(sent)} messages sent meanwhile, {grown >> 20} MiB more at the worst moment")
                assert grown < GROWTH_LIMIT_BYTES
                turn = await ruth.open_turn(cause="mail")
                await ruth.close_turn(turn.id, acked=True, record={})
            await server.kill()
    async with hive_broker.open_broker(path, owner="test") as broker:
        found = [message.id for message in await broker.inbox("otto", limit=1000) if message.sender == "ruth"]
        assert set(sent[-1000:]) - set(found) == set()
    assert sent
