"""The event log of one agent: what happened, in order, kept on disk (BUS-1).

Owns one SQLite file per agent and the live feed over it. Appends run on the event loop: with ``synchronous=NORMAL`` one
costs microseconds, and what was appended survives ``kill -9`` of the process. The log serves people: when the disk
fails it says so once and the agent goes on without it.
"""

from __future__ import annotations

import contextlib
import enum
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import apsw
import attrs
import trio

from hive_broker import get_logger

from ._errors import EventLogUnavailable
from ._ports import WallClock

__all__ = ["AgentEvent", "EventKind", "EventLog"]

_log = get_logger("hive_agent.events")

STREAM_DAYS = 14
"""How long the runtime's own lines are kept (BUS-1)."""

EVENT_LIMIT_CHARACTERS = 64 * 1024
"""A longer event is kept shortened: one tool result must not fill the disk."""

TURN_STREAM_BYTES = 32 * 1024 * 1024
"""Of the runtime's lines in one turn: hours of work make a few MiB, a runtime gone mad makes a hundred in a minute."""

FILE_BYTES = 256 * 1024 * 1024
"""What is in use of a file from which the oldest of the runtime's lines go, expired or not."""

PRUNE_ROWS = 500
"""Expired rows that one pruning step deletes at most: the event loop is waiting."""

PRUNE_EVERY = 250
"""Appends between pruning steps: rows go at least as fast as they come, however many a turn makes."""

PRUNE_BYTES = 256 * 1024
"""Appended bytes between pruning steps; a step deletes up to twice as many from a file that is too big."""

_ROW_BYTES = 32
"""What a row takes beside its data, about."""

BUSY_MILLISECONDS = 50
"""How long a stranger's lock on the file may hold up the event loop."""

RETRY_SECONDS = 1.0
"""How long a log that failed is left alone: each try of a failing disk may hold up the event loop."""

