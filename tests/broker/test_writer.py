"""Group commit: one transaction for all that waits, one answer for each, and nothing half done."""

import threading
from contextlib import contextmanager

import apsw
import pytest
import trio
import trio.testing

import hive_broker
from hive_broker import _writer
from hive_broker._flow import Done


@contextmanager
def held_database(broker, nursery):
    """Keep the database's thread inside a transaction for the block, so that what is sent meanwhile queues up."""
    entered, leave = threading.Event(), threading.Event()

    def hold(db):
        entered.set()
        assert leave.wait(5)
        return Done(None)

    nursery.start_soon(broker._engine.change, hold)
    try:
        yield entered
    finally:
        leave.set()


async def until_held(entered):
    assert await trio.to_thread.run_sync(entered.wait, 5)


async def test_all_that_waits_goes_into_one_commit(broker):
    """MSG-1: throughput grows with the number of callers."""
    iris = broker.mailbox("iris")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with held_database(broker, nursery) as entered:
                await until_held(entered)
                for n in range(100):
                    nursery.start_soon(lambda n=n: iris.send(to="ruth", body=f"{n}"))
                await trio.testing.wait_all_tasks_blocked()
                commits = []
                database = broker._engine._database
                noted = database.note_ids
                database.note_ids = lambda db: (commits.append(1), noted(db))
    assert len(commits) == 1
    assert (await broker.mailbox("ruth").summary()).unread == 100


async def test_one_refusal_in_a_batch_is_the_refused_callers_alone(broker):
    """MSG-3: each change has a savepoint of its own."""
    outcomes = {}

    async def send(key, **message):
        try:
            outcomes[key] = await broker.mailbox("iris").send(**message)
        except hive_broker.MessageRefused as exc:
            outcomes[key] = exc

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with held_database(broker, nursery) as entered:
                await until_held(entered)
                nursery.start_soon(lambda: send("first", to="ruth", body="1"))
                nursery.start_soon(lambda: send("refused", to="nobody", body="2"))
                nursery.start_soon(lambda: send("last", to="ruth", body="3"))
                await trio.testing.wait_all_tasks_blocked()
    assert isinstance(outcomes["refused"], hive_broker.MessageRefused)
    stored = {message.id for message in await broker.history()}
    assert stored == {outcomes["first"].id, outcomes["last"].id}


async def test_a_change_that_breaks_halfway_leaves_nothing_of_itself(broker):
    """MSG-3: a bug of ours costs one caller, and no other one's rows."""

    def break_halfway(db):
        db.execute("UPDATE agents SET current = 0")
        raise ZeroDivisionError("ours")

    with pytest.raises(ZeroDivisionError):
        await broker._engine.change(break_halfway)
    await broker.mailbox("iris").send(to="ruth", body="still there")


async def test_a_call_cancelled_in_the_queue_is_withdrawn(broker):
    """EMBED-1: Cancelled means that nothing happened."""
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with held_database(broker, nursery) as entered:
                await until_held(entered)
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as inner:
                        inner.start_soon(lambda: broker.mailbox("iris").send(to="ruth", body="never"))
                        await trio.testing.wait_all_tasks_blocked()
                        scope.cancel()
    assert scope.cancelled_caught
    assert await broker.history() == ()


async def test_a_call_cancelled_in_its_transaction_gets_its_answer(broker):
    """EMBED-1: what has happened is said, cancelled or not."""
    answers = []
    entered, leave = threading.Event(), threading.Event()

    def slow(db):
        entered.set()
        assert leave.wait(5)
        return Done("done")

    async def call():
        answers.append(await broker._engine.change(slow))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await until_held(entered)
            nursery.cancel_scope.cancel()
            leave.set()
    assert answers == ["done"]


@pytest.fixture
def small_queue(monkeypatch):
    """A queue of four changes or a hundred bytes."""
    monkeypatch.setattr(_writer, "_QUEUE_JOBS", 4)
    monkeypatch.setattr(_writer, "_QUEUE_BYTES", 100)


@pytest.mark.parametrize(("size", "taken"), [(1, 4), (50, 2), (99, 1), (500, 1)])
async def test_a_full_queue_makes_callers_wait_and_then_serves_them_in_order(broker, small_queue, size, taken):
    """REL-4: bounded in number and in bytes; one that is larger than the bound alone still passes."""
    iris = broker.mailbox("iris")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with held_database(broker, nursery) as entered:
                await until_held(entered)
                for n in range(6):
                    nursery.start_soon(lambda n=n: iris.send(to="ruth", body=f"{n}" * size))
                    await trio.testing.wait_all_tasks_blocked()
                assert len(broker._engine._writer._queue) == taken
    assert [message.body[0] for message in await broker.history()] == list("543210")


