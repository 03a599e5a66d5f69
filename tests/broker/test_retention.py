"""What is handled and old leaves, what is not stays, and what is left still makes sense."""

import apsw
import pytest

from hive_broker import _queries, _retention, _store, _todos
from hive_broker._migrate import migrate

DAY = 86_400
NOW = 1_000_000_000.0


@pytest.fixture
def db(tmp_path):
    connection = apsw.Connection(str(tmp_path / "old.sqlite"))
    connection.pragma("synchronous", "OFF")
    connection.pragma("foreign_keys", True)
    migrate(connection)
    _store.set_agents(connection, ("iris", "ruth"))
    yield connection
    assert connection.pragma("integrity_check") == "ok"
    assert connection.pragma("foreign_key_check") is None
    connection.close()


def send(db, *, now, sender="iris", to="ruth", **more):
    return _store.send(db, now=now, sender=sender, to=to, body="x", **more).value.id


def turn(db, *, now, agent="ruth", acked=True, limit=5):
    """One turn that pops, and ends at once."""
    lease = _store.open_turn(db, now=now, agent=agent, cause="mail").value
    _store.recv(db, now=now, agent=agent, limit=limit, turn_id=lease.id, lease_seconds=1)
    _store.close_turn(db, now=now, agent=agent, turn_id=lease.id, acked=acked, record="{}", max_deliveries=2)
    return lease.id


def drop_all(db, *, now):
    """Step after step until nothing more is old."""
    while _retention.drop_old(db, now=now).value:
        pass


def stored(db):
    return [message.id for message in reversed(_queries.history(db, limit=1000, before_id=None))]


def turns(db):
    return [id_ for (id_,) in db.execute("SELECT id FROM turns ORDER BY id")]


def test_acked_messages_leave_after_thirty_days_and_not_a_second_before(db):
    """REL-4: the instant that counts is the ack."""
    send(db, now=NOW - 100 * DAY)
    _store.ack_until(db, now=NOW, agent="ruth", up_to=10)
    edge = NOW + _retention.HANDLED_SECONDS
    assert _retention.seconds_to_drop(db, now=edge - 1) == 1
    drop_all(db, now=edge - 1)
    assert stored(db) == [1]
    assert _retention.seconds_to_drop(db, now=edge) == 0
    drop_all(db, now=edge)
    assert stored(db) == []
    assert _retention.seconds_to_drop(db, now=edge) is None


def test_what_nobody_handled_and_dead_letters_stay_for_ever(db):
    """MSG-5, MSG-6: unread, in flight, dead."""
    poison = send(db, now=NOW)
    for _ in range(2):
        turn(db, now=NOW, acked=False, limit=1)
    in_flight, unread = send(db, now=NOW), send(db, now=NOW)
    _store.recv(db, now=NOW, agent="ruth", limit=1, turn_id=None, lease_seconds=1e12)
    drop_all(db, now=NOW + 10_000 * DAY)
    told = stored(db)[1]
    assert stored(db) == [poison, told, in_flight, unread]
    assert [message.id for message in _queries.dead_letters(db, limit=10, before_id=None)] == [poison]


def test_a_thread_whose_beginning_left_is_still_a_thread(db):
    """MSG-11: found by any id of it, also by the one of its first message."""
    first = send(db, now=NOW)
    _store.ack_until(db, now=NOW, agent="ruth", up_to=first)
    second = send(db, now=NOW + 40 * DAY, sender="ruth", to="iris", in_reply_to=first)
    third = send(db, now=NOW + 40 * DAY, in_reply_to=second)
    drop_all(db, now=NOW + 41 * DAY)
    for id_ in (first, second, third):
        found = _queries.thread(db, id_)
        assert [(m.id, m.thread_id, m.in_reply_to) for m in found] == [(second, first, None), (third, first, second)]
    fourth = send(db, now=NOW + 41 * DAY, sender="ruth", to="iris", in_reply_to=third)
    assert [m.id for m in _queries.thread(db, first)] == [second, third, fourth]


