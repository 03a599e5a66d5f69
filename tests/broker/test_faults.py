"""Bad days of the file, its lock and the clock: a clear sentence, service where possible, and nothing lost (REL-3)."""

import random
import shutil
from pathlib import Path

import apsw
import pytest
import trio
import trio.testing

from hive_broker import BrokerDamaged, BrokerUnavailable, SchemaTooNew, open_broker
from hive_broker._flow import Done

YEAR = 366 * 86_400.0
PAGE_BYTES = 4096


async def names_and_mail(path, number):
    """A database with some messages from iris to ruth and otto, at rest; gives the bodies by id."""
    async with open_broker(path, owner="before") as broker:
        await broker.set_agents(["iris", "otto", "ruth"])
        async with trio.open_nursery() as nursery:
            for n in range(number):
                message = {"to": ("ruth", "otto")[n % 2], "body": f"{n} " + "word " * (n % 40)}
                nursery.start_soon(lambda message=message: broker.mailbox("iris").send(**message))
        return {message.id: message.body for message in await broker.history(limit=1000)}


async def test_every_commit_waits_for_the_disk(broker):
    """MSG-1: as far as SQLite can be asked; a power failure is not in reach of a test."""
    asked = await broker._engine.look(lambda db: (db.pragma("journal_mode"), db.pragma("synchronous")))
    assert asked == ("wal", 2)


async def test_a_database_that_turns_read_only_refuses_changes_and_can_be_read(broker):
    """REL-3: and takes them again when it can be written."""
    iris = broker.mailbox("iris")
    await iris.send(to="ruth", body="before")
    await broker._engine._database.run(lambda db: db.pragma("query_only", True))
    with pytest.raises(BrokerUnavailable, match="read-only: make them writable and try again"):
        await iris.send(to="ruth", body="not now")
    with pytest.raises(BrokerUnavailable, match="was not made"):
        await broker.mailbox("ruth").recv()
    assert (await broker.mailbox("ruth").summary()).unread == 1
    await broker._engine._database.run(lambda db: db.pragma("query_only", False))
    await iris.send(to="ruth", body="after")
    assert [message.body for message in await broker.history()] == ["after", "before"]


async def test_a_stranger_with_the_lock_for_a_moment_delays_calls_and_fails_none(broker, path):
    """REL-3: a backup, or a person with the sqlite3 shell."""
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    answers = []

    async def send():
        answers.append(await broker.mailbox("iris").send(to="ruth", body="x"))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            stranger.execute("ROLLBACK")
    stranger.close()
    assert len(answers) == 1


async def test_a_stranger_who_keeps_the_lock_is_said_each_time_and_reading_goes_on(broker, path):
    """REL-3: a minute of it, by the number of tries; a call waits two seconds and these wait one millisecond."""
    await broker.mailbox("iris").send(to="ruth", body="before")
    await broker._engine._database.run(lambda db: db.set_busy_timeout(1))
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN EXCLUSIVE")
    for _ in range(30):
        with pytest.raises(BrokerUnavailable, match="another program holds the database locked: let it finish"):
            await broker.mailbox("iris").send(to="ruth", body="not now")
        assert (await broker.mailbox("ruth").summary()).unread == 1
    stranger.execute("ROLLBACK")
    stranger.close()
    assert (await broker.mailbox("iris").send(to="ruth", body="after")).id == 2


async def test_a_database_that_is_locked_when_it_is_opened_is_said_in_words(path, monkeypatch):
    """REL-3, REL-2: and the claim is let go, so that the next try can have it."""
    await names_and_mail(path, 1)
    monkeypatch.setattr("hive_broker._database._BUSY_MILLISECONDS", 1)
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(BrokerUnavailable, match="another program holds the database locked: let it finish"):
        async with open_broker(path, owner="test"):
            raise AssertionError("must not open")
    stranger.execute("ROLLBACK")
    stranger.close()
    async with open_broker(path, owner="test") as broker:
        assert len(await broker.history()) == 1


