"""The broker's speed, as ratios to bare SQLite and to itself, in interleaved rounds: a busy machine slows both sides.

Each part runs in a process of its own, so that memory and threads are that part's.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import psutil
import trio

from hive_broker import Broker, open_broker, open_mailbox_client, serve_mailbox

from .figures import ratio, say

ROUNDS = 15
ROUND_SECONDS = 0.2
SENDERS = 64
BODY = "x" * 200
BLOCK = 10_000
BLOCKS = 10
AGENTS = ("iris", "ruth")
WRITERS = tuple(f"writer-{number}" for number in range(SENDERS))


def run() -> None:
    """Measure and print."""
    _print_throughput(_measured("throughput"))
    _print_stored(_measured("stored"))
    for where in ("memory", "memory-socket"):
        memory = _measured(where)
        place = "over the socket" if where == "memory-socket" else "in process"
        ratio(
            f"memory after 100,000 messages over 10,000, {place}",
            memory["after_all"],
            memory["after_first"],
            goal="goal: 1",
        )


def _print_throughput(figures: dict[str, float]) -> None:
    say("bare SQLite, a commit each", figures["bare"], "/s")
    say(f"bare SQLite, {SENDERS} rows a commit", figures["bare batch"], "/s")
    for place in ("in process", "over the socket"):
        one, many = f"one, {place}", f"many, {place}"
        say(f"1 sender, {place}", figures[one], "/s")
        say(f"{SENDERS} senders, {place}", figures[many], "/s")
        say(f"1 sender over a bare commit each, {place}", figures[f"{one} / bare"], "x", goal="goal: 0.6")
        say(f"{SENDERS} senders over 1, {place}", figures[f"{many} / {one}"], "x", goal="goal: 5")
        say(f"{SENDERS} senders over bare batches, {place}", figures[f"{many} / bare batch"], "x", goal="goal: 0.5")


def _print_stored(figures: dict[str, float]) -> None:
    what = "recv and ack with 1,000,000 rows over 1,000"
    ratio(what, figures["with a million"], figures["with a thousand"], goal="goal: 1.2")
    say("opening 1,000,000 rows, 10,000 of them unacked", figures["opening"], "s", goal="goal: under 1 s")


def _measured(part: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.bench_broker", part, folder],
            stdout=subprocess.PIPE,
            check=True,
            cwd=Path(__file__).parents[2],
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


# --- throughput


class _Bare:
    """The cheapest loop that stores the same rows: one table, no queue, no rules."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "WAL")
        self._db.pragma("synchronous", "FULL")
        self._db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, recipient, body, sent_at)")

    async def store(self, rows: int) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            self._db.execute("INSERT INTO messages (recipient, body, sent_at) VALUES ('ruth', ?, ?)", (BODY, 1.0))
        self._db.execute("COMMIT")
        await trio.lowlevel.checkpoint()
        return rows


async def _throughput(folder: Path) -> dict[str, float]:
    bare = _Bare(folder / "bare.sqlite")
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        broker = await stack.enter_async_context(open_broker(folder / "broker.sqlite", owner="bench"))
        await broker.set_agents(["ruth", *WRITERS])
        inside = [broker.mailbox(name) for name in WRITERS]
        outside = []
        for name, mailbox in zip(WRITERS, inside, strict=True):
            await nursery.start(partial(serve_mailbox, folder / name, mailbox, runs_turns=True))
            outside.append(await stack.enter_async_context(open_mailbox_client(folder / name, name=name)))
        sides: dict[str, Callable[[], Awaitable[float]]] = {
            "bare": partial(_rate, [partial(bare.store, 1)]),
            "bare batch": partial(_rate, [partial(bare.store, SENDERS)]),
        }
        for place, mailboxes in (("in process", inside), ("over the socket", outside)):
            sends = [partial(_send, mailbox) for mailbox in mailboxes]
            sides |= {f"one, {place}": partial(_rate, sends[:1]), f"many, {place}": partial(_rate, sends)}
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, measure in sides.items():
                rates[name].append(await measure())
    return {name: statistics.median(found) for name, found in (rates | _quotients(rates)).items()}


def _quotients(rates: dict[str, list[float]]) -> dict[str, list[float]]:
    """Of each side to each other one, round by round: a busy moment is one for both."""
    return {
        f"{one} / {other}": [a / b for a, b in zip(rates[one], rates[other], strict=True)]
        for one in rates
        for other in rates
    }


