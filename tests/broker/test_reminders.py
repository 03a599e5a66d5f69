"""Reminders over a restart and a changed clock; nobody passes for one."""

import logging

import apsw
import pytest
import trio

from hive_broker import MessageRefused, RequestRefused, _clock, _migrate, is_agent_name, open_broker

AGENTS = ("iris", "ruth")


class SetClock:
    """A wall clock that a person sets."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


async def test_what_came_due_while_the_hive_was_away_fires_once_at_the_start_and_says_so(path):
    """INB-3."""
    clock = SetClock()
    async with open_broker(path, owner="first", clock=clock) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("iris").remind("water the plants", delay_seconds=3600)
    clock.now += 86_400
    for owner in ("second", "third"):
        async with open_broker(path, owner=owner, clock=clock) as broker:
            iris = broker.mailbox("iris")
            with trio.fail_after(5):
                await iris.wait_unread()
            (message,) = await broker.inbox("iris")
            assert message.sender == "reminder"
            assert message.body == (
                "water the plants\n\n[reminder #1, which you set at 2027-01-15 08:00:00 UTC for 2027-01-15 09:00:00 "
                "UTC; it is late because the hive or you were not there]"
            )
            assert await iris.reminders() == ()


async def test_a_clock_set_forward_fires_what_is_due_by_it(path, monkeypatch):
    """INB-3, REL-3."""
    monkeypatch.setattr(_clock, "_RECHECK_SECONDS", 0.01)
    clock = SetClock()
    async with open_broker(path, owner="test", clock=clock) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("iris").remind("x", at=clock.now + 86_400)
        clock.now += 90_000
        with trio.fail_after(5):
            await broker.mailbox("iris").wait_unread()


@pytest.mark.parametrize("name", ["reminder", "schedule"])
async def test_nobody_passes_for_the_sender_of_reminders_and_schedules(broker, name):
    """WAKE-2, failure 23: no agent, no label, no recipient."""
    assert not is_agent_name(name)
    with pytest.raises(ValueError, match="not reserved"):
        await broker.set_agents([name])
    with pytest.raises(MessageRefused, match="must not be a reserved name"):
        await broker.deliver(name, "iris", "do as I say")
    with pytest.raises(MessageRefused, match="is a reserved name and has no inbox"):
        await broker.mailbox("iris").send(to=name, body="x")


async def test_an_agent_called_so_before_the_name_was_reserved_is_one_no_more(path):
    """REL-3: else its name would stand in the way of every reminder."""
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute(_migrate._steps()[0])
    db.execute("INSERT INTO agents VALUES ('reminder', 1), ('iris', 1)")
    db.pragma("application_id", _migrate._APPLICATION_ID)
    db.pragma("user_version", 1)
    db.close()
    async with open_broker(path, owner="test") as broker:
        iris = broker.mailbox("iris")
        await iris.remind("x", delay_seconds=0)
        with trio.fail_after(5):
            await iris.wait_unread()


async def test_only_an_agent_that_is_there_can_leave_a_reminder(broker):
    """INB-3: for another it would never fire."""
    for name in ("nobody", "operator"):
        with pytest.raises(RequestRefused, match="only agents of this hive have reminders"):
            await broker.mailbox(name).remind("x", delay_seconds=1)


async def test_how_many_are_pending_is_told_for_every_agent(broker):
    """HOST-1: the true number."""
    for _ in range(2):
        await broker.mailbox("iris").remind("x", delay_seconds=1000)
    assert await broker.reminder_counts() == {"iris": 2}


async def test_the_limit_is_the_hives_to_set(path):
    """INB-3."""
    with pytest.raises(ValueError, match="max_pending_reminders must be 0 or more"):
        async with open_broker(path, owner="test", max_pending_reminders=-1):
            raise AssertionError("must not open")
    async with open_broker(path, owner="test", max_pending_reminders=1) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("iris").remind("x", delay_seconds=1000)
        with pytest.raises(RequestRefused, match="can have 1 reminders pending"):
            await broker.mailbox("iris").remind("y", delay_seconds=1000)


async def test_a_reminder_that_was_cancelled_before_it_was_taken_is_none(broker):
    """EMBED-1."""
    iris = broker.mailbox("iris")
    with trio.CancelScope() as scope:
        scope.cancel()
        await iris.remind("never", delay_seconds=1000)
    assert scope.cancelled_caught
    assert await iris.reminders() == ()


async def test_what_is_due_is_done_when_the_disk_takes_it_again(path, monkeypatch, caplog):
    """REL-3: nothing is lost meanwhile."""
    monkeypatch.setattr(_clock, "_RECHECK_SECONDS", 0.01)
    async with open_broker(path, owner="test") as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("iris").remind("x", delay_seconds=0.05)
        database = broker._engine._database
        noted, failures = database.note_ids, [OSError(28, "No space left on device")] * 3

        def fail_at_first(db):
            if failures:
                raise failures.pop()
            noted(db)

        database.note_ids = fail_at_first
        with trio.fail_after(5), caplog.at_level(logging.WARNING, logger="hive_broker"):
            await broker.mailbox("iris").wait_unread()
    assert "what is due could not be done" in caplog.text
