"""The loop guard: a runaway exchange ends in words, and whoever is concerned is told once (MSG-10)."""

import json

import apsw
import attrs
import pytest
import trio
import trio.testing

from hive_broker import LoopBudgets, MessageRefused, MessageSent, _guard, _store, open_broker
from hive_broker._migrate import migrate

HOUR = 3600
AGENTS = ("iris", "otto", "ruth")


class SetClock:
    """A wall clock that stands until somebody moves it."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def guarded(path, clock):
    """Opens a broker with these budgets; those that are not given are out of reach."""

    def opened(**budgets):
        everything = {field.name: 10_000 for field in attrs.fields(LoopBudgets)}
        return open_broker(path, owner="test", clock=clock, budgets=LoopBudgets(**{**everything, **budgets}))

    return opened


async def notices(broker, name):
    """What ``system`` told somebody of the guard, oldest first."""
    found = [message for message in await broker.inbox(name, limit=1000) if message.sender == "system"]
    return [json.loads(message.body) for message in found[::-1]]


async def send(broker, sender, to):
    return await broker.mailbox(sender).send(to=to, body="thank you")


async def send_until_refused(broker, *hops):
    """Let a message go round until one is refused; give how many were sent, and the refusal."""
    sent = 0
    while True:
        for sender, to in hops:
            try:
                await send(broker, sender, to)
            except MessageRefused as exc:
                return sent, str(exc)
            sent += 1


async def test_a_pair_is_stopped_whichever_of_them_writes(guarded):
    """MSG-10: A to B to A is one exchange, and others are not in it."""
    async with guarded(pair_messages_per_hour=6) as broker:
        await broker.set_agents(AGENTS)
        sent, refusal = await send_until_refused(broker, ("iris", "ruth"), ("ruth", "iris"))
        assert sent == 6
        assert refusal == (
            "iris and ruth sent each other 6 messages within an hour, and 6 is the most: the next one is possible in "
            "60 min, at 09:00 UTC. This one was not stored. If the exchange runs in circles, end it; else wait, and "
            "say more in one message. The operator has been told"
        )
        with pytest.raises(MessageRefused, match="sent each other 6 messages"):
            await send(broker, "ruth", "iris")
        await send(broker, "iris", "otto")
        assert len([message for message in await broker.history(limit=100) if message.sender != "system"]) == 7


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, 5])
async def test_a_longer_ring_is_stopped(guarded, length):
    """MSG-10, failure 21: each of its sides is a pair; a ring of many sides meets the hive's budget."""
    names = [f"a{number}" for number in range(length)]
    hops = [(names[i], names[(i + 1) % length]) for i in range(length)]
    async with guarded(pair_messages_per_hour=10) as broker:
        await broker.set_agents(names)
        sent, refusal = await send_until_refused(broker, *hops)
        assert sent == 10 * length
        assert "sent each other 10 messages" in refusal
    async with guarded(hive_messages_per_hour=10 * length + 12) as broker:
        sent, refusal = await send_until_refused(broker, *hops)
        assert sent == 12  # what the first life sent is remembered
        assert f"all agents of this hive together sent each other {10 * length + 12} messages" in refusal


async def test_one_that_writes_to_everybody_is_stopped_alone(guarded):
    """MSG-10: by its own budget, before the hive's is gone."""
    async with guarded(sender_messages_per_hour=4) as broker:
        await broker.set_agents(AGENTS)
        sent, refusal = await send_until_refused(broker, ("iris", "ruth"), ("iris", "otto"))
        assert (sent, "iris sent agents 4 messages" in refusal) == (4, True)
        await send(broker, "ruth", "iris")


@pytest.mark.slow
async def test_sender_and_operator_are_told_once_while_it_lasts(guarded, clock):
    """MSG-10: not once for each refused message; and the other of the pair when it is refused itself."""
    async with guarded(pair_messages_per_hour=5) as broker:
        await broker.set_agents(AGENTS)
        await send_until_refused(broker, ("iris", "ruth"))
        for _ in range(20):
            clock.now += 60
            with pytest.raises(MessageRefused):
                await send(broker, "iris", "ruth")
        stopped = {
            "event": "loop_guard",
            "stage": "stopped",
            "agent": "iris",
            "budget": "pair_messages_per_hour",
            "limit": 5,
            "sent": 5,
            "next_at": 1_800_003_600,
        }
        warning, told = await notices(broker, "iris")
        assert warning["stage"] == "warning"
        assert told | {"text": ""} == stopped | {"text": ""}
        assert told["text"].startswith("A message of yours was refused: iris and ruth sent each other 5 messages")
        (operators,) = await notices(broker, "operator")
        assert operators | {"text": ""} == stopped | {"text": ""}
        assert "raise pair_messages_per_hour" in operators["text"]
        assert await notices(broker, "ruth") == []
        with pytest.raises(MessageRefused):
            await send(broker, "ruth", "iris")
        assert [notice["stage"] for notice in await notices(broker, "ruth")] == ["stopped"]
        assert len(await notices(broker, "operator")) == 1


