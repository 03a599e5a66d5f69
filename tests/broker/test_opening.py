"""Opening and closing: what is made, what is refused, and in which state things are left."""

import contextlib
import os
import re
import shutil
import stat
import threading
from importlib.resources import files

import apsw
import pytest
import trio
import trio.testing

import hive_broker
from hive_broker import BrokerClosed, BrokerDamaged, BrokerUnavailable, SchemaTooNew, open_broker
from hive_broker._flow import Done


def broker_threads():
    """Threads of databases that are open; one that is told to end is given the time to."""
    threads = [thread for thread in threading.enumerate() if "apsw" in thread.name]
    for thread in threads:
        thread.join(5)
    return [thread for thread in threads if thread.is_alive()]


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_new_database_and_its_folder_are_for_their_owner_only(path):
    """SEC-1: the log and the index of the database too."""
    previous = os.umask(0)
    try:
        async with open_broker(path, owner="test") as broker:
            await broker.set_agents(["iris"])
            assert mode_of(path.parent) == 0o700
            assert {file.name: mode_of(file) for file in path.parent.iterdir()} == {
                "broker.sqlite": 0o600,
                "broker.sqlite-wal": 0o600,
                "broker.sqlite-shm": 0o600,
                "broker.sqlite.owner": 0o600,
            }
    finally:
        os.umask(previous)


async def test_a_database_that_others_may_read_is_closed_to_them(path):
    """SEC-1: a restored copy has the mode of whoever copied it."""
    async with open_broker(path, owner="test"):
        pass
    path.chmod(0o644)
    async with open_broker(path, owner="test"):
        assert mode_of(path) == 0o600


async def test_what_was_stored_is_there_after_a_clean_stop_in_one_file(path):
    """MSG-1, STOP-3: the log is folded in."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris", "ruth"])
        await broker.mailbox("iris").send(to="ruth", body="x")
    assert sorted(file.name for file in path.parent.iterdir()) == ["broker.sqlite", "broker.sqlite.owner"]
    async with open_broker(path, owner="test") as broker:
        assert [message.body for message in await broker.inbox("ruth")] == ["x"]
        await broker.mailbox("iris").send(to="ruth", body="agents are kept too")


async def test_rows_and_turns_of_an_earlier_life_come_back_marked(path):
    """REL-1, MSG-5: what a turn held, and what a timed lease held."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris", "ruth", "otto"])
        await broker.mailbox("iris").send(to="ruth", body="in a turn")
        await broker.mailbox("iris").send(to="otto", body="under a lease")
        turn = await broker.mailbox("ruth").open_turn(cause="mail")
        await broker.mailbox("ruth").recv(turn_id=turn.id)
        await broker.mailbox("otto").recv()
    async with open_broker(path, owner="test") as broker:
        for name in ("ruth", "otto"):
            with trio.fail_after(5):
                await broker.mailbox(name).wait_unread()
            (delivery,) = (await broker.mailbox(name).recv()).deliveries
            assert (delivery.attempt, delivery.redelivered) == (2, True)
        later = await broker.mailbox("ruth").open_turn(cause="mail")
        assert later.id > turn.id
        outcomes = await broker._engine.look(lambda db: db.execute("SELECT outcome FROM turns ORDER BY id").fetchall())
        assert outcomes == [("lost",), (None,)]


async def test_a_row_that_outlived_its_deliveries_is_dead_after_the_next_start(path):
    """MSG-6, REL-1: a message that kills the process every time does not do it for ever; its sender is told once."""
    async with open_broker(path, owner="test", max_deliveries=2) as broker:
        await broker.set_agents(["iris", "ruth"])
        await broker.mailbox("iris").send(to="ruth", body="deadly")
    for _ in range(2):
        async with open_broker(path, owner="test", max_deliveries=2) as broker:
            turn = await broker.mailbox("ruth").open_turn(cause="mail")
            assert len((await broker.mailbox("ruth").recv(turn_id=turn.id)).deliveries) == 1
    for _ in range(2):
        async with open_broker(path, owner="test", max_deliveries=2) as broker:
            assert (await broker.counts())["ruth"] == hive_broker.InboxCounts(dead=1)
            assert (await broker.mailbox("iris").summary()).senders == (("system", 1),)


