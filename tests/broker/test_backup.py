"""A copy of one instant while everybody writes, and a way back that loses nothing silently (REL-3, REL-5)."""

import errno
import os
import resource
import stat
import time
from pathlib import Path

import apsw
import pytest
import trio

from hive_broker import (
    BrokerClosed,
    BrokerDamaged,
    BrokerLocked,
    BrokerUnavailable,
    RequestRefused,
    SchemaTooNew,
    _backup,
    open_broker,
    restore_database,
)

AGENTS = ("iris", "ruth")
DAY = 86400


def reopened(path):
    return open_broker(path, owner="test")


@pytest.fixture
def backup(tmp_path):
    """Where a backup may go."""
    return tmp_path / "backups" / "one.sqlite"


def restored(path, backup, *, now=None):
    return restore_database(path, backup, owner="restore", now=time.time() if now is None else now)


def names_in(folder):
    return sorted(entry.name for entry in folder.iterdir())


async def fill(broker, number, *, body="x"):
    """Send so many in one go; give the last id."""
    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(lambda: broker.mailbox("iris").send(to="ruth", body=body))
    return (await broker.history(limit=1))[0].id


# --- backup


async def test_a_backup_is_one_private_sound_file_with_all_that_was_committed(broker, backup, path):
    """HOST-2: no log beside it, nothing half done left behind."""
    last = await fill(broker, 20)
    made = await broker.backup(backup)
    assert (made.path, made.messages, made.last_message_id) == (str(backup), 20, last)
    assert made.size_bytes == backup.stat().st_size
    assert names_in(backup.parent) == ["one.sqlite"]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE(backup.parent.stat().st_mode) == 0o700
    copy = apsw.Connection(f"file:{backup}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    assert copy.pragma("integrity_check") == "ok"
    assert copy.pragma("journal_mode") == "delete"
    assert copy.execute("SELECT count(*) FROM messages").get == 20
    copy.close()
    async with reopened(backup) as opened:
        assert len(await opened.history()) == 20


@pytest.mark.slow
async def test_sends_go_on_while_a_backup_runs_and_it_is_of_one_instant(broker, backup, monkeypatch):
    """HOST-2: many small steps; what is sent meanwhile is not in it, and none of it waits for the end."""
    monkeypatch.setattr(_backup, "_STEP_PAGES", 1)
    last = await fill(broker, 200, body="x" * 4000)
    done = trio.Event()
    sent_meanwhile = 0

    async def make():
        nonlocal made
        made = await broker.backup(backup)
        done.set()

    made = None
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make)
            while not done.is_set():
                await broker.mailbox("ruth").send(to="iris", body="meanwhile")
                sent_meanwhile += 1
    assert sent_meanwhile > 1
    async with reopened(backup) as opened:
        bodies = [message.body for message in await opened.history(limit=1000)]
    ours, theirs = bodies.count("x" * 4000), bodies.count("meanwhile")
    assert (ours, theirs) == (200, made.messages - 200)
    assert made.last_message_id == last + theirs
    assert theirs < sent_meanwhile


async def test_a_backup_never_replaces_anything(broker, backup, tmp_path):
    """HOST-2: neither a file nor a link that leads nowhere."""
    backup.parent.mkdir()
    backup.write_text("dear")
    with pytest.raises(RequestRefused, match=r"a backup never replaces a file, and .*one\.sqlite is there"):
        await broker.backup(backup)
    assert backup.read_text() == "dear"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(RequestRefused):
        await broker.backup(link)
    assert names_in(backup.parent) == ["one.sqlite"]


async def test_a_backup_that_is_cancelled_leaves_nothing(broker, backup, monkeypatch):
    """HOST-2: between two steps."""
    await fill(broker, 20, body="x" * 4000)
    monkeypatch.setattr(_backup, "_STEP_PAGES", 1)
    steps = []
    copy_snapshot = _backup.copy_snapshot

    def cancelled_in_the_middle(source, copy, *, between):
        def look():
            steps.append(None)
            if len(steps) == 3:
                trio.from_thread.run_sync(scope.cancel)
            between()

        copy_snapshot(source, copy, between=look)

    monkeypatch.setattr(_backup, "copy_snapshot", cancelled_in_the_middle)
    with trio.fail_after(5), trio.CancelScope() as scope:
        await broker.backup(backup)
    assert scope.cancelled_caught
    assert len(steps) == 3
    assert names_in(backup.parent) == []
    await fill(broker, 1)