def test_ids_of_what_left_are_not_given_out_again(db):
    """REL-5: also when everything left."""
    last, last_turn = send(db, now=NOW), turn(db, now=NOW)
    drop_all(db, now=NOW + 100 * DAY)
    assert (stored(db), turns(db)) == ([], [])
    assert send(db, now=NOW + 100 * DAY) == last + 1
    assert turn(db, now=NOW + 100 * DAY) == last_turn + 1


def test_a_closed_turn_keeps_its_figures_for_ninety_days(db):
    """TURN-7: longer than the messages it handled; an open one stays whatever its age."""
    send(db, now=NOW)
    closed = turn(db, now=NOW)
    still_open = _store.open_turn(db, now=NOW, agent="iris", cause="mail").value.id
    drop_all(db, now=NOW + 89 * DAY)
    assert (stored(db), turns(db)) == ([], [closed, still_open])
    drop_all(db, now=NOW + 90 * DAY)
    assert turns(db) == [still_open]


def test_a_turn_leaves_though_something_it_sent_is_unread_still(db):
    """MSG-9, TURN-7: nothing can be sent in it any more."""
    lease = _store.open_turn(db, now=NOW, agent="iris", cause="mail").value
    unread = send(db, now=NOW, turn_id=lease.id)
    _store.close_turn(db, now=NOW, agent="iris", turn_id=lease.id, acked=True, record="{}", max_deliveries=2)
    drop_all(db, now=NOW + 91 * DAY)
    assert (stored(db), turns(db)) == ([unread], [])
    assert _store.recv(db, now=NOW, agent="ruth", limit=1, turn_id=None, lease_seconds=1).value.remaining == 0


def test_todos_that_are_done_leave_and_open_ones_do_not(db):
    """WAKE-1."""
    for key in ("done", "open"):
        _todos.upsert_todo(db, now=NOW, agent="iris", subsystem="s", key=key, summary="x")
    _todos.clear_todo(db, now=NOW, agent="iris", subsystem="s", key="done")
    drop_all(db, now=NOW + 31 * DAY)
    assert db.execute("SELECT group_concat(key) FROM todos").get == "open"


def fill(db, *, rows, acked_at):
    insert = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
           INSERT INTO messages (sender, from_mailbox, recipient, body, thread_id, sent_at, acked_at, attempts)
           SELECT 'iris', 1, 'ruth', 'x', 1, 0, ?, 1 FROM n"""
    db.execute(insert, (rows, acked_at)).fetchall()


def instructions_of(db, work):
    """How many instructions SQLite runs: the same on every machine."""
    steps = [0]

    def count():
        steps[0] += 1
        return False

    db.set_progress_handler(count, 10)
    work()
    db.set_progress_handler(None)
    return steps[0] * 10


def test_a_step_takes_a_bounded_number_of_rows_and_says_that_there_are_more(db):
    """REL-4: whoever sends meanwhile does not wait for all of it."""
    fill(db, rows=450, acked_at=NOW)
    later = NOW + 31 * DAY
    assert [_retention.drop_old(db, now=later).value for _ in range(3)] == [True, True, False]
    assert stored(db) == []


@pytest.mark.slow
def test_a_step_costs_the_same_over_a_long_history(db):
    """REL-4: nothing is walked that stays, and no reply is searched for row by row."""

    def one_step():
        _retention.drop_old(db, now=NOW + 31 * DAY)

    fill(db, rows=200, acked_at=NOW)
    before = instructions_of(db, one_step)
    fill(db, rows=50_000, acked_at=NOW + 30 * DAY)
    fill(db, rows=200, acked_at=NOW)
    turn(db, now=NOW)
    after = instructions_of(db, one_step)
    assert after < before * 1.5
    assert instructions_of(db, lambda: _retention.seconds_to_drop(db, now=NOW)) < 500
