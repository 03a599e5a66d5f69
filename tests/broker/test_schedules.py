"""Schedules over a restart, in the time zone of the host, and at their edges."""

import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import trio

from hive_broker import MessageRefused, RequestRefused, ScheduleEdit, ScheduleStatus, _timetable, open_broker

AGENTS = ("iris", "ruth")
BERLIN = ZoneInfo("Europe/Berlin")

FAR = time.time() + 1e7
"""No test lives to see it."""


class SetClock:
    """A wall clock that a person sets."""

    def __init__(self, text="2026-03-27 08:59"):
        self.now = datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()

    def __call__(self):
        return self.now


@pytest.fixture
def in_berlin(monkeypatch):
    """The host is in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")


async def test_after_downtime_there_is_one_fire_that_says_what_it_stands_for(path, in_berlin):
    """SCHED-1, failure 6: not one for every day, not none, and nine o'clock stays nine o'clock."""
    clock = SetClock()
    async with open_broker(path, owner="first", clock=clock) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("operator").request_schedule(
            targets=["iris"], body="good morning", first_fire_at=clock.now, cron="0 9 * * *"
        )
    clock.now += 5 * 86_400
    for owner in ("second", "third"):
        async with open_broker(path, owner=owner, clock=clock) as broker:
            with trio.fail_after(5):
                await broker.mailbox("iris").wait_unread()
            (message,) = await broker.inbox("iris")
            assert message.sender == "schedule"
            assert message.body == (
                "good morning\n\n[schedule #1, requested by operator; the next one is at 2026-04-02 07:00:00 UTC; "
                "this one was due at 2026-03-27 08:00:00 UTC and is late because the hive or you were not there, "
                "it stands for 5 more that came due since and are skipped; "
                "what is caught up is spread over a while, so others may have it earlier or later]"
            )
            (schedule,) = await broker.mailbox("iris").schedules()
            assert (schedule.targets[0].skipped, schedule.status) == (5, ScheduleStatus.ACTIVE)


async def test_what_passed_before_the_approval_is_not_caught_up_and_a_single_date_is(path, in_berlin):
    """SCHED-1: it was not allowed to fire then."""
    clock = SetClock()
    async with open_broker(path, owner="test", clock=clock) as broker:
        await broker.set_agents(AGENTS)
        iris = broker.mailbox("iris")
        daily = await iris.request_schedule(
            targets=["iris"], body="daily", first_fire_at=clock.now, interval_seconds=86_400
        )
        once = await iris.request_schedule(targets=["iris"], body="once", first_fire_at=clock.now + 60)
        clock.now += 3 * 86_400 + 100
        for approval in await broker.approvals(pending_only=True):
            await broker.approve(approval.id)
        with trio.fail_after(5):
            while not (fired := [m for m in await broker.inbox("iris") if m.sender == "schedule"]):
                await iris.wait_unread()
                await iris.recv()
        assert [message.body.splitlines()[0] for message in fired] == ["once"]
        found = {schedule.id: schedule for schedule in await iris.schedules()}
        assert found[daily.id].targets[0].next_fire_at == daily.timetable.first_fire_at + 4 * 86_400
        assert found[daily.id].targets[0].skipped == 0
        assert found[once.id].status is ScheduleStatus.DONE


async def test_open_schedules_are_listed_before_those_that_are_over(broker):
    """SCHED-1."""
    operator = broker.mailbox("operator")
    made = [await operator.request_schedule(targets=["iris"], body=f"{n}", first_fire_at=FAR) for n in range(3)]
    await operator.cancel_schedule(made[2].id)
    assert [schedule.id for schedule in await operator.schedules()] == [made[1].id, made[0].id, made[2].id]


async def test_an_agent_that_left_can_request_nothing(broker):
    """SCHED-1."""
    await broker.set_agents(["ruth"])
    with pytest.raises(RequestRefused, match="only agents of this hive have schedules"):
        await broker.mailbox("iris").request_schedule(targets=["ruth"], body="x", first_fire_at=FAR)
    with pytest.raises(MessageRefused, match="there is no agent 'iris'"):
        await broker.mailbox("ruth").request_schedule(targets=["iris"], body="x", first_fire_at=FAR)


async def test_firing_out_of_turn_leaves_out_who_is_not_there_and_says_whom(broker):
    """SCHED-1."""
    operator = broker.mailbox("operator")
    schedule = await operator.request_schedule(targets=["iris", "ruth"], body="x", first_fire_at=FAR)
    await broker.set_agents(["ruth"])
    fired = await operator.fire_schedule_now(schedule.id)
    assert (fired.agents, fired.left_out) == (("ruth",), ("iris",))
    assert await broker.inbox("iris") == ()


async def test_the_operators_edit_of_what_waits_leaves_its_approval_as_it_is(broker):
    """SCHED-1: the operator knows what the operator wrote."""
    iris = broker.mailbox("iris")
    schedule = await iris.request_schedule(targets=["iris"], body="x", first_fire_at=FAR)
    edited = await broker.mailbox("operator").edit_schedule(schedule.id, ScheduleEdit(body="y"))
    assert (edited.status, edited.body, edited.requested_by) == (ScheduleStatus.PENDING, "y", "iris")
    (approval,) = await broker.approvals(pending_only=True)
    await broker.approve(approval.id)
    (found,) = await iris.schedules()
    assert (found.status, found.body) == (ScheduleStatus.ACTIVE, "y")


async def test_a_refused_edit_changes_nothing(broker):
    """SCHED-1: neither the prompt nor its approval."""
    iris = broker.mailbox("iris")
    schedule = await iris.request_schedule(targets=["iris"], body="x", first_fire_at=FAR)
    before = await broker.approvals()
    with pytest.raises(MessageRefused, match="there is no agent 'nobody'"):
        await iris.edit_schedule(schedule.id, ScheduleEdit(body="y", targets=("iris", "nobody")))
    with pytest.raises(RequestRefused, match="cron must be five fields"):
        await iris.edit_schedule(schedule.id, ScheduleEdit(body="y", cron="daily"))
    assert await iris.schedules() == (schedule,)
    assert await broker.approvals() == before


async def test_a_cron_over_a_long_time_is_counted_up_to_a_bound_and_said_so(path, in_berlin, monkeypatch):
    """SCHED-1."""
    monkeypatch.setattr(_timetable, "SKIPPED_CAP", 10)
    monkeypatch.setattr("hive_broker._schedules.SKIPPED_CAP", 10)
    clock = SetClock()
    async with open_broker(path, owner="first", clock=clock) as broker:
        await broker.set_agents(AGENTS)
        await broker.mailbox("operator").request_schedule(
            targets=["iris"], body="tick", first_fire_at=clock.now, cron="* * * * *"
        )
    clock.now += 86_400
    async with open_broker(path, owner="second", clock=clock) as broker:
        with trio.fail_after(5):
            await broker.mailbox("iris").wait_unread()
        (message,) = await broker.inbox("iris")
        assert "it stands for at least 10 more" in message.body