async def _send(mailbox: Any) -> int:
    await mailbox.send(to="ruth", body=BODY)
    return 1


async def _rate(works: Sequence[Callable[[], Awaitable[int]]]) -> float:
    """Rows a second of all of these at once."""
    done = 0

    async def repeat(work: Callable[[], Awaitable[int]], until: float) -> None:
        nonlocal done
        while time.perf_counter() < until:
            rows = await work()
            done += rows

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for work in works:
            nursery.start_soon(repeat, work, began + ROUND_SECONDS)
    return done / (time.perf_counter() - began)


# --- with many rows


async def _stored(folder: Path) -> dict[str, float]:
    figures = {}
    paths = {1000: folder / "thousand" / "broker.sqlite", 1_000_000: folder / "million" / "broker.sqlite"}
    for rows, path in paths.items():
        await _fill(path, rows)
    openings = []
    for _ in range(3):
        began = time.perf_counter()
        async with open_broker(paths[1_000_000], owner="bench") as broker:
            openings.append(time.perf_counter() - began)
            for name in AGENTS:
                await broker.mailbox(name).summary()
    figures["opening"] = statistics.median(openings)
    async with open_broker(paths[1000], owner="few") as few, open_broker(paths[1_000_000], owner="many") as many:
        times: dict[str, list[float]] = {"with a thousand": [], "with a million": []}
        for _ in range(40):
            for name, broker in (("with a thousand", few), ("with a million", many)):
                times[name].append(await _receive_and_ack(broker))
    return figures | {name: statistics.median(found) for name, found in times.items()}


async def _receive_and_ack(broker: Broker) -> float:
    ruth = broker.mailbox("ruth")
    sent = await broker.mailbox("iris").send(to="ruth", body=BODY)
    began = time.perf_counter()
    for _ in range(5):
        (delivery,) = (await ruth.recv()).deliveries
        await ruth.ack_until(delivery.message.id)
        sent = await broker.mailbox("iris").send(to="ruth", body=BODY)
    took = time.perf_counter() - began
    await ruth.ack_until(sent.id)
    return took


async def _fill(path: Path, rows: int) -> None:
    """Handled rows, and one in a hundred, to iris, that nobody has taken."""
    async with open_broker(path, owner="bench") as broker:
        await broker.set_agents(AGENTS)
    db = apsw.Connection(str(path))
    db.pragma("synchronous", "OFF")
    db.execute(
        """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
           INSERT INTO messages (sender, from_mailbox, recipient, body, thread_id, sent_at, attempts, acked_at)
           SELECT 'iris', 1, iif(i % 100, 'ruth', 'iris'), ?, i, unixepoch(), 1, iif(i % 100, unixepoch(), NULL)
           FROM n""",
        (rows, BODY),
    ).fetchall()
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.close()


# --- memory


async def _memory(folder: Path, *, over_socket: bool) -> dict[str, float]:
    """Messages that are sent, taken and acked, in step."""
    process = psutil.Process()
    figures = {}
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        broker = await stack.enter_async_context(open_broker(folder / "broker.sqlite", owner="bench"))
        await broker.set_agents(AGENTS)
        iris: Any = broker.mailbox("iris")
        if over_socket:
            await nursery.start(partial(serve_mailbox, folder / "iris", iris, runs_turns=True))
            iris = await stack.enter_async_context(open_mailbox_client(folder / "iris", name="iris"))
        ruth = broker.mailbox("ruth")

        async def exchange() -> None:
            for _ in range(BLOCK // SENDERS):
                await iris.send(to="ruth", body=BODY)
                await ruth.recv()

        for block in range(1, BLOCKS + 1):
            async with trio.open_nursery() as workers:
                for _ in range(SENDERS):
                    workers.start_soon(exchange)
            await ruth.ack_until(2**62)
            gc.collect()
            figures["after_first" if block == 1 else "after_all"] = process.memory_info().rss / 2**20
    return figures


PARTS: dict[str, Callable[[Path], Awaitable[dict[str, float]]]] = {
    "throughput": _throughput,
    "stored": _stored,
    "memory": partial(_memory, over_socket=False),
    "memory-socket": partial(_memory, over_socket=True),
}

if __name__ == "__main__":
    print(json.dumps(trio.run(PARTS[sys.argv[1]], Path(sys.argv[2]))))
