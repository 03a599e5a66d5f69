"""The store against a plain model of it: whatever happens in whatever order, both say the same."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import apsw
import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hive_broker import Acked, InboxCounts, MessageRefused, TurnOver, _queries, _store
from hive_broker._migrate import migrate
from hive_broker._writer import commit

AGENTS = ("iris", "otto", "ruth")
EVERYBODY = (*AGENTS, "operator")
LEASE_SECONDS = 10
MAX_DELIVERIES = 3

TEN_YEARS = 10 * 366 * 86_400

settings.register_profile("brief", max_examples=60, stateful_step_count=40, deadline=None)
settings.register_profile("torture", max_examples=2000, stateful_step_count=40, deadline=None)
PROFILE = os.environ.get("HIVE_MODEL_PROFILE", "brief")

agents = st.sampled_from(AGENTS)
everybody = st.sampled_from(EVERYBODY)


@attrs.define
class Row:
    """What the model knows of one message."""

    sender: str
    recipient: str
    body: str
    in_reply_to: int | None
    thread_id: int
    state: str = "unread"
    attempts: int = 0
    failures: int = 0
    held_by: int | float | None = None
    sent_in_turn: int | None = None


class StoreMachine(RuleBasedStateMachine):
    """Random lives of a store; every change runs in a transaction like the broker's."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store-0.sqlite"
        self.crashes = 0
        self.now = 1000.0
        self.rows: dict[int, Row] = {}
        self.turns: dict[str, int] = {}
        self.turns_ever: list[int] = []
        self.current = set(AGENTS)
        self.db = self.open()

    def open(self):
        db = apsw.Connection(str(self.path))
        db.pragma("journal_mode", "WAL")
        db.pragma("synchronous", "OFF")
        db.pragma("foreign_keys", True)
        migrate(db)
        return db

    def teardown(self):
        assert self.db.pragma("integrity_check") == "ok"
        self.db.close()
        self.folder.cleanup()

    def do(self, function, **arguments):
        def before_commit(db):
            assert db.in_transaction

        (answer,) = commit(self.db, works=[lambda db: function(db, **arguments)], before_commit=before_commit)
        return answer.unwrap().value

    @initialize()
    def name_agents(self):
        self.do(_store.set_agents, names=AGENTS)

    @rule(name=agents)
    def leave_or_return(self, name):
        self.current ^= {name}
        self.do(_store.set_agents, names=tuple(self.current))

    @rule(sender=everybody, to=everybody, body=st.sampled_from("ab"), reply=st.integers(0, 12), in_turn=st.booleans())
    def send(self, sender, to, body, reply, in_turn):
        turn_id = self.turns.get(sender) if in_turn else None
        in_reply_to = reply or None
        answered = self.rows.get(reply)
        repeated = [
            id_
            for id_, row in self.rows.items()
            if turn_id is not None
            and (row.sent_in_turn, row.recipient, row.body, row.in_reply_to) == (turn_id, to, body, in_reply_to)
        ]
        refused = (
            to not in self.current | {"operator"}
            or sender not in self.current | {"operator"}
            or (in_reply_to is not None and (answered is None or sender not in (answered.sender, answered.recipient)))
        )
        arguments = {"now": self.now, "sender": sender, "to": to, "body": body}
        arguments |= {"in_reply_to": in_reply_to, "turn_id": turn_id}
        if refused and not repeated:
            with pytest.raises(MessageRefused):
                self.do(_store.send, **arguments)
            return
        sent = self.do(_store.send, **arguments)
        assert sent.duplicate == bool(repeated)
        if repeated:
            assert [sent.id] == repeated
            return
        assert sent.id > max(self.rows, default=0)
        thread_id = answered.thread_id if answered is not None else sent.id
        self.rows[sent.id] = Row(sender, to, body, in_reply_to, thread_id, sent_in_turn=turn_id)

    @rule(name=everybody, limit=st.integers(1, 5), in_turn=st.booleans())
    def recv(self, name, limit, in_turn):
        turn_id = self.turns.get(name) if in_turn else None
        received = self.do(
            _store.recv, now=self.now, agent=name, limit=limit, turn_id=turn_id, lease_seconds=LEASE_SECONDS
        )
        unread = sorted(id_ for id_, row in self.rows.items() if (row.recipient, row.state) == (name, "unread"))
        for id_ in unread[:limit]:
            self.rows[id_].attempts += 1
            self.rows[id_].state = "timed" if turn_id is None else "turn"
            self.rows[id_].held_by = self.now + LEASE_SECONDS if turn_id is None else turn_id
        assert [d.message.id for d in received.deliveries] == unread[:limit]
        assert [d.attempt for d in received.deliveries] == [self.rows[id_].attempts for id_ in unread[:limit]]
        assert received.remaining == len(unread[limit:])

    @rule(name=everybody, up_to=st.integers(0, 20))
    def ack_until(self, name, up_to):
        acked = self.do(_store.ack_until, now=self.now, agent=name, up_to=up_to)
        stamped = [
            row
            for id_, row in self.rows.items()
            if row.recipient == name and id_ <= up_to and row.state in ("unread", "turn", "timed")
        ]
        for row in stamped:
            row.state, row.held_by = "acked", None
        assert acked == Acked(acked=len(stamped), never_read=sum(row.attempts == 0 for row in stamped))

    @rule(name=agents)
    def open_turn(self, name):
        if name in self.turns:
            with pytest.raises(TurnOver):
                self.do(_store.open_turn, now=self.now, agent=name, cause="mail")
            return
        turn = self.do(_store.open_turn, now=self.now, agent=name, cause="mail")
        assert turn.id > max(self.turns_ever, default=0)
        self.turns[name] = turn.id
        self.turns_ever.append(turn.id)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), acked=st.booleans(), blameless=st.booleans())
    def close_turn(self, data, acked, blameless):
        name = data.draw(st.sampled_from(sorted(self.turns)))
        turn_id = self.turns.pop(name)
        held = [id_ for id_, row in self.rows.items() if row.held_by == turn_id and row.state == "turn"]
        arguments = {"now": self.now, "agent": name, "turn_id": turn_id, "acked": acked, "blameless": blameless}
        arguments |= {"record": json.dumps({"acked": acked}), "max_deliveries": MAX_DELIVERIES}
        closed = self.do(_store.close_turn, **arguments)
        if acked:
            for id_ in held:
                self.rows[id_].state, self.rows[id_].held_by = "acked", None
            assert closed.acked == tuple(sorted(held))
        else:
            returned, dead = self.come_back(held, blameless=blameless)
            assert (closed.returned, closed.dead) == (returned, dead)
        again = self.do(_store.close_turn, **arguments)
        assert (again.acked, again.returned, again.dead) == ((), (), ())

    @rule(seconds=st.integers(-30, 15) | st.sampled_from([-TEN_YEARS, TEN_YEARS]))
    def let_time_pass(self, seconds):
        self.now += seconds
        arguments = {"lease_seconds": LEASE_SECONDS, "max_deliveries": MAX_DELIVERIES}
        self.do(_store.end_expired_leases, now=self.now, **arguments)
        for row in self.rows.values():
            if row.state == "timed":
                row.held_by = min(row.held_by, self.now + LEASE_SECONDS)
        self.come_back([id_ for id_, row in self.rows.items() if row.state == "timed" and row.held_by <= self.now])

    @rule()
    def reopen(self):
        self.db.close()
        self.begin_next_life()

    @rule(name=agents, sends=st.integers(0, 2))
    def crash(self, name, sends):
        """End in the middle of a transaction, and go on with the files as they are in that instant."""
        self.db.execute("BEGIN IMMEDIATE")
        for _ in range(sends):
            _store.send(self.db, now=self.now, sender="operator", to="operator", body="never committed")
            _store.ack_until(self.db, now=self.now, agent=name, up_to=1000)
        self.db.cache_flush()
        left_behind = self.path
        self.crashes += 1
        self.path = left_behind.with_name(f"store-{self.crashes}.sqlite")
        for part in ("", "-wal"):
            shutil.copy(f"{left_behind}{part}", f"{self.path}{part}")
        self.db.close(force=True)
        self.begin_next_life()

    def begin_next_life(self):
        self.db = self.open()
        self.do(_store.end_previous_life, now=self.now, max_deliveries=MAX_DELIVERIES)
        self.turns.clear()
        for state in ("turn", "timed"):
            self.come_back([id_ for id_, row in self.rows.items() if row.state == state])

    def come_back(self, held, *, blameless=False):
        """The model's end of a lease; takes up the notices that the store wrote to senders."""
        returned, dead = [], []
        for id_ in sorted(held):
            row = self.rows[id_]
            row.held_by = None
            row.failures += not blameless
            row.state = "dead" if row.failures >= MAX_DELIVERIES else "unread"
            (dead if row.state == "dead" else returned).append(id_)
        for id_ in dead:
            row = self.rows[id_]
            if row.sender in self.current | {"operator"}:
                notice_id = max(self.rows) + 1
                notice = self.message(notice_id)
                assert json.loads(notice.body)["id"] == id_
                self.rows[notice_id] = Row("system", row.sender, notice.body, id_, row.thread_id)
        return tuple(returned), tuple(dead)

    def message(self, id_):
        (found,) = _queries.history(self.db, limit=1, before_id=id_ + 1)
        assert found.id == id_
        return found

    @invariant()
    def the_rows_are_the_models(self):
        for message in _queries.history(self.db, limit=1000, before_id=None):
            row = self.rows[message.id]
            assert (message.sender, message.recipient, message.body) == (row.sender, row.recipient, row.body)
            assert (message.in_reply_to, message.thread_id) == (row.in_reply_to, row.thread_id)
            assert message.attempts == row.attempts
            assert (message.acked_at is not None) == (row.state == "acked")
            assert (message.dead_at is not None) == (row.state == "dead")
        assert len(_queries.history(self.db, limit=1000, before_id=None)) == len(self.rows)

    @invariant()
    def the_figures_are_the_models(self):
        counts = _queries.counts(self.db)
        for name in EVERYBODY:
            states = [row.state for row in self.rows.values() if row.recipient == name]
            expected = InboxCounts(
                unread=states.count("unread"),
                in_flight=states.count("turn") + states.count("timed"),
                dead=states.count("dead"),
            )
            assert counts.get(name, InboxCounts()) == expected
            assert _queries.has_unread(self.db, name) == (expected.unread > 0)
            assert _queries.summary(self.db, name).unread == expected.unread
        leases = [row.held_by for row in self.rows.values() if row.state == "timed"]
        assert _queries.next_expiry(self.db) == min(leases, default=None)


TestStore = pytest.mark.slow(StoreMachine.TestCase)
TestStore.settings = settings.get_profile(PROFILE)