@pytest.mark.slow
async def test_a_steady_trickle_at_the_limit_is_told_of_once(guarded, clock):
    """MSG-10: room that comes back message by message begins no new period."""
    async with guarded(pair_messages_per_hour=12) as broker:
        await broker.set_agents(AGENTS)
        for _ in range(60):
            clock.now += 200
            try:
                await send(broker, "iris", "ruth")
            except MessageRefused:
                continue
        assert [notice["stage"] for notice in await notices(broker, "iris")] == ["warning", "stopped"]
        assert len(await notices(broker, "operator")) == 1


async def test_the_next_period_is_told_of_again(guarded, clock):
    """MSG-10: once the use has fallen below half, and the refusal's own figure says when sending goes on."""
    async with guarded(pair_messages_per_hour=5) as broker:
        await broker.set_agents(AGENTS)
        for period in (1, 2):
            assert (await send_until_refused(broker, ("iris", "ruth")))[0] == 5
            assert len(await notices(broker, "operator")) == period
            assert len(await notices(broker, "iris")) == 2 * period
            room_at = (await notices(broker, "operator"))[-1]["next_at"]
            clock.now = room_at - 1
            with pytest.raises(MessageRefused, match="possible in 1 min"):
                await send(broker, "iris", "ruth")
            clock.now = room_at


async def test_a_sender_is_warned_at_four_fifths(guarded):
    """MSG-10: once, by a message, while it still may send."""
    async with guarded(pair_messages_per_hour=10) as broker:
        await broker.set_agents(AGENTS)
        for _ in range(7):
            await send(broker, "iris", "ruth")
        assert await notices(broker, "iris") == []
        for _ in range(3):
            await send(broker, "iris", "ruth")
        (warning,) = await notices(broker, "iris")
        assert (warning["stage"], warning["sent"], warning["limit"]) == ("warning", 8, 10)
        assert "next_at" not in warning
        assert await notices(broker, "operator") == []


async def test_the_operator_stays_reachable_when_the_agents_budgets_are_gone(guarded):
    """MSG-2, MSG-10: what a runaway exchange used up is not the person's."""
    async with guarded(sender_messages_per_hour=1, hive_messages_per_hour=1, pair_messages_per_hour=3) as broker:
        await broker.set_agents(AGENTS)
        await send_until_refused(broker, ("iris", "ruth"))
        for _ in range(3):
            await send(broker, "iris", "operator")
        with pytest.raises(MessageRefused, match="iris sent the operator 3 messages"):
            await send(broker, "iris", "operator")
        await send(broker, "otto", "operator")


async def test_the_operator_and_the_hive_itself_have_no_budget(guarded):
    """MSG-10."""
    async with guarded(pair_messages_per_hour=1, sender_messages_per_hour=1, hive_messages_per_hour=1) as broker:
        await broker.set_agents(AGENTS)
        for _ in range(5):
            await send(broker, "operator", "iris")
            await broker.deliver("system", "iris", "x")
            await broker.deliver("ci", "iris", "x")
        await send(broker, "iris", "ruth")


async def test_messages_to_oneself_are_an_exchange_too(guarded):
    """MSG-10: the shortest ring."""
    async with guarded(pair_messages_per_hour=3) as broker:
        await broker.set_agents(AGENTS)
        sent, refusal = await send_until_refused(broker, ("iris", "iris"))
        assert (sent, "iris sent itself 3 messages" in refusal) == (3, True)


async def test_what_is_not_stored_is_not_counted(guarded):
    """MSG-3, MSG-9: neither refused sends nor repeated ones use a budget up, and those are answered beyond it."""
    async with guarded(pair_messages_per_hour=2) as broker:
        await broker.set_agents(AGENTS)
        iris = broker.mailbox("iris")
        turn = await iris.open_turn(cause="mail")
        for _ in range(5):
            first = await iris.send(to="ruth", body="x", turn_id=turn.id)
            with pytest.raises(MessageRefused):
                await iris.send(to="ruht", body="x")
            with pytest.raises(MessageRefused):
                await iris.send(to="ruth", body="y", in_reply_to=99)
        await iris.send(to="ruth", body="z")
        with pytest.raises(MessageRefused, match="2 is the most"):
            await iris.send(to="ruth", body="more")
        again = await iris.send(to="ruth", body="x", turn_id=turn.id)
        assert again.duplicate
        assert again.id == first.id