async def test_a_caller_cancelled_before_a_full_queue_gives_its_place_up(broker, small_queue):
    """EMBED-1, REL-4."""
    iris = broker.mailbox("iris")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with held_database(broker, nursery) as entered:
                await until_held(entered)
                nursery.start_soon(lambda: iris.send(to="ruth", body="a" * 90))
                await trio.testing.wait_all_tasks_blocked()
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as inner:
                        inner.start_soon(lambda: iris.send(to="ruth", body="b" * 90))
                        await trio.testing.wait_all_tasks_blocked()
                        nursery.start_soon(lambda: iris.send(to="ruth", body="c" * 90))
                        await trio.testing.wait_all_tasks_blocked()
                        scope.cancel()
    assert [message.body[0] for message in await broker.history()] == ["c", "a"]


async def test_a_withdrawn_call_makes_room(broker, small_queue):
    """REL-4."""
    iris = broker.mailbox("iris")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with held_database(broker, nursery) as entered:
                await until_held(entered)
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as inner:
                        inner.start_soon(lambda: iris.send(to="ruth", body="a" * 90))
                        await trio.testing.wait_all_tasks_blocked()
                        nursery.start_soon(lambda: iris.send(to="ruth", body="b" * 90))
                        await trio.testing.wait_all_tasks_blocked()
                        scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                assert len(broker._engine._writer._queue) == 1
    assert [message.body[0] for message in await broker.history()] == ["b"]


async def test_a_commit_that_fails_fails_all_of_it_and_the_next_one_is_served(broker):
    """REL-3: nothing done, said in words, no restart needed."""
    outcomes = []

    def break_commit(db):
        db.execute("PRAGMA defer_foreign_keys = ON")
        db.execute("INSERT INTO turns (agent, cause, opened_at) VALUES ('iris', 'x', 0)")
        db.execute(
            "INSERT INTO messages (sender, from_mailbox, recipient, body, in_reply_to, thread_id, sent_at)"
            "VALUES ('iris', 1, 'ruth', 'x', 987654, 1, 0)"
        )
        return Done(None)

    async def call(work):
        with pytest.raises(hive_broker.BrokerUnavailable, match="could not be committed and was not made") as caught:
            await work()
        assert isinstance(caught.value.__cause__, apsw.ConstraintError)
        outcomes.append(caught.value)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with held_database(broker, nursery) as entered:
                await until_held(entered)
                nursery.start_soon(call, lambda: broker._engine.change(break_commit))
                nursery.start_soon(call, lambda: broker.mailbox("iris").send(to="ruth", body="x"))
                await trio.testing.wait_all_tasks_blocked()
    assert len({id(error) for error in outcomes}) == 2
    assert await broker.history() == ()
    turn = await broker.mailbox("iris").open_turn(cause="mail")
    assert turn.id == 1
    assert (await broker.mailbox("iris").send(to="ruth", body="x")).id == 1


async def test_a_full_disk_is_said_and_service_goes_on_when_there_is_room_again(broker):
    """REL-3: acknowledged rows stay, refused ones leave nothing, and reading works all the while."""
    database = broker._engine._database

    def limit_pages(extra):
        return lambda db: db.pragma("max_page_count", db.pragma("page_count") + extra)

    iris = broker.mailbox("iris")
    stored = []

    async def send_until_refused():
        while True:
            sent = await iris.send(to="ruth", body="x" * 20_000)
            stored.append(sent.id)

    await database.run(limit_pages(20))
    with pytest.raises(hive_broker.BrokerUnavailable, match="the disk is full: free some space"):
        await send_until_refused()
    assert stored
    assert [message.id for message in await broker.history()] == stored[::-1]
    await database.run(limit_pages(10_000))
    stored.append((await iris.send(to="ruth", body="x" * 20_000)).id)
    assert [message.id for message in await broker.history()] == stored[::-1]


async def test_a_stranger_who_holds_the_database_is_said_and_outlived(broker, path, monkeypatch):
    """REL-3: locked by somebody else, nothing done; free again, service goes on."""
    await broker._engine._database.run(lambda db: db.set_busy_timeout(1))
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    iris = broker.mailbox("iris")
    with pytest.raises(hive_broker.BrokerUnavailable, match="another program holds the database locked"):
        await iris.send(to="ruth", body="x")
    assert await broker.history() == ()
    stranger.execute("ROLLBACK")
    stranger.close()
    await iris.send(to="ruth", body="x")


async def test_ids_are_noted_before_anybody_sees_them(broker, path):
    """REL-5: an id that cannot be noted is not given out."""
    database = broker._engine._database

    class Unwritable:
        def note_ids(self, message_id, turn_id):
            raise OSError(5, "Input/output error")

    kept, database._ownership = database._ownership, Unwritable()
    with pytest.raises(hive_broker.BrokerUnavailable, match="Input/output error"):
        await broker.mailbox("iris").send(to="ruth", body="x")
    database._ownership = kept
    assert await broker.history() == ()
    assert (await broker.mailbox("iris").send(to="ruth", body="x")).id == 1
