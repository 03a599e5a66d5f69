"""The task behind everything due, over a store that runs inline: time jumps, nothing sleeps."""

import json
import logging
import math
from datetime import UTC
from functools import partial

import apsw
import pytest
import trio
import trio.testing

from hive_broker import BrokerUnavailable, Timetable, _reminders, _retention, _schedule_requests, _schedules, _store
from hive_broker._clock import FIRES_A_STEP, DueClock, DueRules
from hive_broker._migrate import migrate
from hive_broker._queries import history

RULES = DueRules(lease_seconds=600, max_deliveries=5, zone=UTC)
START = 1_000_000.0
WEEK = 7 * 86_400


class Host:
    """A database, a wall clock that a person can set, and the clock task between them."""

    def __init__(self, db):
        self.db = db
        self.offset_seconds = START
        self.agents = [f"agent-{n}" for n in range(60)]
        self.fired = []
        self.failures = []
        self.looks = 0
        self.due = DueClock(RULES, clock=self.now, glance=self.glance, change=self.change)

    def now(self):
        return self.offset_seconds + trio.current_time()

    def glance(self, question):
        self.looks += 1
        return question(self.db)

    async def change(self, work):
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop()
        return self.do(work)

    def do(self, work, **arguments):
        """Have a change made, and tell the clock, as the engine does after a commit."""
        done = partial(work, **arguments)(self.db)
        for event in done.flow:
            self.due.follow(event)
        return done.value

    def remind(self, agent, *, delay_seconds):
        return self.do(
            _reminders.add_reminder,
            now=self.now(),
            agent=agent,
            message="x",
            delay_seconds=delay_seconds,
            at=None,
            spill_path=None,
            max_pending=50,
        )

    def schedule(self, agents, **timetable):
        return self.do(
            _schedule_requests.request_schedule,
            now=self.now(),
            zone=UTC,
            requested_by="operator",
            targets=agents,
            body="x",
            timetable=Timetable(**timetable),
            description=None,
        )

    def messages(self):
        """Everything that fired, oldest first: to whom and when by the wall clock."""
        return [(m.recipient, m.sent_at) for m in reversed(history(self.db, limit=1000, before_id=None))]


@pytest.fixture
def db(tmp_path):
    connection = apsw.Connection(str(tmp_path / "due.sqlite"))
    connection.pragma("synchronous", "OFF")
    migrate(connection)
    yield connection
    connection.close()


@pytest.fixture
async def host(db, nursery):
    """A host whose clock task runs, with nothing to wait for yet."""
    made = Host(db)
    made.do(_store.set_agents, names=made.agents)
    nursery.start_soon(made.due.run)
    await trio.testing.wait_all_tasks_blocked()
    yield made
    nursery.cancel_scope.cancel()


def seconds_to_deadline():
    return trio.lowlevel.current_statistics().seconds_to_next_deadline


async def test_with_nothing_to_wait_for_there_is_no_timer(host, autojump_clock):
    """TURN-2: an idle hive sleeps."""
    assert seconds_to_deadline() == math.inf
    reminder = host.remind("agent-0", delay_seconds=30)
    await trio.testing.wait_all_tasks_blocked()
    assert 0 < seconds_to_deadline() <= 30
    host.do(_reminders.cancel_reminder, agent="agent-0", reminder_id=reminder.id)
    await trio.testing.wait_all_tasks_blocked()
    assert seconds_to_deadline() == math.inf


async def test_what_is_stored_later_and_due_earlier_fires_first_and_in_time(host, autojump_clock):
    """INB-3."""
    begun = host.now()
    host.remind("agent-0", delay_seconds=50)
    await trio.testing.wait_all_tasks_blocked()
    host.remind("agent-1", delay_seconds=10)
    await trio.sleep(60)
    assert host.messages() == [("agent-1", begun + 10), ("agent-0", begun + 50)]


async def test_it_looks_at_the_wall_clock_every_minute_and_not_more_often(host, autojump_clock):
    """REL-3: a suspended host, or a clock set forward, is noticed within a minute."""
    host.remind("agent-0", delay_seconds=WEEK)
    await trio.testing.wait_all_tasks_blocked()
    looks = host.looks
    await trio.sleep(600)
    assert 9 <= host.looks - looks <= 11
    host.offset_seconds += WEEK
    await trio.sleep(61)
    assert [agent for agent, _ in host.messages()] == ["agent-0"]


async def test_a_clock_set_back_delays_a_reminder_and_fires_it_once(host, autojump_clock):
    """INB-3, REL-3: it is for an hour of the wall clock."""
    host.remind("agent-0", delay_seconds=30)
    host.offset_seconds -= 3600
    await trio.sleep(3500)
    assert host.messages() == []
    await trio.sleep(200)
    assert [agent for agent, _ in host.messages()] == ["agent-0"]
    host.offset_seconds -= 3600
    await trio.sleep(4000)
    assert len(host.messages()) == 1


