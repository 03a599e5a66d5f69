"""What a turn asks of the database costs the same over an empty history and over a long one."""

import apsw
import pytest

from hive_broker import _queries, _store
from hive_broker._migrate import migrate

AGENTS = ("iris", "ruth")


@pytest.fixture
def db(tmp_path):
    connection = apsw.Connection(str(tmp_path / "store.sqlite"))
    connection.pragma("synchronous", "OFF")
    migrate(connection)
    _store.set_agents(connection, AGENTS)
    yield connection
    connection.close()


def one_turn(db):
    """Everything that happens in a turn, and everything around it that happens as often."""
    turn = _store.open_turn(db, now=1, agent="ruth", cause="mail").value
    first = _store.send(db, now=1, sender="iris", to="ruth", body="1").value
    for body in ("2", "3", "4", "5"):
        _store.send(db, now=1, sender="iris", to="ruth", body=body, in_reply_to=first.id)
    _queries.has_unread(db, "ruth")
    _queries.summary(db, "ruth")
    _store.recv(db, now=1, agent="ruth", limit=2, turn_id=turn.id, lease_seconds=1)
    _store.recv(db, now=1, agent="ruth", limit=1, turn_id=None, lease_seconds=1)
    _store.send(db, now=1, sender="ruth", to="iris", body="x", in_reply_to=first.id, turn_id=turn.id)
    _store.send(db, now=1, sender="ruth", to="iris", body="x", in_reply_to=first.id, turn_id=turn.id)
    _store.ack_until(db, now=1, agent="ruth", up_to=first.id)
    _store.close_turn(db, now=1, agent="ruth", turn_id=turn.id, acked=False, record="{}", max_deliveries=5)
    _queries.next_expiry(db)
    _store.end_expired_leases(db, now=9, lease_seconds=1, max_deliveries=1)
    again = _store.open_turn(db, now=1, agent="ruth", cause="mail").value
    _store.recv(db, now=1, agent="ruth", limit=5, turn_id=again.id, lease_seconds=1)
    _store.close_turn(db, now=1, agent="ruth", turn_id=again.id, acked=True, record="{}", max_deliveries=5)
    _store.ack_until(db, now=1, agent="iris", up_to=2**63)
    _queries.inbox(db, "ruth", limit=5, before_id=None, unread_only=False)
    _queries.inbox(db, "ruth", limit=5, before_id=None, unread_only=True)
    _queries.history(db, limit=5, before_id=None)
    _queries.thread(db, first.id)


def look_around(db):
    """What is asked by pages and at opening: may walk the open rows, not the handled ones."""
    _queries.counts(db)
    _queries.dead_letters(db, limit=5, before_id=None)
    _store.end_previous_life(db, now=1, max_deliveries=5)


def statements_of(db, work):
    seen = set()

    def note(cursor, sql, bindings):
        seen.add((sql, cursor.bindings_count))
        return True

    db.exec_trace = note
    work(db)
    db.exec_trace = None
    return seen


def steps_of(db, work):
    """How many instructions SQLite runs: the same on every machine."""
    steps = [0]

    def count():
        steps[0] += 1
        return False

    db.set_progress_handler(count, 10)
    work(db)
    db.set_progress_handler(None)
    return steps[0] * 10


def plans_of(db, work):
    for sql, bindings_count in sorted(statements_of(db, work)):
        for *_, detail in db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * bindings_count).fetchall():
            yield sql, detail


def test_every_query_of_a_turn_uses_an_index(db):
    """MSG-4, MSG-5, MSG-7."""
    plans = list(plans_of(db, one_turn))
    assert len(plans) > 15
    assert [plan for plan in plans if plan[1].startswith("SCAN") and plan[1] != "SCAN CONSTANT ROW"] == []


def test_pages_and_opening_walk_partial_indexes_only(db):
    """DASH-1: their size is that of what is open or dead."""
    scans = {detail for _, detail in plans_of(db, look_around) if detail.startswith("SCAN")}
    assert {detail.split(" USING ")[-1].removeprefix("COVERING ") for detail in scans} <= {
        "INDEX messages_unread",
        "INDEX messages_unacked",
        "INDEX messages_dead",
        "INDEX messages_in_turn",
        "INDEX messages_timed",
        "INDEX turns_open",
        "SCAN agents",
    }


@pytest.mark.slow
def test_a_turn_costs_the_same_after_many_handled_messages(db):
    """MSG-4, MSG-7: fifty thousand rows cost at least as many instructions where they are walked."""
    one_turn(db)
    before = steps_of(db, one_turn), steps_of(db, look_around)
    insert = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
           INSERT INTO messages (sender, from_mailbox, recipient, body, thread_id, sent_at, acked_at, attempts)
           SELECT 'iris', 1, 'ruth', 'x', 1000000 + i, 0, 1, 1 FROM n"""
    db.execute(insert).fetchall()
    after = steps_of(db, one_turn), steps_of(db, look_around)
    assert after[0] < before[0] + 1000
    assert after[1] < before[1] + 1000
