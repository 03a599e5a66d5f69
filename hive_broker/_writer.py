"""Group commit: all the changes that wait go into one transaction.

Owns the queue and the answering of callers. One commit is one fsync, so throughput grows with the number of callers
(MSG-1). Knows no messages: a change is a function over a connection. ``_engine`` submits, ``_database`` runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast, final

import apsw
import attrs
import outcome
import trio

from ._database import Database, translated
from ._errors import BrokerClosed, BrokerDamaged, BrokerError, BrokerUnavailable
from ._flow import Done, FlowEvent

__all__ = ["Work", "Writer", "commit"]

T = TypeVar("T")

Work: TypeAlias = Callable[[apsw.Connection], Done[T]]
"""One change: runs inside the transaction, raises to have nothing of it done."""

_QUEUE_JOBS = 1024
"""Changes that wait for the database at most; further callers wait for room."""

_QUEUE_BYTES = 16 * 1024 * 1024
"""Bodies that wait at most, in bytes: 64 of the largest."""

_BATCH_JOBS = 256
"""Changes in one transaction at most, so that nobody waits long for an answer."""


@attrs.define(eq=False, kw_only=True)
class _Job:
    work: Work[Any]
    size_bytes: int
    task: trio.lowlevel.Task


@final
class Writer:
    """The queue in front of a database; ``run`` works it off."""

    def __init__(self, database: Database, *, on_commit: Callable[[Sequence[FlowEvent]], None]) -> None:
        """Args: on_commit: told what a transaction did, after its commit, in the order of the commits."""
        self._database = database
        self._on_commit = on_commit
        self._queue: deque[_Job] = deque()
        self._queued_bytes = 0
        self._filled = trio.Event()
        self._emptied = trio.Event()
        self._door = trio.StrictFIFOLock()
        self._closed = False

    @trio.lowlevel.enable_ki_protection  # between queueing and parking, Ctrl-C would leave a job with nobody behind it
    async def submit(self, work: Work[T], *, size_bytes: int = 0) -> T:
        """Have one change made, and return its answer after the commit.

        Cancelled while it waits, it is withdrawn and nothing was done; once it is in a transaction the caller gets
        its answer, cancelled or not.

        Raises:
            BrokerClosed: the broker closed before it was taken.
            BrokerUnavailable: the world said no; nothing was done.
            Exception: whatever ``work`` raised; nothing was done.
        """
        if self._door.locked() or not self._has_room(size_bytes):
            async with self._door:
                while not self._closed and not self._has_room(size_bytes):
                    await self._emptied.wait()
                job = self._enqueue(work, size_bytes)
        else:
            job = self._enqueue(work, size_bytes)

        def withdraw(_: object) -> trio.lowlevel.Abort:
            if job not in self._queue:
                return trio.lowlevel.Abort.FAILED
            self._queue.remove(job)
            self._let_in(job.size_bytes)
            return trio.lowlevel.Abort.SUCCEEDED

        return cast("T", await trio.lowlevel.wait_task_rescheduled(withdraw))

    async def run(self) -> None:
        """Commit what is queued, batch after batch, until cancelled; a commit that has begun is finished first."""
        try:
            while True:
                while not self._queue:
                    await self._filled.wait()
                await self._commit_batch(self._take())
        finally:
            self.close()

    def close(self) -> None:
        """Refuse what is queued and all that comes later. What is in a transaction already is still answered."""
        self._closed = True
        while self._queue:
            trio.lowlevel.reschedule(self._queue.popleft().task, outcome.Error(_closed()))
        self._let_in(self._queued_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        if not self._queue:
            return True
        return len(self._queue) < _QUEUE_JOBS and self._queued_bytes + size_bytes <= _QUEUE_BYTES

    def _enqueue(self, work: Work[Any], size_bytes: int) -> _Job:
        if self._closed:
            raise _closed()
        job = _Job(work=work, size_bytes=size_bytes, task=trio.lowlevel.current_task())
        self._queue.append(job)
        self._queued_bytes += size_bytes
        self._filled.set()
        return job

    def _let_in(self, size_bytes: int) -> None:
        self._queued_bytes -= size_bytes
        self._emptied.set()
        self._emptied = trio.Event()

    def _take(self) -> list[_Job]:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH_JOBS))]
        self._let_in(sum(job.size_bytes for job in batch))
        if not self._queue:
            self._filled = trio.Event()
        return batch

    async def _commit_batch(self, batch: Sequence[_Job]) -> None:
        transaction = partial(commit, works=[job.work for job in batch], before_commit=self._database.note_ids)
        answers: list[outcome.Outcome[Done[Any]]]
        try:
            with trio.CancelScope(shield=True):
                answers = await self._database.run(transaction)
        except Exception as exc:  # noqa: BLE001 -- every caller has to be told, whatever it was
            answers = [outcome.Error(_failed(exc)) for _ in batch]
        flow: list[FlowEvent] = []
        for job, answer in zip(batch, answers, strict=True):
            if isinstance(answer, outcome.Value):
                flow.extend(answer.value.flow)
                trio.lowlevel.reschedule(job.task, outcome.Value(answer.value.value))
            else:
                trio.lowlevel.reschedule(job.task, answer)
        self._on_commit(flow)


def commit(
    db: apsw.Connection, *, works: Sequence[Work[Any]], before_commit: Callable[[apsw.Connection], None]
) -> list[outcome.Outcome[Done[Any]]]:
    """Run all of ``works`` in one transaction, each in a savepoint of its own, and commit once.

    Returns:
        what each returned or raised; one that raised left nothing behind.

    Raises:
        apsw.Error, OSError: the transaction as a whole failed; nothing was done.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        answers = [_run_in_savepoint(db, work) for work in works]
        before_commit(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return answers


def _run_in_savepoint(db: apsw.Connection, work: Work[Any]) -> outcome.Outcome[Done[Any]]:
    db.execute("SAVEPOINT job")
    try:
        answer: outcome.Outcome[Done[Any]] = outcome.Value(work(db))
    except Exception as exc:
        if not db.in_transaction:  # SQLite gave up on all of it
            raise
        db.execute("ROLLBACK TO job")
        answer = outcome.Error(translated(exc))
    db.execute("RELEASE job")
    return answer


def _failed(exc: Exception) -> BrokerError:
    """One fresh error for each caller of a transaction that failed."""
    kind = BrokerDamaged if isinstance(exc, BrokerDamaged) else BrokerUnavailable
    error = kind(f"the change could not be committed and was not made: {exc}")
    error.__cause__ = exc.__cause__ or exc
    return error


def _closed() -> BrokerClosed:
    return BrokerClosed("the broker is closed and took nothing: open it again, or call before it closes")
