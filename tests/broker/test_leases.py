"""Rows popped outside a turn: back in the inbox when their lease is over, whatever the clocks do."""

import logging
import math
import time

import pytest
import trio
import trio.testing

from hive_broker import InboxCounts, _clock, open_broker

AGENTS = ["iris", "ruth"]


@pytest.fixture
def quick_recheck(monkeypatch):
    """Look at the wall clock every hundredth of a second instead of every minute."""
    monkeypatch.setattr(_clock, "_RECHECK_SECONDS", 0.01)


class SetClock:
    """A wall clock that a person sets."""

    def __init__(self):
        self.offset_seconds = 0.0

    def __call__(self):
        return time.time() + self.offset_seconds


async def test_a_lease_that_is_over_returns_its_row_and_wakes_the_agent(path):
    """MSG-5, TURN-2."""
    async with open_broker(path, owner="test", lease_seconds=0.02) as broker:
        await broker.set_agents(AGENTS)
        sent = await broker.mailbox("iris").send(to="ruth", body="x")
        ruth = broker.mailbox("ruth")
        await ruth.recv()
        with trio.fail_after(5):
            await ruth.wait_unread()
        (delivery,) = (await ruth.recv()).deliveries
        assert (delivery.message.id, delivery.attempt) == (sent.id, 2)


async def test_a_lease_acked_in_time_never_ends(path):
    """MSG-7: the clock finds nothing to return."""
    async with open_broker(path, owner="test", lease_seconds=0.02) as broker:
        await broker.set_agents(AGENTS)
        ruth = broker.mailbox("ruth")
        acked = await broker.mailbox("iris").send(to="ruth", body="acked")
        await ruth.recv()
        await ruth.ack_until(acked.id)
        kept = await broker.mailbox("iris").send(to="ruth", body="kept")
        await ruth.recv()
        with trio.fail_after(5):
            await ruth.wait_unread()
        assert [message.id for message in await broker.inbox("ruth", unread_only=True)] == [kept.id]


async def test_a_lease_that_is_over_counts_as_a_failed_attempt(path):
    """MSG-6: its sender, idle meanwhile, is woken with the notice."""
    async with open_broker(path, owner="test", lease_seconds=0.02, max_deliveries=1) as broker:
        await broker.set_agents(AGENTS)
        iris = broker.mailbox("iris")
        await iris.send(to="ruth", body="x")
        await broker.mailbox("ruth").recv()
        with trio.fail_after(5):
            await iris.wait_unread()
        assert (await iris.summary()).senders == (("system", 1),)
        assert (await broker.counts())["ruth"] == InboxCounts(dead=1)


async def test_a_clock_set_forward_ends_leases_without_waiting_them_out(path, quick_recheck):
    """REL-3."""
    clock = SetClock()
    async with open_broker(path, owner="test", clock=clock) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("iris").send(to="ruth", body="x")
        await broker.mailbox("ruth").recv()
        clock.offset_seconds = 601
        with trio.fail_after(5):
            await broker.mailbox("ruth").wait_unread()


async def test_a_clock_set_back_does_not_lengthen_leases(path, quick_recheck):
    """REL-3: a row is not away for a day because the clock was wrong by one."""
    clock = SetClock()
    async with open_broker(path, owner="test", clock=clock, lease_seconds=0.05) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("iris").send(to="ruth", body="x")
        await broker.mailbox("ruth").recv()
        clock.offset_seconds = -86_400
        with trio.fail_after(5):
            await broker.mailbox("ruth").wait_unread()


async def test_no_timer_runs_while_no_lease_is_open(broker):
    """TURN-2: an idle hive sleeps; a row in a turn's hands needs no timer either."""
    ruth = broker.mailbox("ruth")
    await broker.mailbox("iris").send(to="ruth", body="x")
    turn = await ruth.open_turn(cause="mail")
    await ruth.recv(turn_id=turn.id)
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
    await ruth.close_turn(turn.id, acked=False, record={})
    await ruth.recv()
    await trio.testing.wait_all_tasks_blocked()
    assert 0 < trio.lowlevel.current_statistics().seconds_to_next_deadline <= 60


async def test_a_lease_that_cannot_be_ended_is_ended_later(path, quick_recheck, caplog):
    """REL-3: recovery without a restart."""
    failures = iter([OSError(28, "No space left on device")])
    async with open_broker(path, owner="test", lease_seconds=0.02) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("iris").send(to="ruth", body="x")
        await broker.mailbox("ruth").recv()
        database = broker._engine._database
        noted = database.note_ids

        def fail_once(db):
            for failure in failures:
                raise failure
            noted(db)

        database.note_ids = fail_once
        with trio.fail_after(5), caplog.at_level(logging.WARNING, logger="hive_broker"):
            await broker.mailbox("ruth").wait_unread()
    assert "what is due could not be done" in caplog.text