async def test_the_record_of_a_turn_is_kept(path):
    """TURN-7."""
    async with open_broker(path, owner="test") as broker:
        turn = await broker.mailbox("iris").open_turn(cause="operator")
        await broker.mailbox("iris").close_turn(turn.id, acked=True, record={"tokens": 7, "note": "\ud83d half"})
        with pytest.raises(TypeError):
            await broker.mailbox("iris").close_turn(turn.id, acked=True, record={"no": object()})
        ((cause, record),) = await broker._engine.look(
            lambda db: db.execute("SELECT cause, json_extract(record, '$.tokens') FROM turns").fetchall()
        )
        assert (cause, record) == ("operator", 7)


async def test_a_restored_database_gives_out_no_id_twice(path, tmp_path):
    """REL-5, failure 2: agents have seen the ids that the restored file has not."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
        await broker.mailbox("iris").send(to="iris", body="before the backup")
    backup = shutil.copy(path, tmp_path / "backup.sqlite")
    async with open_broker(path, owner="test") as broker:
        seen = (await broker.mailbox("iris").send(to="iris", body="after the backup")).id
        turn = await broker.mailbox("iris").open_turn(cause="mail")
    shutil.copy(backup, path)
    async with open_broker(path, owner="test") as broker:
        assert [message.body for message in await broker.history()] == ["before the backup"]
        assert (await broker.mailbox("iris").send(to="iris", body="new")).id > seen
        assert (await broker.mailbox("iris").open_turn(cause="mail")).id > turn.id


async def test_ids_of_deleted_rows_are_not_given_out_again(path):
    """REL-5."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
        last = await broker.mailbox("iris").send(to="iris", body="x")
        await broker._engine.change(lambda db: Done(db.execute("DELETE FROM messages").get))
        assert (await broker.mailbox("iris").send(to="iris", body="y")).id > last.id


@pytest.mark.parametrize("said", [b"", b"garbage", b"\xff" * 100, b"9" * 20 + b" " + b"9" * 20 + b"\n{}"])
async def test_a_damaged_side_file_is_written_anew(path, said):
    """REL-3: it can only say too little, never stop the hive."""
    path.parent.mkdir()
    (path.parent / "broker.sqlite.owner").write_bytes(said)
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
        assert (await broker.mailbox("iris").send(to="iris", body="x")).id == 1


async def test_a_newer_schema_is_refused_and_left_as_it_was(path):
    """REL-3."""
    async with open_broker(path, owner="test"):
        pass
    with apsw.Connection(str(path)) as db:
        db.pragma("user_version", 99)
    db.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match=r"schema 99 and this hyperhive knows schemas up to \d+: start the newer"):
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")
    assert path.read_bytes() == before


async def test_the_schema_is_built_from_nothing_by_its_numbered_files(path):
    """REL-3: the version mark is the number of the last file."""
    async with open_broker(path, owner="test") as broker:
        version = await broker._engine.look(lambda db: db.pragma("user_version"))
    scripts = [entry.name for entry in files("hive_broker").joinpath("schema").iterdir()]
    assert version == len([name for name in scripts if name.endswith(".sql")])


@pytest.mark.parametrize("content", [b"this is no database at all " * 200, b"SQLite format 3\0" + b"\xa5" * 8176])
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(path, content):
    """REL-3."""
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(BrokerDamaged) as caught:
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")
    assert isinstance(caught.value.__cause__, apsw.Error)
    assert path.read_bytes() == content


