"""Killed while things fire: each fired once, or is pending still."""

import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio

from hive_broker import _queries, _reminders, _schedules

ROUNDS = 8
CHILD = str(Path(__file__).with_name("due_child.py"))


async def run_and_kill(path, begins_at, lines_before_the_kill):
    """Start the child at that hour, kill it after so many answers, and return the ids of what it was told is kept."""
    with trio.fail_after(30):
        process = await trio.lowlevel.open_process(
            [sys.executable, CHILD, str(path), str(begins_at)], stdout=subprocess.PIPE
        )
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
    return [json.loads(line)["reminded"] for line in said.decode().splitlines()]


@pytest.mark.slow
async def test_killed_at_random_instants_everything_due_fires_once(path):
    """INB-3, SCHED-1, REL-1: a reminder is a message or pending, never both and never neither."""
    instants = random.Random(7)  # noqa: S311 -- the same instants at every run, as far as answers go
    reminded = set()
    for number in range(ROUNDS):
        said = await run_and_kill(path, 1e9 + number * 1e6, instants.randint(20, 200))
        assert not reminded & set(said), "an id was given out twice"
        reminded |= set(said)
    db = apsw.Connection(str(path))
    pending = {r.id for name in ("iris", "otto") for r in _reminders.pending_reminders(db, name)}
    messages = [message for name in ("iris", "otto") for message in all_messages(db, name)]
    fired = [int(re.search(r"reminder #(\d+)", m.body)[1]) for m in messages if m.sender == "reminder"]
    assert len(fired) == len(set(fired)), "a reminder fired twice"
    assert not set(fired) & pending
    assert reminded <= set(fired) | pending
    assert fired
    (schedule,) = _schedules.list_schedules(db, about=None, limit=10)
    for target in schedule.targets:
        ticks = [m for m in messages if (m.sender, m.recipient) == ("schedule", target.agent)]
        passed = round((target.next_fire_at - schedule.timetable.first_fire_at) / 60)
        assert len(ticks) + target.skipped == passed, "an instant was fired twice, or is not accounted for"
        assert ticks
    db.close()


def all_messages(db, name):
    """Everything to one name."""
    found, before_id = [], None
    while page := _queries.inbox(db, name, limit=1000, before_id=before_id, unread_only=False):
        found += page
        before_id = page[-1].id
    return found
