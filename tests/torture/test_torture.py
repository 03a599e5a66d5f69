"""Killed at any instant, with all that a broker does going on at once: every promise holds (REL-1).

``HIVE_TORTURE_KILLS`` sets the number of kills, ``HIVE_TORTURE_SEED`` repeats a run as far as the machine does.
"""

import os
import random
import secrets
from collections import Counter

import pytest
import trio
from children import open_crew
from hammer import AGENTS, open_broker
from ledger import Ledger, calls_of

KILLS = int(os.environ.get("HIVE_TORTURE_KILLS", "30"))
SEED = os.environ.get("HIVE_TORTURE_SEED") or secrets.token_hex(4)

SECONDS_PER_KILL = 10
"""Far above what one takes: a bound for a run that hangs."""

pytestmark = pytest.mark.slow


async def a_moment(dice):
    """Kill between two answers too, and not only right after one."""
    await trio.sleep(dice.random() * 0.01)


async def rows_of(broker, table):
    """All rows of a table by id, as dictionaries."""

    def read(db):
        names = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        found = db.execute(f"SELECT * FROM {table}")  # noqa: S608 -- a table's name of ours
        return {row[names.index("id")]: dict(zip(names, row, strict=True)) for row in found}

    return await broker._engine.look(read)


async def all_unread(broker, name):
    """Everything in one inbox that can be popped, popped."""
    popped = []

    async def drain():
        while received := (await broker.mailbox(name).recv(limit=5)).deliveries:
            popped.extend(delivery.message.id for delivery in received)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(drain)
    return popped


async def check_promises(database, crew, deaths):
    """Open what is left, and hold it against what was said."""
    async with open_broker(database) as broker:
        await broker.end_held_turns()
        assert await broker._engine.look(lambda db: db.pragma("integrity_check")) == "ok"
        assert await broker._engine.look(lambda db: db.execute("PRAGMA foreign_key_check").fetchall()) == []
        rows = await rows_of(broker, "messages")
        calls = [call for child in crew.ever for call in calls_of(child.lines)]
        Ledger(calls, deaths, rows, await rows_of(broker, "turns")).check()
        counts = await broker.counts()
        assert {name: figures.in_flight for name, figures in counts.items()} == dict.fromkeys(counts, 0)
    async with open_broker(database, lease_seconds=600) as broker:
        for name in (*AGENTS, "operator"):
            waiting = {
                id_
                for id_, row in rows.items()
                if (row["recipient"], row["acked_at"], row["dead_at"]) == (name, None, None)
            }
            popped = await all_unread(broker, name)
            assert len(popped) == len(set(popped))
            assert set(popped) == waiting, "unhandled rows must come again, and nothing else"
    return calls, rows


def say_what_was_done(calls, rows, deaths):
    """So that a run that proves nothing is seen to prove nothing."""
    fates = Counter(call.fate for call in calls)
    dead = sum(row["dead_at"] is not None for row in rows.values())
    acked = sum(row["acked_at"] is not None for row in rows.values())
    print(
        f"seed {SEED}: {len(deaths)} broker deaths, calls {dict(fates)}; "
        f"{len(rows)} rows, {acked} acked, {dead} dead; {max(rows) - len(rows)} ids skipped"
    )
    assert fates["answered"] > fates["open"]
    assert acked


async def test_a_broker_killed_at_random_instants_keeps_every_promise(path):
    """REL-1, REL-5, MSG-1, MSG-5, MSG-6, MSG-7, MSG-9, WAKE-2: in one process with its callers."""
    print(f"HIVE_TORTURE_SEED={SEED}")
    dice = random.Random(f"{SEED} inside")  # noqa: S311 -- dice
    deaths = []
    kills = max(1, KILLS // 3)
    with trio.fail_after(60 + SECONDS_PER_KILL * kills):
        async with open_crew() as crew:
            for number in range(kills):
                child = await crew.start("inside", path, f"{SEED} {number}")
                await crew.wait_lines(1 if number % 10 == 1 else dice.randint(1, 1500), of=child)
                await a_moment(dice)
                deaths.append(await child.kill())
        calls, rows = await check_promises(path, crew, deaths)
    say_what_was_done(calls, rows, deaths)


async def test_clients_and_the_broker_behind_their_sockets_can_be_killed_at_random(path, socket_folder):
    """REL-1, SURF-4, TURN-4: whoever is left comes back by itself and goes on."""
    print(f"HIVE_TORTURE_SEED={SEED}")
    dice = random.Random(f"{SEED} sockets")  # noqa: S311 -- dice
    deaths = []
    kills = max(1, KILLS - KILLS // 3)
    with trio.fail_after(60 + SECONDS_PER_KILL * kills):
        async with open_crew() as crew:

            async def start(role, number):
                if role == "server":
                    return await crew.start("server", path, socket_folder)
                return await crew.start("client", socket_folder / role, role, f"{SEED} {number}")

            living = {role: await start(role, 0) for role in ("server", *AGENTS)}
            for number in range(1, kills + 1):
                await crew.wait_lines(dice.randint(1, 1500))
                await a_moment(dice)
                role = dice.choice(["server", *AGENTS]) if number % 2 else "server"
                death = await living[role].kill()
                if role == "server":
                    deaths.append(death)
                living[role] = await start(role, number)
            await crew.wait_lines(1000)
            for name in AGENTS:
                await living[name].kill()
            deaths.append(await living["server"].kill())
        calls, rows = await check_promises(path, crew, deaths)
    say_what_was_done(calls, rows, deaths)