async def test_somebody_elses_database_is_refused_and_left_as_it_was(path):
    """REL-3."""
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(BrokerDamaged, match="its header says it is something else"):
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("ALTER TABLE messages RENAME COLUMN body TO text", r"lacks table messages\.body, so somebody changed it"),
        ("DROP INDEX messages_unread", "lacks index messages_unread, so somebody changed it"),
        ("DROP TABLE reminders", r"lacks index reminders_due, .* restore a backup from before that"),
        ("PRAGMA user_version = 1", r"has the mark of schema 1 and its tables do not fit it \(.*already exists\)"),
        ("PRAGMA user_version = 0", r"has the mark of schema 0 and its tables do not fit it \(.*already exists\)"),
    ],
)
async def test_a_database_that_does_not_fit_its_version_is_refused_in_words(path, tmp_path, change, sentence):
    """REL-3: nothing of SQLite's own comes out; the doctor says the same, and as a backup it replaces nothing."""
    async with open_broker(path, owner="test"):
        pass
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute(change)
    with pytest.raises(BrokerDamaged, match=sentence):
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")
    if "user_version" not in change:
        (problem,) = hive_broker.examine_database(path).problems
        assert re.search(sentence, problem)
        with pytest.raises(BrokerDamaged, match=sentence):
            hive_broker.restore_database(tmp_path / "other.sqlite", path, owner="test", now=0)
        assert not (tmp_path / "other.sqlite").exists()


async def test_a_database_whose_version_mark_was_raised_is_refused_in_words(path):
    """REL-3: such as by a copy of single tables; no call ever meets a column that is not there."""
    async with open_broker(path, owner="test"):
        pass
    first = files("hive_broker").joinpath("schema", "0001_messages.sql").read_text()
    with contextlib.closing(apsw.Connection(str(path))) as db:
        version = db.pragma("user_version")
    path.unlink()
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute(first)
        db.pragma("application_id", 0x68697665)
        db.pragma("user_version", version)
    with pytest.raises(BrokerDamaged, match=f"has the mark of schema {version} and lacks .*, so somebody changed it"):
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")


async def test_what_somebody_added_to_a_database_is_no_reason_to_refuse_it(path):
    """REL-3: figures for the planner, an index, a column."""
    async with open_broker(path, owner="test"):
        pass
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("ANALYZE; CREATE INDEX theirs ON messages (sent_at); ALTER TABLE messages ADD COLUMN theirs TEXT")
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
        assert (await broker.mailbox("iris").send(to="iris", body="x")).id == 1


async def test_a_database_with_a_broken_page_is_refused(path):
    """REL-3: found when it is opened, not when a row is missing."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
        for n in range(200):
            await broker.mailbox("iris").send(to="iris", body=f"{n} " * 200)
    content = bytearray(path.read_bytes())
    half = len(content) // 2 // 4096 * 4096
    content[half : half + 4096] = b"\x5a" * 4096
    path.write_bytes(content)
    with pytest.raises(BrokerDamaged):
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")


async def test_a_folder_that_cannot_be_made_is_said_in_words(tmp_path):
    """REL-3."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(BrokerUnavailable, match="must be there and writable"):
        async with open_broker(tmp_path / "file" / "broker.sqlite", owner="test"):
            raise AssertionError("must not open")


async def test_a_folder_in_the_place_of_the_database_is_said_in_words(tmp_path):
    """REL-3."""
    (tmp_path / "broker.sqlite").mkdir()
    with pytest.raises(BrokerUnavailable, match="cannot be opened"):
        async with open_broker(tmp_path / "broker.sqlite", owner="test"):
            raise AssertionError("must not open")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_read_only_folder_is_said_in_words(path):
    """REL-3."""
    async with open_broker(path, owner="test"):
        pass
    path.parent.chmod(0o500)
    try:
        with pytest.raises(BrokerUnavailable, match="writable"):
            async with open_broker(path, owner="test"):
                raise AssertionError("must not open")
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize("wrong", [{"lease_seconds": 0}, {"lease_seconds": float("inf")}, {"max_deliveries": 0}])
async def test_settings_out_of_range_are_refused(path, wrong):
    """MSG-5, MSG-6."""
    with pytest.raises(ValueError, match="got"):
        async with open_broker(path, owner="test", **wrong):
            raise AssertionError("must not open")


