"""What is due against a plain model of it: however time moves and whoever is there, each instant counts once."""

import tempfile
from datetime import UTC
from pathlib import Path

import apsw
import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hive_broker import Timetable, _reminders, _schedule_requests, _schedules, _store
from hive_broker._clock import FIRES_A_STEP, DueRules, do_due, seconds_to_next
from hive_broker._migrate import migrate
from hive_broker._queries import history
from hive_broker._writer import commit

AGENTS = ("iris", "otto", "ruth")
RULES = DueRules(lease_seconds=600, max_deliveries=5, zone=UTC)
START = 1_000_000


@attrs.define
class Target:
    """What the model knows of one agent of a schedule."""

    first: int
    interval: int | None
    next_at: int | None
    last_at: int | None = None
    skipped: int = 0

    def instants(self, until):
        """All instants up to a while after ``until``, the long way round."""
        if self.interval is None:
            return [self.first]
        return [self.first + n * self.interval for n in range(max(2, (until - self.first) // self.interval + 4))]

    def correct(self, now):
        """A fire in the future: the clock was set back. More than one instant that comes again fires again."""
        if self.next_at is None or self.last_at is None or self.last_at <= now:
            return
        again = [x for x in self.instants(self.next_at) if now < x < self.next_at]
        if len(again) >= 2:
            self.next_at = again[0]

    def fire(self, now):
        """One fire for all that is due."""
        instants = self.instants(now)
        self.skipped += len([x for x in instants if self.next_at < x <= now])
        self.next_at = next((x for x in instants if x > now and x > self.next_at), None)
        self.last_at = now


class DueMachine(RuleBasedStateMachine):
    """Random lives of what is due; every step runs in a transaction like the broker's."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.db = apsw.Connection(str(Path(self.folder.name) / "due.sqlite"))
        self.db.pragma("synchronous", "OFF")
        self.db.pragma("foreign_keys", True)
        migrate(self.db)
        self.now = START
        self.current = set(AGENTS)
        self.reminders: dict[int, tuple[str, int]] = {}
        self.targets: dict[tuple[int, str], Target] = {}
        self.fired: list[tuple[str, str, str]] = []

    def teardown(self):
        assert self.db.pragma("integrity_check") == "ok"
        self.db.close()
        self.folder.cleanup()

    def do(self, function, **arguments):
        works = [lambda db: function(db, **arguments)]
        (answer,) = commit(self.db, works=works, before_commit=lambda db: None)
        return answer.unwrap().value

    @initialize()
    def name_agents(self):
        self.do(_store.set_agents, names=AGENTS)

    @rule(name=st.sampled_from(AGENTS))
    def leave_or_return(self, name):
        self.current ^= {name}
        self.do(_store.set_agents, names=tuple(self.current))

    @precondition(lambda self: self.current)
    @rule(data=st.data(), delay=st.integers(0, 4000))
    def remind(self, data, delay):
        agent = data.draw(st.sampled_from(sorted(self.current)))
        reminder = self.do(
            _reminders.add_reminder,
            now=self.now,
            agent=agent,
            message="remember",
            delay_seconds=delay,
            at=None,
            spill_path=None,
            max_pending=50,
        )
        assert reminder.id > max(self.reminders, default=0)
        self.reminders[reminder.id] = (agent, self.now + delay)

    @precondition(lambda self: self.reminders)
    @rule(data=st.data())
    def cancel_reminder(self, data):
        number = data.draw(st.sampled_from(sorted(self.reminders)))
        agent, _ = self.reminders.pop(number)
        self.do(_reminders.cancel_reminder, agent=agent, reminder_id=number)

    @precondition(lambda self: self.current)
    @rule(data=st.data(), ahead=st.integers(1, 4000), interval=st.none() | st.integers(60, 900))
    def schedule(self, data, ahead, interval):
        agents = data.draw(st.lists(st.sampled_from(sorted(self.current)), min_size=1, unique=True))
        first = self.now + ahead
        schedule = self.do(
            _schedule_requests.request_schedule,
            now=self.now,
            zone=UTC,
            requested_by="operator",
            targets=agents,
            body="do it",
            timetable=Timetable(first_fire_at=first, interval_seconds=interval),
            description=None,
        )
        for agent in agents:
            self.targets[schedule.id, agent] = Target(first, interval, first)

    @rule(seconds=st.integers(-6000, 6000) | st.integers(-3, 3) | st.just(604_800))
    def let_time_pass(self, seconds):
        self.now += seconds
        for target in self.targets.values():
            target.correct(self.now)
        expected = self.expect()
        seen = len(history(self.db, limit=1000, before_id=None))
        steps = 0
        while seconds_to_next(self.db, now=self.now, rules=RULES) == 0:
            step = self.do(do_due, now=self.now, rules=RULES)
            assert step.fired <= FIRES_A_STEP
            assert step.more == (step.fired == FIRES_A_STEP)
            steps += 1
            assert steps < 100, "it fires for ever"
        found = history(self.db, limit=1000, before_id=None)
        new = [(m.sender, m.recipient, m.body.splitlines()[0]) for m in found[: len(found) - seen]]
        assert sorted(new) == sorted(expected)

    def expect(self):
        """What the model fires now."""
        expected = []
        for number, (agent, fires_at) in list(self.reminders.items()):
            if fires_at <= self.now and agent in self.current:
                expected.append(("reminder", agent, "remember"))
                del self.reminders[number]
        for (_, agent), target in self.targets.items():
            if target.next_at is not None and target.next_at <= self.now and agent in self.current:
                target.fire(self.now)
                expected.append(("schedule", agent, "do it"))
        return expected

    @invariant()
    def what_is_pending_is_the_models(self):
        assert sum(_reminders.reminder_counts(self.db).values()) == len(self.reminders)
        stored = {
            (schedule.id, target.agent): (target.next_fire_at, target.last_fired_at, target.skipped)
            for schedule in _schedules.list_schedules(self.db, about=None, limit=1000)
            for target in schedule.targets
        }
        assert stored == {key: (t.next_at, t.last_at, t.skipped) for key, t in self.targets.items()}

    @invariant()
    def the_next_look_is_no_later_than_the_next_instant_and_a_minute(self):
        waits = [at for agent, at in self.reminders.values() if agent in self.current]
        waits += [
            t.next_at for (_, agent), t in self.targets.items() if t.next_at is not None and agent in self.current
        ]
        seconds = seconds_to_next(self.db, now=self.now, rules=RULES)
        if waits:
            assert seconds == max(0, min(min(waits) - self.now, 60))
        else:
            assert seconds == float("inf")


TestDue = pytest.mark.slow(DueMachine.TestCase)
TestDue.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