async def test_a_folder_that_cannot_be_is_said(broker, tmp_path):
    """REL-3."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerUnavailable, match="the disk refused a write"):
        await broker.backup(tmp_path / "file" / "below.sqlite")


@pytest.mark.slow
async def test_a_disk_that_is_full_leaves_nothing_and_the_broker_goes_on(broker, backup):
    """REL-3: a file size limit is as good as a full disk."""
    await fill(broker, 100, body="x" * 20_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(BrokerUnavailable):
            await broker.backup(backup)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names_in(backup.parent) == []
    await fill(broker, 1)


async def test_a_closed_broker_makes_no_backup(path, backup):
    """STOP-3."""
    async with reopened(path) as broker:
        pass
    with pytest.raises(BrokerClosed):
        await broker.backup(backup)


# --- restore


async def test_what_was_in_flight_comes_back_and_what_was_acked_stays(path, backup):
    """REL-1, REL-5: as of the backup; what came later is said, and kept aside."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        last = await fill(broker, 3)
        ruth = broker.mailbox("ruth")
        await ruth.ack_until(last - 2)
        turn = await ruth.open_turn(cause="mail")
        await ruth.recv(turn_id=turn.id)
        made = await broker.backup(backup)
        await ruth.close_turn(turn.id, acked=True, record={})
        later = await fill(broker, 4)
    content = path.read_bytes()
    done = restored(path, backup)
    assert (done.messages, done.last_message_id, done.lost_messages, done.given_out) == (3, last, 4, later)
    assert done.made_at == made.made_at
    (aside,) = done.set_aside
    assert Path(aside).read_bytes() == content
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        received = await broker.mailbox("ruth").recv(limit=5)
        assert [(found.message.id, found.attempt) for found in received.deliveries] == [(last - 1, 2), (last, 1)]
        assert (await broker.inbox("ruth"))[-1].acked_at is not None
        assert await fill(broker, 1) == done.next_message_id == later + 1
    assert names_in(path.parent) == sorted([path.name, f"{path.name}.owner", Path(aside).name])


async def test_a_damaged_database_is_replaced_and_kept_as_it_is(path, backup):
    """REL-3, REL-5: the side file knows how far ids had got, and so how much is lost at most."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        last = await fill(broker, 3)
        await broker.backup(backup)
        later = await fill(broker, 4)
    damaged = b"SQLite format 3\0" + b"\xff" * 5000
    path.write_bytes(damaged)
    Path(f"{path}-wal").write_bytes(b"a log of another life")
    done = restored(path, backup)
    assert (done.lost_messages, done.given_out, done.next_message_id) == (None, later, later + 1)
    assert [Path(aside).read_bytes() for aside in done.set_aside] == [damaged, b"a log of another life"]
    assert not Path(f"{path}-wal").exists()
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        assert len(await broker.history()) == 3
        assert await fill(broker, 1) == later + 1
    assert last < later


async def test_what_a_killed_hive_left_in_its_log_is_counted_and_kept(path, backup, tmp_path):
    """REL-1, REL-5: the log of the replaced database is folded into it, not lost and not replayed into the new one."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 1)
        await broker.backup(backup)
        await fill(broker, 2)
        killed = tmp_path / "killed"
        killed.mkdir()
        for suffix in ("", "-wal"):
            (killed / f"broker.sqlite{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    path = killed / "broker.sqlite"
    done = restored(path, backup)
    assert done.lost_messages == 2
    (aside,) = done.set_aside
    async with reopened(aside) as broker:
        assert len(await broker.history()) == 3
    async with reopened(path) as broker:
        assert len(await broker.history()) == 1


@pytest.mark.parametrize(("age_days", "gap"), [(0, 1_000_000), (0.9, 1_000_000), (2.5, 3_000_000)])
async def test_on_another_machine_ids_go_on_far_ahead(path, backup, tmp_path, age_days, gap):
    """REL-5: nothing there knows what was given out after the backup, so nobody meets an id again."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        last = await fill(broker, 3)
        turn = await broker.mailbox("ruth").open_turn(cause="mail")
        made = await broker.backup(backup)
    elsewhere = tmp_path / "elsewhere" / "broker.sqlite"
    done = restored(elsewhere, backup, now=made.made_at + age_days * DAY)
    assert (done.lost_messages, done.given_out, done.set_aside) == (None, None, ())
    assert done.next_message_id == last + gap + 1
    async with reopened(elsewhere) as broker:
        await broker.set_agents(AGENTS)
        assert await fill(broker, 1) == last + gap + 1
        assert (await broker.mailbox("ruth").open_turn(cause="mail")).id == turn.id + gap + 1


async def test_a_side_file_of_another_history_is_not_believed(path, backup, tmp_path):
    """REL-5: a fresh hive that ran a little on the new machine says nothing of the old one's ids."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        last = await fill(broker, 30)
        await broker.backup(backup)
    elsewhere = tmp_path / "elsewhere" / "broker.sqlite"
    async with reopened(elsewhere) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 2)
    assert restored(elsewhere, backup).next_message_id == last + 1_000_000 + 1


