"""What is asked over a socket is done once, however often it is asked.

Owns the table ``applied``: a change and its answer are one transaction, so a client that lost the answer, to a broken
connection or a restart of the broker, gets it by asking again under the same number. ``_server`` says which request is
being carried out, ``Engine.change`` wraps what it changes. Knows no socket; imports apsw only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, cast, final

import apsw

from ._flow import Done
from ._queries import rows_of
from ._types import TurnLease
from ._wire import METHODS, Answer, Request, error_of, from_json, refusal_of, to_json
from ._writer import Work

__all__ = ["Once", "carrying_out", "once"]

T = TypeVar("T")

_KEPT_SECONDS = 24 * 3600
"""For the answers of clients that never came back for them."""

_PRUNED_ROWS = 20
"""Of those, how many go with each change: more than can come with it."""

_current: ContextVar[Once | None] = ContextVar("hive_broker.applied", default=None)


@final
class Once:
    """One request over a socket; what is changed while it is carried out is changed once.

    Args:
        agent: whose socket it came over.
        client: who asks.
        request: what for.
    """

    def __init__(self, *, agent: str, client: str, request: Request) -> None:
        self._key = (agent, client, request.id)
        self._digest = request.digest
        self._kind = METHODS[request.method].answer
        self._done = min(request.done, request.id - 1)
        self._is_used = False

    def around(self, work: Work[T], *, now: float) -> Work[T]:
        """``work``, or where it was done before, its answer and nothing else."""
        if self._is_used:
            raise RuntimeError("a method that changes something makes one change: please report this")
        self._is_used = True
        return partial(self._apply, work, now)

    def _apply(self, work: Work[T], now: float, db: apsw.Connection) -> Done[T]:
        found = rows_of(
            db, "SELECT digest, answer FROM applied WHERE agent = ? AND client = ? AND request_id = ?", self._key
        )
        if found:
            ((digest, answer),) = found
            if digest != self._digest:
                raise ValueError(f"id {self._key[2]} must be of one request, and was of another one before: count on")
            return Done(cast("T", self._read(json.loads(answer))))
        done = work(db)
        if isinstance(done.value, TurnLease):
            db.execute("UPDATE turns SET client = ? WHERE id = ?", (self._key[1], done.value.id))
        db.execute(
            "INSERT INTO applied (agent, client, request_id, digest, answer, applied_at) VALUES (?, ?, ?, ?, ?, ?)",
            (*self._key, self._digest, json.dumps(_written(done.value), ensure_ascii=False), now),
        )
        self._prune(db, now)
        return done

    def _read(self, answer: Any) -> object:
        if "kind" in answer:
            return error_of(Answer(id=self._key[2], **answer))
        return from_json(answer["result"], self._kind)

    def _prune(self, db: apsw.Connection, now: float) -> None:
        agent, client, _ = self._key
        db.execute(
            "DELETE FROM applied WHERE agent = ? AND client = ? AND request_id <= ?", (agent, client, self._done)
        )
        db.execute(
            """DELETE FROM applied WHERE rowid IN
               (SELECT rowid FROM applied WHERE applied_at < ? ORDER BY applied_at LIMIT ?)""",
            (now - _KEPT_SECONDS, _PRUNED_ROWS),
        )


@contextmanager
def carrying_out(request: Once) -> Iterator[None]:
    """Have what this task changes inside the block done once."""
    token = _current.set(request)
    try:
        yield
    finally:
        _current.reset(token)


def once(work: Work[T], *, now: float) -> Work[T]:
    """``work`` as it is; where this task carries out a request, so that it is done once."""
    request = _current.get()
    return work if request is None else request.around(work, now=now)


def _written(value: object) -> dict[str, object]:
    # A refusal that is committed comes as a value, with what had to be noted about it.
    return refusal_of(value) if isinstance(value, Exception) else {"result": to_json(value)}
