"""Killed at any instant: nothing that was acknowledged is lost, nothing comes back that was handled."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from hive_broker import open_broker

ROUNDS = 20
CHILD = str(Path(__file__).with_name("kill_child.py"))


async def run_and_kill(path, lines_before_the_kill):
    """Start the child on the database, kill it after so many answers, and return all that it said."""
    with trio.fail_after(20):
        process = await trio.lowlevel.open_process([sys.executable, CHILD, str(path)], stdout=subprocess.PIPE)
        said = bytearray()
        try:
            while said.count(b"\n") < lines_before_the_kill:
                chunk = await process.stdout.receive_some()
                assert chunk, "the child ended by itself"
                said += chunk
        finally:
            process.send_signal(signal.SIGKILL)
        async for chunk in process.stdout:
            said += chunk
        await process.wait()
        await process.stdout.aclose()
    return [json.loads(line) for line in said.decode().splitlines()]


@pytest.mark.slow
async def test_killed_at_random_instants_the_broker_keeps_every_promise(path):
    """REL-1, REL-5, MSG-1, MSG-5."""
    instants = random.Random(20_260)  # noqa: S311 -- the same instants at every run, as far as answers go
    sent, acked, turns = {}, set(), set()
    for _ in range(ROUNDS):
        for said in await run_and_kill(path, instants.randint(1, 150)):
            if "sent" in said:
                assert said["sent"] not in sent, "an id was given out twice"
                sent[said["sent"]] = said["body"]
            elif "turn" in said:
                assert said["turn"] not in turns, "a turn's id was given out twice"
                turns.add(said["turn"])
                assert not acked & set(said["acked"])
                acked |= set(said["acked"])
            else:
                assert not acked & set(said["popped"]), "a handled message came back"
    async with open_broker(path, owner="test", max_deliveries=1_000_000) as broker:
        stored = await all_messages(broker)
        assert {id_: stored[id_].body for id_ in sent} == sent
        assert len({message.body for message in stored.values()}) == len(stored)
        assert all(stored[id_].acked_at is not None for id_ in acked)
        unhandled = {id_ for id_, message in stored.items() if message.acked_at is None}
        counts = (await broker.counts())["ruth"]
        assert (counts.unread, counts.in_flight, counts.dead) == (len(unhandled), 0, 0)
        assert await broker._engine.look(lambda db: db.pragma("integrity_check")) == "ok"
    assert len(sent) > ROUNDS
    assert acked


async def all_messages(broker):
    """Everything that is stored, by id."""
    found, before_id = {}, None
    while page := await broker.history(limit=1000, before_id=before_id):
        found |= {message.id: message for message in page}
        before_id = page[-1].id
    return found
