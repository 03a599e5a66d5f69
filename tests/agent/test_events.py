"""The event log of an agent: real files, real failures."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hive_agent import AgentEvent, EventKind, EventLog, EventLogUnavailable, _events
from hive_agent._events import EVENT_LIMIT_CHARACTERS, PRUNE_EVERY, RETRY_SECONDS, STREAM_DAYS, WATCH_BUFFER

NOW = 1_800_000_000.0


class Hour:
    """A clock that stands where it is put."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hour() -> Hour:
    """The clock of the test."""
    return Hour()


@pytest.fixture
def path(tmp_path) -> Path:
    """Where the log is."""
    return tmp_path / "events.sqlite"


@pytest.fixture
def open_log(path, hour) -> Iterator[Callable[[], EventLog]]:
    """Opens the log, also several times over; all are closed at the end."""
    opened: list[EventLog] = []

    def _open() -> EventLog:
        opened.append(EventLog(path, clock=hour))
        return opened[-1]

    yield _open
    for log in opened:
        log.close()


@pytest.fixture
def log(open_log) -> EventLog:
    """A log with nothing in it."""
    return open_log()


def note(log: EventLog, text: str) -> None:
    """Keep one sentence."""
    log.append(EventKind.NOTE, {"text": text})


def texts(log: EventLog) -> list[Any]:
    """The sentences that are kept."""
    return [event.data.get("text") for event in log.history()]


def test_an_agent_that_never_ran_has_no_file(log, path):
    """BUS-1: reading makes none either."""
    assert log.history() == ()
    log.prune()
    log.close()
    assert not path.exists()


def test_events_come_back_in_order_with_rising_numbers(log, open_log):
    """BUS-1: durable and replayable, by this log and the next."""
    log.append(EventKind.TURN_START, {"unread": 2}, turn_id=7)
    log.append(EventKind.STREAM, {"type": "assistant"}, turn_id=7)
    log.append(EventKind.NOTE, {"text": "ünïcode ✓"})
    kept = log.history()

    assert [event.seq for event in kept] == [1, 2, 3]
    assert kept[0] == AgentEvent(seq=1, at=NOW, kind=EventKind.TURN_START, turn_id=7, data={"unread": 2})
    log.close()
    assert open_log().history() == kept


def test_a_reader_goes_on_where_it_was(log):
    """BUS-3: after a number, and no more than it asked for."""
    for number in range(5):
        note(log, str(number))

    assert [event.seq for event in log.history(after=2, limit=2)] == [3, 4]
    assert log.history(after=5) == ()


def test_the_file_is_ours_alone(log, path):
    """SEC-5: what agents print is not for everybody on the machine."""
    note(log, "x")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_watchers_see_each_event_once_it_is_kept(path, hour):
    """BUS-3: in order, and `observe` before them."""
    seen: list[int] = []
    log = EventLog(path, clock=hour, observe=lambda event: seen.append(event.seq))
    note(log, "before")
    with log.watch() as one, log.watch() as other:
        note(log, "a")
        note(log, "b")
        assert [one.receive_nowait().data["text"] for _ in range(2)] == ["a", "b"]
        assert other.receive_nowait() == log.history(after=1)[0]
    note(log, "after")
    log.close()

    assert seen == [1, 2, 3, 4]


async def test_a_slow_watcher_is_dropped_and_can_replay(log):
    """BUS-3: it gets what it had room for, then the end; the others and the writer do not wait."""
    with log.watch() as slow, log.watch() as quick:
        for number in range(WATCH_BUFFER + 1):
            note(log, str(number))
            quick.receive_nowait()
        with trio.fail_after(5):
            got = [event.seq async for event in slow]
        note(log, "more")
        assert quick.receive_nowait().data == {"text": "more"}

    assert got == list(range(1, WATCH_BUFFER + 1))
    assert [event.seq for event in log.history(after=got[-1])] == [WATCH_BUFFER + 1, WATCH_BUFFER + 2]


async def test_closing_the_log_ends_its_watchers(log):
    """STOP-3: nobody waits for events that cannot come."""
    with log.watch() as watcher:
        note(log, "last")
        log.close()
        with trio.fail_after(5):
            assert [event.data["text"] async for event in watcher] == ["last"]


async def test_a_watcher_that_left_is_not_served(log):
    """BUS-3: its channel may be gone before its block ends."""
    with log.watch() as watcher:
        watcher.close()
        note(log, "x")
    note(log, "y")

    assert texts(log) == ["x", "y"]