async def test_a_small_step_back_over_an_instant_makes_no_second_fire(host, autojump_clock):
    """SCHED-1, REL-3: the clock is corrected by seconds all the time."""
    host.schedule(["agent-0"], first_fire_at=host.now() + 10, interval_seconds=600)
    await trio.sleep(11)
    assert len(host.messages()) == 1
    host.offset_seconds -= 20
    await trio.sleep(300)
    assert len(host.messages()) == 1
    await trio.sleep(400)
    assert len(host.messages()) == 2


async def test_a_schedule_fires_on_after_a_clock_that_was_a_year_ahead(host, autojump_clock):
    """SCHED-1, REL-3: it does not wait for that year to come."""
    host.schedule(["agent-0"], first_fire_at=host.now() + 600, interval_seconds=600)
    host.offset_seconds += 365 * 86_400
    await trio.sleep(120)
    assert len(host.messages()) == 1
    host.offset_seconds -= 365 * 86_400
    await trio.sleep(700)
    assert len(host.messages()) == 2
    await trio.sleep(600)
    assert len(host.messages()) == 3


async def test_fifty_two_agents_do_not_wake_in_one_instant_after_a_week(host, autojump_clock, caplog):
    """SCHED-1, failure 16: each gets one prompt that stands for all it missed, and says so."""
    host.schedule(host.agents[:52], first_fire_at=host.now() + 3600, interval_seconds=3600)
    with caplog.at_level(logging.WARNING, logger="hive_broker"):
        host.offset_seconds += WEEK
        await trio.sleep(120)
    sent = host.messages()
    assert sorted(agent for agent, _ in sent) == sorted(host.agents[:52])
    at = [when for _, when in sent]
    assert max(at.count(when) for when in at) == FIRES_A_STEP
    assert at[-1] - at[0] >= 10
    assert caplog.text.count("many reminders and schedules are due") == 1
    body = history(host.db, limit=1, before_id=None)[0].body
    assert "stands for 167 more that came due since and are skipped" in body
    assert "spread over a while" in body
    (schedule,) = _schedules.list_schedules(host.db, about=None, limit=1)
    assert {target.skipped for target in schedule.targets} == {167}
    assert len({target.next_fire_at for target in schedule.targets}) == 1


async def test_what_is_for_an_agent_that_left_waits_for_its_return(host, autojump_clock):
    """INB-3, SCHED-1: not lost, not spinning, and said to be late."""
    host.remind("agent-0", delay_seconds=100)
    host.schedule(["agent-0", "agent-1"], first_fire_at=host.now() + 100, interval_seconds=100)
    host.do(_store.set_agents, names=host.agents[1:])
    looks = host.looks
    await trio.sleep(350)
    assert host.looks - looks < 20
    assert {agent for agent, _ in host.messages()} == {"agent-1"}
    host.do(_store.set_agents, names=host.agents)
    await trio.sleep(1)
    bodies = [m.body for m in history(host.db, limit=10, before_id=None) if m.recipient == "agent-0"]
    assert len(bodies) == 2
    assert all("late" in body for body in bodies)


async def test_what_cannot_be_done_is_done_later(host, autojump_clock, caplog):
    """REL-3: recovery without a restart."""
    host.failures.append(BrokerUnavailable("the disk is full"))
    begun = host.now()
    with caplog.at_level(logging.WARNING, logger="hive_broker"):
        host.remind("agent-0", delay_seconds=10)
        await trio.sleep(80)
    assert host.messages() == [("agent-0", begun + 70)]
    assert "what is due could not be done, trying again in a minute: the disk is full" in caplog.text


async def test_a_backlog_of_old_rows_leaves_step_by_step_while_all_else_goes_on(host, autojump_clock):
    """REL-4: and the clock then waits for the next to be old enough, hours at a time."""
    host.db.execute(
        """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
           INSERT INTO messages (sender, from_mailbox, recipient, body, thread_id, sent_at, acked_at, attempts)
           SELECT 'agent-1', 1, 'agent-2', 'x', i, 0, ?, 1 FROM n""",
        (host.now() - _retention.HANDLED_SECONDS + 100,),
    )
    host.remind("agent-0", delay_seconds=101)
    await trio.sleep(101.5)
    left = host.db.execute("SELECT count(*) FROM messages WHERE recipient = 'agent-2'").get
    assert 0 < left < 1000
    await trio.sleep(10)
    assert [agent for agent, _ in host.messages()] == ["agent-0"]
    looks = host.looks
    host.do(_store.ack_until, now=host.now(), agent="agent-0", up_to=2000)
    await trio.sleep(86_400)
    assert 20 < host.looks - looks < 30


async def test_a_lease_that_ends_is_seen_by_the_same_clock(host, autojump_clock):
    """MSG-5."""
    host.do(_store.deliver, now=host.now(), sender="ci", to="agent-0", body=json.dumps({}))
    arguments = {"agent": "agent-0", "limit": 1, "turn_id": None, "lease_seconds": 600}
    host.do(_store.recv, now=host.now(), **arguments)
    await trio.sleep(599)
    assert host.do(_store.recv, now=host.now(), **arguments).deliveries == ()
    await trio.sleep(2)
    assert len(host.do(_store.recv, now=host.now(), **arguments).deliveries) == 1