def flipped(content, start, dice):
    """Four bits of one page are others."""
    for _ in range(4):
        content[start + dice.randrange(PAGE_BYTES)] ^= 1 << dice.randrange(8)


def zeroed(content, start, _):
    """One page is nothing."""
    content[start : start + PAGE_BYTES] = bytes(PAGE_BYTES)


def scrambled(content, start, dice):
    """One page is something else."""
    content[start : start + PAGE_BYTES] = dice.randbytes(PAGE_BYTES)


def cut(content, start, _):
    """The file ends there."""
    del content[start:]


async def all_that_can_be_got(path):
    """Bodies of all stored messages by id, and ids of all that a recv hands out."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris", "otto", "ruth"])
        stored = {message.id: message.body for message in await broker.history(limit=1000)}
        popped = set()
        for name in ("otto", "ruth"):
            while received := (await broker.mailbox(name).recv(limit=5)).deliveries:
                popped |= {delivery.message.id for delivery in received}
        await broker.counts()
        await broker.mailbox("iris").send(to="ruth", body="more")
        return stored, popped


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flipped, zeroed, scrambled, cut], ids=lambda damage: damage.__name__)
async def test_a_damaged_page_is_refused_or_costs_no_message(path, tmp_path, damage):
    """REL-3: each page in turn. Bits that change within a text are the one thing that nothing can tell."""
    kept = await names_and_mail(path, 60)
    content, side_file = path.read_bytes(), path.with_name("broker.sqlite.owner").read_bytes()
    dice = random.Random(4)  # noqa: S311 -- dice
    refused = 0
    for number, start in enumerate(range(0, len(content), PAGE_BYTES)):
        damaged = bytearray(content)
        damage(damaged, start, dice)
        file = tmp_path / f"{number}" / "broker.sqlite"
        file.parent.mkdir()
        file.write_bytes(damaged)
        file.with_name("broker.sqlite.owner").write_bytes(side_file)
        try:
            stored, popped = await all_that_can_be_got(file)
        except (BrokerDamaged, SchemaTooNew):
            refused += 1
        else:
            assert set(stored) == popped == set(kept)
            assert sum(stored[id_] != body for id_, body in kept.items()) <= 4
    assert refused
    if damage is not flipped:
        assert refused == number + 1


async def test_a_text_that_is_no_utf8_is_damage_in_words(broker):
    """REL-3: nothing of Python's or SQLite's own comes out."""
    await broker.mailbox("iris").send(to="ruth", body="x")
    await broker._engine.change(
        lambda db: Done(db.execute("UPDATE messages SET body = CAST(x'66f7' AS TEXT)").fetchall())
    )
    for call in (broker.history, broker.mailbox("ruth").recv):
        with pytest.raises(BrokerDamaged, match=r"the database is damaged .*: stop the hive and restore a backup"):
            await call()
    await broker.mailbox("iris").send(to="otto", body="others are served")
    assert len((await broker.mailbox("otto").recv()).deliveries) == 1


async def test_a_log_that_is_removed_while_the_hive_is_down_is_noticed(path, tmp_path, caplog):
    """REL-3, REL-5: what was only in the log is gone; that is said, and no id of it is given out again."""
    await names_and_mail(path, 3)
    crashed = tmp_path / "crashed" / "broker.sqlite"
    crashed.parent.mkdir()
    async with open_broker(path, owner="to be copied") as broker:
        for n in range(2):
            await broker.mailbox("iris").send(to="ruth", body=f"in the log {n}")
        for part in ("", ".owner"):
            shutil.copy(f"{path}{part}", f"{crashed}{part}")
    async with open_broker(crashed, owner="test") as broker:
        assert len(await broker.history()) == 3
        assert (await broker.mailbox("iris").send(to="ruth", body="next")).id == 6
    assert "ids of messages up to 5 were noted and the database knows those up to 3" in caplog.text


async def test_a_first_log_that_is_removed_leaves_no_database_and_is_refused(path, tmp_path):
    """REL-3: a hive that was killed early has everything in the log; without it the file would pass for a new one."""
    crashed = tmp_path / "crashed" / "broker.sqlite"
    crashed.parent.mkdir()
    async with open_broker(path, owner="to be copied") as broker:
        await broker.set_agents(["iris"])
        await broker.mailbox("iris").send(to="iris", body="x")
        for part in ("", ".owner"):
            shutil.copy(f"{path}{part}", f"{crashed}{part}")
    for damage in (lambda: None, lambda: crashed.write_bytes(b"")):
        damage()
        with pytest.raises(BrokerDamaged, match="is empty, and messages up to #1 were in it: its log was removed, or"):
            async with open_broker(crashed, owner="test"):
                raise AssertionError("must not open")
    crashed.unlink()
    async with open_broker(crashed, owner="test") as broker:
        await broker.set_agents(["iris"])
        assert (await broker.mailbox("iris").send(to="iris", body="anew")).id == 2


@pytest.mark.parametrize("part", ["", "-wal"], ids=["database", "log"])
async def test_a_file_that_is_taken_away_under_the_hive_stops_changes_until_it_is_back(broker, path, part, tmp_path):
    """REL-3, MSG-1: nothing is acknowledged that would go into a file without a name, and no other file is copied."""
    iris = broker.mailbox("iris")
    await iris.send(to="ruth", body="before")
    file = Path(f"{path}{part}")
    elsewhere = file.rename(path.parent / "elsewhere")
    taken_away = pytest.raises(
        BrokerUnavailable, match=r"was removed or replaced while the hive works, .* move it back"
    )
    with taken_away:
        await iris.send(to="ruth", body="not now")
    with taken_away:
        await broker.backup(tmp_path / "copy.sqlite")
    shutil.copy(elsewhere, file)
    with taken_away:
        await iris.send(to="ruth", body="not into another file")
    assert (await broker.mailbox("ruth").summary()).unread == 1
    elsewhere.rename(file)
    await iris.send(to="ruth", body="after")
    assert [message.body for message in await broker.history()] == ["after", "before"]


async def test_a_log_that_is_removed_under_the_hive_costs_nothing_after_a_stop(path):
    """REL-3: it is still open, and folded in."""
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(["iris"])
        await broker.mailbox("iris").send(to="iris", body="before")
        Path(f"{path}-wal").unlink()
        with pytest.raises(BrokerUnavailable, match=r"stop the hive and start it again: nothing is lost by that"):
            await broker.mailbox("iris").send(to="iris", body="not now")
    async with open_broker(path, owner="test") as broker:
        assert [message.body for message in await broker.history()] == ["before"]
        await broker.mailbox("iris").send(to="iris", body="after")


@pytest.mark.parametrize("jump", [-10 * YEAR, 10 * YEAR], ids=["back", "forward"])
async def test_a_clock_that_jumps_by_years_loses_no_message(path, jump):
    """REL-3, MSG-5: leases end once and not twice, turns close, and ids go on."""
    now = [1_700_000_000.0]
    async with open_broker(path, owner="test", clock=lambda: now[0]) as broker:
        await broker.set_agents(["iris", "ruth"])
        iris, ruth = broker.mailbox("iris"), broker.mailbox("ruth")
        sent = [(await iris.send(to="ruth", body=f"{n}")).id for n in range(4)]
        turn = await ruth.open_turn(cause="mail")
        await ruth.recv(turn_id=turn.id)
        await ruth.recv()
        now[0] += jump
        sent.append((await iris.send(to="ruth", body="later")).id)
        assert (await ruth.close_turn(turn.id, acked=True, record={})).acked == (sent[0],)
    now[0] -= jump
    async with open_broker(path, owner="test", clock=lambda: now[0]) as broker:
        ruth = broker.mailbox("ruth")
        received = await ruth.recv(limit=5)
        assert [delivery.message.id for delivery in received.deliveries] == sent[1:]
        assert sent == sorted(sent)
        assert (await ruth.ack_until(sent[-1])).acked == 4
        assert (await ruth.summary()).unread == 0