async def test_ids_of_everything_that_has_them_go_on(path, backup):
    """REL-5: also those the side file does not note, when the replaced database cannot tell them any more."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 1)
        await broker.backup(backup)
    path.write_bytes(b"gone")
    restored(path, backup)
    db = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    marks = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    tables = db.execute("SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'").get
    db.close()
    assert len(marks) == tables > 2
    assert {marks.pop("messages")} == {1}
    assert set(marks.values()) <= {0, 1_000_000}
    assert marks["reminders"] == 1_000_000


async def test_a_restored_backup_is_a_database_like_any_other(path, backup, tmp_path):
    """HOST-2: it can be backed up, and that restored; the backup itself stays as it was."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 2)
        await broker.backup(backup)
    before = backup.read_bytes()
    restored(path, backup)
    restored(path, backup)
    assert backup.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with reopened(path) as broker:
        second = await broker.backup(tmp_path / "second.sqlite")
    assert second.messages == 2
    assert len([name for name in names_in(path.parent) if ".replaced-" in name]) == 2
    assert restored(path, second.path).made_at == second.made_at


async def test_a_plain_copy_of_a_database_at_rest_is_a_backup_too(path, tmp_path):
    """HOST-2: an operator's cp; it does not say when it was made."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 2)
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(path.read_bytes())
    done = restored(path, copy)
    assert (done.made_at, done.messages, done.lost_messages) == (None, 2, 0)


async def test_a_live_owner_keeps_its_database(path, backup):
    """REL-2: it is named, and nothing is touched."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await broker.backup(backup)
        with pytest.raises(BrokerLocked, match=f"belongs to 'test', pid {os.getpid()}"):
            restored(path, backup)
        await fill(broker, 1)
    assert not [name for name in names_in(path.parent) if ".replaced-" in name]


@pytest.mark.parametrize(
    ("content", "error", "sentence"),
    [
        (None, RequestRefused, "a backup must be a file, and .* is none"),
        (b"", BrokerDamaged, "no sound backup of a broker's database .it is empty"),
        (b"no database at all", BrokerDamaged, "no sound backup of a broker's database"),
        (b"SQLite format 3\0" + b"\xff" * 5000, BrokerDamaged, "no sound backup"),
    ],
)
async def test_what_is_no_backup_replaces_nothing(path, backup, content, error, sentence):
    """REL-3: the database is as it was."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 1)
    backup.parent.mkdir()
    if content is not None:
        backup.write_bytes(content)
    with pytest.raises(error, match=sentence):
        restored(path, backup, now=0)
    assert names_in(path.parent) == [path.name, f"{path.name}.owner"]
    async with reopened(path) as broker:
        assert len(await broker.history()) == 1


async def test_somebody_elses_database_is_no_backup(path, backup):
    """REL-3."""
    backup.parent.mkdir()
    db = apsw.Connection(str(backup))
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(BrokerDamaged, match="its header says it is something else"):
        restored(path, backup)


async def test_a_damaged_backup_is_found_out_before_anything_is_replaced(path, backup):
    """REL-3: read through to its last page."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 50, body="x" * 3000)
        await broker.backup(backup)
    content = bytearray(backup.read_bytes())
    content[-20_000:] = b"\xff" * 20_000
    backup.write_bytes(content)
    with pytest.raises(BrokerDamaged, match="choose another one"):
        restored(path, backup)
    async with reopened(path) as broker:
        assert len(await broker.history()) == 50


async def test_a_backup_of_a_newer_hyperhive_is_refused(path, backup):
    """REL-3."""
    async with reopened(path) as broker:
        await broker.backup(backup)
    db = apsw.Connection(str(backup))
    db.pragma("user_version", 999)
    db.close()
    with pytest.raises(SchemaTooNew):
        restored(path, backup)


async def test_the_database_is_no_backup_of_itself(path):
    """REL-3."""
    async with reopened(path):
        pass
    with pytest.raises(RequestRefused, match="is the database itself"):
        restored(path, path)


@pytest.mark.parametrize("step", ["link", "unlink", "replace"])
async def test_a_restore_that_breaks_off_leaves_a_database_that_opens(path, backup, monkeypatch, step):
    """REL-1, REL-5: at each change of a file's place; doing it again ends it."""
    async with reopened(path) as broker:
        await broker.set_agents(AGENTS)
        await fill(broker, 2)
        await broker.backup(backup)
        later = await fill(broker, 2)

    where = os if step == "link" else Path
    original = getattr(where, step)

    def refused(*args, **more):
        if any(str(arg).startswith(str(path)) for arg in args):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(*args, **more)

    with monkeypatch.context() as broken:
        broken.setattr(where, step, refused)
        with pytest.raises(BrokerUnavailable, match="the disk refused a write"):
            restored(path, backup)
    async with reopened(path) as broker:
        assert len(await broker.history()) == 4
    done = restored(path, backup)
    assert (done.messages, done.lost_messages, done.next_message_id) == (2, 2, later + 1)