async def test_notices_are_seen_and_wake_like_any_message(guarded):
    """MSG-10, TURN-2: in the transaction of the refused send, and in the flow."""
    async with guarded(pair_messages_per_hour=2) as broker:
        await broker.set_agents(AGENTS)
        operator = broker.mailbox("operator")
        await send(broker, "iris", "ruth")
        with trio.fail_after(5), broker.watch() as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(operator.wait_unread)
                await trio.testing.wait_all_tasks_blocked()
                await send_until_refused(broker, ("iris", "ruth"))
            seen = [await events.receive() for _ in range(4)]
        assert [(type(event), event.message.sender, event.message.recipient) for event in seen] == [
            (MessageSent, "iris", "ruth"),
            (MessageSent, "system", "iris"),
            (MessageSent, "system", "iris"),
            (MessageSent, "system", "operator"),
        ]


async def test_a_clock_set_back_stops_nobody_for_hours(guarded, clock):
    """REL-3: what was counted at an hour that was wrong is forgotten."""
    async with guarded(pair_messages_per_hour=2) as broker:
        await broker.set_agents(AGENTS)
        clock.now += 24 * HOUR
        await send_until_refused(broker, ("iris", "ruth"))
        clock.now -= 24 * HOUR
        assert (await send_until_refused(broker, ("iris", "ruth")))[0] == 2


async def test_a_budget_that_was_lowered_counts_what_was_sent_before(guarded, clock):
    """MSG-10: also across a restart, and room comes when enough of it is an hour old."""
    async with guarded() as broker:
        await broker.set_agents(AGENTS)
        for _ in range(6):
            await send(broker, "iris", "ruth")
            clock.now += 600
    async with guarded(pair_messages_per_hour=3) as broker:
        with pytest.raises(MessageRefused, match="sent each other 5 messages within an hour, and 3 is the most"):
            await send(broker, "iris", "ruth")
        clock.now = (await notices(broker, "iris"))[-1]["next_at"]
        await send(broker, "iris", "ruth")


async def test_a_broker_without_budgets_lets_everybody_write(broker):
    """EMBED-1: who opens a broker alone decides."""
    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(send, broker, "iris", "ruth")
    assert await notices(broker, "iris") == []


def test_a_budget_lets_one_message_through_at_least():
    """MSG-10: a hive in which nobody can write is a slip."""
    for field in attrs.fields(LoopBudgets):
        with pytest.raises(ValueError, match=field.name):
            LoopBudgets(**{field.name: 0})


# --- what it costs


@pytest.fixture
def db(tmp_path):
    connection = apsw.Connection(str(tmp_path / "store.sqlite"))
    connection.pragma("synchronous", "OFF")
    migrate(connection)
    _store.set_agents(connection, AGENTS)
    yield connection
    connection.close()


def guarded_sends(db):
    """One that is counted, one that warns, one that is refused."""
    budgets = LoopBudgets(pair_messages_per_hour=2)
    for sender, to in (("iris", "ruth"), ("ruth", "iris"), ("iris", "ruth")):
        _guard.admit(db, budgets=budgets, now=7200.0, sender=sender, to=to)


def test_every_query_of_the_guard_uses_an_index(db):
    """MSG-10: the plan of each statement that a guarded send runs."""
    seen = {}

    def note(cursor, sql, _bindings):
        seen[sql] = cursor.bindings_count
        return True

    db.exec_trace = note
    guarded_sends(db)
    db.exec_trace = None
    plans = [
        (sql, detail)
        for sql, bindings in seen.items()
        for *_, detail in db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * bindings).fetchall()
    ]
    assert len(seen) == 6
    assert [plan for plan in plans if plan[1].startswith("SCAN")] == []
    assert sum("SEARCH loop_guard_use" in detail for _, detail in plans) == 3


@pytest.mark.slow
def test_a_guarded_send_costs_the_same_after_a_million_messages(db):
    """MSG-10: by SQLite's own instructions, the same on every machine."""

    def steps():
        counted = [0]

        def count():
            counted[0] += 1
            return False

        db.execute("SAVEPOINT try")
        db.set_progress_handler(count, 1)
        guarded_sends(db)
        db.set_progress_handler(None)
        db.execute("ROLLBACK TO try; RELEASE try")
        return counted[0]

    before = steps()
    db.execute(
        """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
           INSERT INTO messages (sender, from_mailbox, recipient, body, thread_id, sent_at, acked_at, attempts)
           SELECT 'iris', 1, 'ruth', 'x', i, 7000, 7100, 1 FROM n"""
    ).fetchall()
    assert steps() == before
    db.execute(
        """WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 59999)
           INSERT INTO loop_guard_use (scope, minute, sends)
           SELECT 'pair a' || (i / 60) || ' b', 61 + i % 60, 9 FROM n"""
    ).fetchall()
    assert steps() <= before + 50