WATCH_BUFFER = 1024
"""Events a slow reader may be behind before it is dropped (BUS-3)."""

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    turn_id INTEGER,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS events_expiring ON events (at) WHERE kind = 'stream';
"""


class EventKind(enum.Enum):
    """What an event is about."""

    TURN_START = "turn_start"
    STREAM = "stream"
    """One line the runtime printed, as it came."""
    NOTE = "note"
    """A sentence of the harness, for people."""
    TURN_END = "turn_end"
    STATUS_CHANGED = "status_changed"
    TURN_STATE_CHANGED = "turn_state_changed"


_TOO_MUCH = "the runtime has printed {:.0f} MiB in this turn: its further lines are no longer kept, the turn goes on"

_KINDS = frozenset(kind.value for kind in EventKind)


@attrs.frozen(kw_only=True)
class AgentEvent:
    """One event.

    Attributes:
        seq: grows by at least one from event to event; never reused.
        at: unix seconds.
        kind: what it is about.
        turn_id: the turn it belongs to, if any.
        data: a JSON object whose members depend on the kind.
    """

    seq: int
    at: float
    kind: EventKind
    turn_id: int | None
    data: Mapping[str, Any]


@final
class EventLog:
    """Append, replay and follow. The file is made by the first append: an agent that never ran costs nothing.

    Args:
        path: the SQLite file.
        clock: the hour.
        observe: called with every event once it is kept; must not block or raise.
    """

    def __init__(
        self, path: Path, *, clock: WallClock, observe: Callable[[AgentEvent], object] = lambda _: None
    ) -> None:
        self._path = path
        self._clock = clock
        self._observe = observe
        self._connection: apsw.Connection | None = None
        self._watchers: set[trio.MemorySendChannel[AgentEvent]] = set()
        self._lost = 0
        self._failed_at = 0.0
        self._streaming_turn: int | None = None
        self._streamed_bytes = 0
        self._unpruned_bytes = 0

    def append(self, kind: EventKind, data: Mapping[str, Any], *, turn_id: int | None = None) -> None:
        """Keep one event and hand it to whoever watches.

        A failing disk costs the event, not the agent: it is counted, logged, and noted in the log once it works again.
        The runtime's lines beyond ``TURN_STREAM_BYTES`` of one turn are neither kept nor handed on, which a note says.
        """
        if kind is EventKind.STREAM and turn_id != self._streaming_turn:
            self._streaming_turn, self._streamed_bytes = turn_id, 0
        if kind is EventKind.STREAM and self._streamed_bytes >= TURN_STREAM_BYTES:
            return
        if self._lost and abs(self._clock() - self._failed_at) < RETRY_SECONDS:
            self._lost += 1
            return
        try:
            if self._lost:
                lost = {"text": f"{self._lost} events before this one could not be written"}
                self._insert(EventKind.NOTE, lost, turn_id)
                self._lost = 0
            size_bytes = self._insert(kind, data, turn_id)
            if kind is EventKind.STREAM:
                self._streamed_bytes += size_bytes
                if self._streamed_bytes >= TURN_STREAM_BYTES:
                    self._insert(EventKind.NOTE, {"text": _TOO_MUCH.format(self._streamed_bytes / 2**20)}, turn_id)
        except (apsw.Error, OSError) as exc:
            if not self._lost:
                _log.warning("the event log cannot be written; going on", path=str(self._path), error=str(exc))
            self._lost += 1
            self._failed_at = self._clock()

    def history(self, *, after: int = 0, limit: int = 500) -> tuple[AgentEvent, ...]:
        """Give up to ``limit`` events with ``seq > after``, oldest first.

        Raises:
            EventLogUnavailable: it cannot be read now; trying again later may work.
        """
        query = "SELECT seq, at, kind, turn_id, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        try:
            if self._connection is None and not self._path.exists():
                return ()
            rows = self._execute(query, (after, limit))
        except (apsw.Error, OSError) as exc:
            raise EventLogUnavailable(
                f"the event log {str(self._path)!r} cannot be read ({exc}): look at its disk and its permissions"
            ) from exc
        return tuple(_event(*row) for row in rows)

    @contextlib.contextmanager
    def watch(self) -> Iterator[trio.MemoryReceiveChannel[AgentEvent]]:
        """Follow new events. A reader that falls ``WATCH_BUFFER`` behind sees its channel end and replays."""
        send, receive = trio.open_memory_channel[AgentEvent](WATCH_BUFFER)
        self._watchers.add(send)
        try:
            with receive:
                yield receive
        finally:
            self._watchers.discard(send)
            send.close()

    def prune(self) -> None:
        """Let a bounded number of stream rows go: expired ones, and the oldest of a file that is too big."""
        self._unpruned_bytes = 0
        if self._connection is None:
            return
        with contextlib.suppress(apsw.Error):  # a failing disk is reported by the next append
            self._connection.execute(
                "DELETE FROM events WHERE seq IN "
                "(SELECT seq FROM events WHERE kind = 'stream' AND at < ? ORDER BY at LIMIT ?)",
                (self._clock() - STREAM_DAYS * 86400, PRUNE_ROWS),
            )
            if _used_bytes(self._connection) > FILE_BYTES:
                _delete_oldest(self._connection, size_bytes=2 * PRUNE_BYTES)

    def close(self) -> None:
        """Close the file; whoever watches sees the end."""
        for watcher in self._watchers:
            watcher.close()
        self._watchers.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _insert(self, kind: EventKind, data: Mapping[str, Any], turn_id: int | None) -> int:
        """Keep and hand on one event; returns how many bytes of data it has."""
        at = self._clock()
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
        if len(text) > EVENT_LIMIT_CHARACTERS:
            data = {"shortened": True, "characters": len(text), "beginning": text[:EVENT_LIMIT_CHARACTERS]}
            text = json.dumps(data, ensure_ascii=False)
        # A lone surrogate is valid in JSON and not in SQLite's UTF-8.
        encoded = text.encode("utf-8", "backslashreplace")
        statement = "INSERT INTO events (at, kind, turn_id, data) VALUES (?, ?, ?, ?) RETURNING seq"
        row = (at, kind.value, turn_id, encoded.decode())
        ((seq,),) = self._execute(statement, row)
        event = AgentEvent(seq=seq, at=at, kind=kind, turn_id=turn_id, data=data)
        self._unpruned_bytes += len(encoded)
        if seq % PRUNE_EVERY == 0 or self._unpruned_bytes >= PRUNE_BYTES:
            self.prune()
        self._observe(event)
        for watcher in tuple(self._watchers):
            try:
                watcher.send_nowait(event)
            except (trio.WouldBlock, trio.BrokenResourceError):
                self._watchers.discard(watcher)
                watcher.close()
        return len(encoded)

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        try:
            return self._open().execute(statement, values).fetchall()
        except (apsw.NotADBError, apsw.CorruptError) as exc:
            self._set_aside(exc)
            return self._open().execute(statement, values).fetchall()

    def _open(self, *, first_seq: int = 0) -> apsw.Connection:
        if self._connection is None:
            self._connection = _connect(self._path, first_seq=first_seq)
        return self._connection

    def _set_aside(self, exc: apsw.Error) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        now = self._clock()
        aside = self._path.with_name(f"{self._path.name}.damaged-{math.floor(now)}")
        _log.warning("the event log is damaged and was set aside", path=str(aside), error=str(exc))
        self._path.rename(aside)
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        # Readers hold numbers of the old file and must not wait for the new one to reach them (REL-5): no log gets a
        # thousand events a second for all its life.
        self._open(first_seq=math.floor(now * 1000))


def _event(seq: int, at: float, kind: str, turn_id: int | None, data: str) -> AgentEvent:
    if kind not in _KINDS:
        text = f"an event of the kind {kind!r}, which another version of hyperhive wrote"
        return AgentEvent(seq=seq, at=at, kind=EventKind.NOTE, turn_id=turn_id, data={"text": text})
    return AgentEvent(seq=seq, at=at, kind=EventKind(kind), turn_id=turn_id, data=json.loads(data))


def _used_bytes(connection: apsw.Connection) -> int:
    pages = connection.pragma("page_count") - connection.pragma("freelist_count")
    return int(pages * connection.pragma("page_size"))


def _delete_oldest(connection: apsw.Connection, *, size_bytes: int) -> None:
    """Delete the oldest stream rows, of about so many bytes together; the file's next rows take their place."""
    oldest = connection.execute(
        "SELECT seq, octet_length(data) FROM events WHERE kind = 'stream' ORDER BY at, seq LIMIT ?",
        (size_bytes // _ROW_BYTES,),
    )
    seqs = []
    for seq, row_bytes in oldest:
        seqs.append((seq,))
        size_bytes -= row_bytes + _ROW_BYTES
        if size_bytes <= 0:
            break
    oldest.close()
    with connection:
        connection.executemany("DELETE FROM events WHERE seq = ?", seqs)


def _connect(path: Path, *, first_seq: int) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    try:
        path.chmod(0o600)
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        version = connection.pragma("user_version")
        if version > _SCHEMA_VERSION:
            raise apsw.SchemaChangeError(f"the event log was written by a newer hyperhive (schema {version})")
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "NORMAL")
        connection.pragma("cache_size", -256)
        if version < _SCHEMA_VERSION:
            with connection:
                connection.execute(_SCHEMA)
                connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (first_seq,))
                connection.pragma("user_version", _SCHEMA_VERSION)
    except BaseException:
        connection.close()
        raise
    return connection