def test_a_long_event_is_kept_shortened(log, path):
    """BUS-1: bounded: one tool result must not fill the disk."""
    log.append(EventKind.STREAM, {"type": "user", "content": '"' * 3_000_000})
    (event,) = log.history()

    assert event.data["shortened"] is True
    assert event.data["characters"] > 3_000_000
    assert len(event.data["beginning"]) == EVENT_LIMIT_CHARACTERS
    assert event.data["beginning"].startswith('{"type":"user"')
    log.close()
    assert path.stat().st_size < 8 * EVENT_LIMIT_CHARACTERS


def test_an_event_of_the_limit_is_kept_whole(log):
    """BUS-1: the limit counts the characters of the JSON text."""
    text = "x" * (EVENT_LIMIT_CHARACTERS - len('{"text":""}'))
    note(log, text)
    note(log, text + "x")

    assert texts(log) == [text, None]


TEXT = st.text(st.characters(codec=None)) | st.sampled_from(["\ud800", "\udc00\\", '\\"\ud83d', "\0", "\u2028"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=4,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(TEXT, JSON))
def test_whatever_was_kept_comes_back_as_it_was(log, data):
    """BUS-1: halves of characters included, which JSON allows and SQLite does not."""
    log.append(EventKind.STREAM, data)

    assert log.history(limit=10**6)[-1].data == json.loads(json.dumps(data))


def test_expired_stream_rows_go_and_the_rest_stays(log, hour):
    """BUS-1: what the runtime printed is kept for 14 days, what happened is kept."""
    log.append(EventKind.STREAM, {"n": 1})
    log.append(EventKind.TURN_END, {"n": 2})
    hour.now += STREAM_DAYS * 86400 + 1
    log.append(EventKind.STREAM, {"n": 3})
    log.prune()

    assert [event.data["n"] for event in log.history()] == [2, 3]


def test_rows_expire_as_fast_as_they_come(log, hour):
    """BUS-1: bounded, however many lines one turn has."""
    for _ in range(4 * PRUNE_EVERY):
        log.append(EventKind.STREAM, {})
    hour.now += STREAM_DAYS * 86400 + 1
    for _ in range(4 * PRUNE_EVERY):
        log.append(EventKind.STREAM, {})

    assert log.history()[0].seq == 4 * PRUNE_EVERY + 1


async def test_a_turn_that_floods_the_log_is_kept_up_to_a_bound_and_says_so(log, hour, monkeypatch):
    """BUS-1, BUS-3: its further lines reach neither file nor watchers, one note tells, and the next turn is heard."""
    monkeypatch.setattr(_events, "TURN_STREAM_BYTES", 1_000_000)
    with log.watch() as watcher:
        for _ in range(100):
            log.append(EventKind.STREAM, {"text": "ü" * 10_000}, turn_id=7)
        log.append(EventKind.TURN_END, {"text": "end"}, turn_id=7)
        log.append(EventKind.STREAM, {"text": "next"}, turn_id=8)
        kept = log.history()

        said = "the runtime has printed 1 MiB in this turn: its further lines are no longer kept, the turn goes on"
        assert [event.data["text"] for event in kept[50:]] == [said, "end", "next"]
        assert [watcher.receive_nowait().seq for _ in kept] == [event.seq for event in kept]
        with pytest.raises(trio.WouldBlock):
            watcher.receive_nowait()


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 60_000], ids=["short", "long"])
def test_the_oldest_lines_go_from_a_file_that_is_too_big(log, path, monkeypatch, size):
    """BUS-1: whatever turns print, in lines of any length; what happened is kept."""
    monkeypatch.setattr(_events, "FILE_BYTES", 400_000)
    monkeypatch.setattr(_events, "PRUNE_BYTES", 50_000)
    log.append(EventKind.TURN_START, {"text": "kept"}, turn_id=1)
    for _ in range(5_000):
        log.append(EventKind.STREAM, {"text": "short"}, turn_id=1)
    for turn_id in range(2, 5):
        for number in range(500_000 // (size + 50)):
            log.append(EventKind.STREAM, {"text": f"{number:08}" + "x" * size}, turn_id=turn_id)
        log.prune()
    kept = log.history(limit=100_000)
    assert path.stat().st_size < 600_000
    assert kept[0].data == {"text": "kept"}
    lines = kept[1:]
    assert [event.seq for event in lines] == list(range(lines[0].seq, lines[-1].seq + 1))
    assert sum(len(event.data["text"]) for event in lines) > 80_000


def test_numbers_go_on_after_everything_expired(log, open_log, hour):
    """REL-5: a number is never used again."""
    log.append(EventKind.STREAM, {})
    hour.now += STREAM_DAYS * 86400 + 1
    log.prune()
    log.close()
    log = open_log()
    log.append(EventKind.STREAM, {})

    assert [event.seq for event in log.history()] == [2]


@pytest.mark.parametrize("content", [b"no database" * 500, b"SQLite format 3\0" + bytes(4000)], ids=["text", "header"])
def test_a_file_that_is_no_database_is_set_aside(open_log, path, content):
    """REL-3: kept for whoever wants to look, and the agent goes on."""
    path.write_bytes(content)
    log = open_log()
    note(log, "goes on")

    assert texts(log) == ["goes on"]
    assert path.with_name(f"events.sqlite.damaged-{NOW:.0f}").read_bytes() == content


def test_reading_a_damaged_file_sets_it_aside_as_well(open_log, path):
    """REL-3: a page that shows the history must not fail for ever."""
    path.write_bytes(b"no database" * 500)

    assert open_log().history() == ()


def test_damage_found_while_it_runs_is_set_aside_and_numbers_go_on(open_log, path):
    """REL-3, REL-5: readers hold numbers of the old file, and get what comes after."""
    log = open_log()
    for number in range(2000):
        note(log, f"{number} " + "x" * 100)
    log.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    log = open_log()
    note(log, "goes on")
    events = log.history(after=2000)

    assert [event.data["text"] for event in events] == ["goes on"]
    assert path.with_name(f"events.sqlite.damaged-{NOW:.0f}").exists()


def test_a_file_of_a_newer_version_is_left_alone(open_log, path, caplog):
    """REL-3: the agent runs without a log, and says so once."""
    with closing(apsw.Connection(str(path))) as newer:
        newer.pragma("user_version", 99)
    before = path.read_bytes()
    log = open_log()
    note(log, "x")
    note(log, "y")

    with pytest.raises(EventLogUnavailable, match="written by a newer hyperhive"):
        log.history()
    assert path.read_bytes() == before
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_event_of_an_unknown_kind_is_shown_as_a_note(log, path):
    """BUS-1: kinds may be added without a new schema, and an older version must still show its history."""
    note(log, "x")
    with closing(apsw.Connection(str(path))) as other:
        other.execute("INSERT INTO events (at, kind, data) VALUES (1, 'of_tomorrow', '[]')")

    assert texts(log)[1] == "an event of the kind 'of_tomorrow', which another version of hyperhive wrote"


def test_a_failing_disk_costs_events_and_not_the_agent(log, path, hour, caplog):
    """REL-3: counted, logged once, and noted as soon as it works again."""
    path.mkdir()
    for _ in range(3):
        note(log, "lost")
        hour.now += RETRY_SECONDS
    with pytest.raises(EventLogUnavailable, match="look at its disk and its permissions") as caught:
        log.history()
    assert caught.value.__cause__ is not None
    path.rmdir()
    note(log, "kept")
    note(log, "kept too")

    assert texts(log) == ["3 events before this one could not be written", "kept", "kept too"]
    assert len(caplog.records) == 1


def test_a_folder_that_is_gone_costs_events_and_not_the_agent(open_log, path, hour):
    """REL-3: the state folder can be removed under our feet."""
    path.parent.rmdir()
    log = open_log()
    note(log, "lost")

    assert log.history() == ()
    path.parent.mkdir()
    hour.now += RETRY_SECONDS
    note(log, "kept")
    assert texts(log) == ["1 events before this one could not be written", "kept"]


def test_a_log_that_failed_is_left_alone_for_a_moment(log, path, hour):
    """REL-3: each try of a bad disk holds up every agent of the process; also when the clock jumps back."""
    path.mkdir()
    note(log, "lost")
    path.rmdir()
    note(log, "lost as well")
    assert not path.exists()
    hour.now -= 3600
    note(log, "kept")

    assert texts(log) == ["2 events before this one could not be written", "kept"]


@pytest.mark.slow
def test_a_strangers_lock_costs_events_and_not_the_agent(log, path, hour):
    """REL-3: somebody looks at the file with a tool that locks it."""
    note(log, "before")
    with closing(apsw.Connection(str(path))) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        note(log, "lost")
        assert texts(log) == ["before"]
        stranger.execute("ROLLBACK")
    hour.now += RETRY_SECONDS
    note(log, "after")

    assert texts(log)[1:] == ["1 events before this one could not be written", "after"]


WRITER = """
import sys
from pathlib import Path
from hive_agent import EventKind, EventLog
log = EventLog(Path(sys.argv[1]), clock=lambda: 1_800_000_000.0)
for number in range(10**9):
    log.append(EventKind.STREAM, {"n": number})
    print(number, flush=True)
"""


@pytest.mark.slow
def test_what_was_appended_survives_a_kill(log, path):
    """REL-1: `kill -9` at any instant."""
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [int(writer.stdout.readline()) for _ in range(200)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    note(log, "goes on")
    kept = [event.data.get("n") for event in log.history(limit=10**6)]

    assert kept[: len(lines)] == lines