async def test_a_refused_opening_leaves_no_thread_and_no_claim(path):
    """EMBED-1: an open connection would keep the interpreter from ending."""
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(BrokerDamaged):
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")
    path.unlink()
    assert broker_threads() == []
    async with open_broker(path, owner="test"):
        pass
    assert broker_threads() == []


async def test_what_leaves_the_block_is_what_the_body_raised(path):
    """EMBED-1: one documented shape, no group around it, its cause kept."""
    cause = KeyError("cause")
    with pytest.raises(ZeroDivisionError) as caught:
        async with open_broker(path, owner="test"):
            raise ZeroDivisionError from cause
    assert caught.value.__cause__ is cause


async def test_an_error_of_the_body_is_not_lost_to_a_cancellation(path):
    """EMBED-1."""

    async def fail_in_a_cancelled_scope():
        with trio.CancelScope() as scope:
            async with open_broker(path, owner="test"):
                scope.cancel()
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_in_a_cancelled_scope()


async def test_the_broker_serves_while_a_cancelled_body_unwinds(path):
    """EMBED-1, failure 18: the last write of a cancelled task is not lost."""
    with trio.fail_after(5), trio.CancelScope() as scope:
        async with open_broker(path, owner="test") as broker:
            await broker.set_agents(["iris"])
            iris = broker.mailbox("iris")
            turn = await iris.open_turn(cause="mail")
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await iris.close_turn(turn.id, acked=True, record={"outcome": "interrupted"})
    assert scope.cancelled_caught
    async with open_broker(path, owner="test") as broker:
        outcomes = await broker._engine.look(lambda db: db.execute("SELECT outcome FROM turns").fetchall())
        assert outcomes == [("acked",)]


async def test_a_broker_opened_in_a_cancelled_scope_closes_and_lets_go(path):
    """EMBED-1, REL-2."""
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_broker(path, owner="test"):
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert broker_threads() == []
    async with open_broker(path, owner="test"):
        pass


async def test_calls_after_the_block_say_that_the_broker_is_closed(path):
    """STOP-3."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
    iris = broker.mailbox("iris")
    calls = [
        lambda: iris.send(to="iris", body="x"),
        iris.recv,
        lambda: iris.ack_until(1),
        iris.summary,
        iris.wait_unread,
        lambda: iris.open_turn(cause="x"),
        lambda: iris.close_turn(1, acked=True, record={}),
        broker.counts,
        broker.history,
        lambda: broker.inbox("iris"),
        lambda: broker.thread(1),
        lambda: broker.deliver("system", "iris", "x"),
        lambda: broker.set_agents([]),
    ]
    for call in calls:
        with pytest.raises(BrokerClosed, match="the broker is closed"):
            await call()
    with pytest.raises(BrokerClosed), broker.watch():
        raise AssertionError("must not watch")


async def test_closing_answers_what_is_in_a_transaction_and_refuses_what_waits(path):
    """STOP-3: nobody is left without an answer."""
    answers = {}
    entered, leave = threading.Event(), threading.Event()

    def slow(db):
        entered.set()
        assert leave.wait(5)
        return Done("done")

    async def call(key, work):
        try:
            answers[key] = await work()
        except BrokerClosed:
            answers[key] = "closed"
            leave.set()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, open_broker(path, owner="test") as broker:
            await broker.set_agents(["iris"])
            iris = broker.mailbox("iris")
            nursery.start_soon(call, "taken", lambda: broker._engine.change(slow))
            assert await trio.to_thread.run_sync(entered.wait, 5)
            nursery.start_soon(call, "queued", lambda: iris.send(to="iris", body="x"))
            nursery.start_soon(call, "waiting for mail", iris.wait_unread)
            await trio.testing.wait_all_tasks_blocked()
    assert answers == {"taken": "done", "queued": "closed", "waiting for mail": "closed"}
