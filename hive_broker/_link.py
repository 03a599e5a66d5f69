"""The client's end of a mailbox's socket: one connection that comes back, and the calls that wait on it (SURF-4).

Owns connecting, asking again after a connection broke, and what becomes of a call whose caller was cancelled or whose
answer does not come. Knows the wire and no method's meaning; ``_client`` has the mailbox's face.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import attrs
import outcome
import trio

from ._errors import BrokerClosed, BrokerError, BrokerUnavailable, MailboxSocketRefused, MessageRefused
from ._lines import LineCut, LineReader, LineTooLong
from ._wire import ATTACH, MAX_LINE_BYTES, METHODS, Answer, BadLine, error_of, from_json, parse_answer, request_line

__all__ = ["Link"]

_log = logging.getLogger("hive_broker")

_ANSWER_SECONDS = 55.0
"""How long a call waits for a broker that is away: a little less than its caller may (SURF-4: 60 s)."""

_CANCELLED_SECONDS = 5.0
"""How long a cancelled caller waits for the answer to what may be done already."""

_CONNECT_SECONDS = 5.0
"""For a server that lives to let a client in; it may take two until a former one is gone."""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
"""Between two tries to connect: the pause doubles from the first to the longest."""

_STEADY_SECONDS = 1.0
"""A connection that held for so long was a good one: the next pause is the first again."""

_MAX_CALLS = 256
_MAX_BYTES = 16 * 1024 * 1024
"""What may wait for the broker to come back; beyond it calls are refused at once."""

_SENT_BYTES = 64 * 1024
"""What goes in one piece, or one line: a call behind it can still be withdrawn."""

_TRY_AGAIN = ("BrokerUnavailable", "BrokerClosed", "BrokerDamaged")
"""Answers to ``attach`` after which a later try may be let in."""


@attrs.define(eq=False, kw_only=True)
class _Call:
    """One request that is not answered.

    Attributes:
        line: as it is sent, and sent again.
        due: when its caller is told that there is no answer.
        task: its caller; None for the wait that all callers of ``wait`` share.
        changes: whether it changes something.
        begun: whether it may have reached the broker.
        lost: called when it is given up although it may be done.
        raise_cancel: of its caller, once that is cancelled.
    """

    id: int
    method: str
    line: bytes
    due: float
    task: trio.lowlevel.Task | None
    changes: bool
    lost: Callable[[], object] | None = None
    begun: bool = False
    raise_cancel: Callable[[], Any] | None = None


@final
class _Wait:
    """What the callers of ``Link.wait`` wait for together."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.answer: Answer | None = None


@final
class Link:
    """One client of one mailbox's socket; ``keep`` runs it.

    Args:
        path: of the socket.
        name: whose mailbox it must be.
        runs_turns: whether this client is the agent's present life.
    """

    def __init__(self, path: Path, *, name: str, runs_turns: bool) -> None:
        self._path = path
        self._name = name
        self._runs_turns = runs_turns
        self._client = secrets.token_hex(16)
        self._ids = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._unsent: deque[_Call] = deque()
        self._filled = trio.Event()
        self._waiting_bytes = 0
        self._due_changed = trio.Event()
        self._next_due = math.inf
        self._talking: trio.CancelScope | None = None
        self._waiting: _Wait | None = None
        self._has_turn = False
        self._over: Callable[[], BrokerError] | None = None
        self._away: str | None = None

    @trio.lowlevel.enable_ki_protection  # between queueing and parking, Ctrl-C would leave a call with nobody behind it
    async def ask(self, method: str, *, lost: Callable[[], object] | None = None, **params: object) -> Any:
        """Have one thing done and return its answer; while the broker is away, wait for it.

        Cancelled before its line was written, nothing happened. Cancelled later, the caller waits for the answer, for
        ``_CANCELLED_SECONDS`` at most; what only looks is dropped at once.

        Args:
            method: a key of ``METHODS``.
            lost: called when this gives up on an answer although the thing may be done.
            params: its parameters.

        Raises:
            BrokerUnavailable: there was no answer in ``_ANSWER_SECONDS``; ``may_be_done`` says whether it may be done.
            MailboxSocketRefused: this client is not let in (any more).
            BrokerClosed: the client was closed.
            Exception: whatever the broker refused it with.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        call = self._queued(method, params, task=trio.lowlevel.current_task(), lost=lost)

        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            if not (call.begun and call.changes):
                self._forget(call)
                return trio.lowlevel.Abort.SUCCEEDED
            call.raise_cancel = raise_cancel
            call.due = min(call.due, trio.current_time() + _CANCELLED_SECONDS)
            self._note_due(call)
            return trio.lowlevel.Abort.FAILED

        answer: Answer = await trio.lowlevel.wait_task_rescheduled(abort)
        try:
            return from_json(answer.result, METHODS[method].answer)
        except BadLine as exc:
            raise BrokerUnavailable(f"the broker's answer to {method} makes no sense: {exc}", may_be_done=True) from exc

    async def wait(self, method: str) -> None:
        """Wait for what ``method`` waits for, however long the broker is away; all callers wait together.

        Raises:
            MailboxSocketRefused, BrokerClosed: it will not come.
            Exception: whatever the broker refused it with.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._waiting is None:
            self._queued(method, {}, task=None, lost=None)
            self._waiting = _Wait()
        waiting = self._waiting
        await waiting.ended.wait()
        if waiting.answer is None:
            raise self._over() if self._over is not None else RuntimeError("a wait ended by itself: please report this")
        if waiting.answer.kind is not None:
            raise error_of(waiting.answer)

    def reconnect(self) -> None:
        """Say again who this is and whether it has a turn: the broker ends one that nobody here knows of."""
        if self._talking is not None:
            self._talking.cancel()

    async def keep(self) -> None:
        """Keep the connection until cancelled, or until it is refused for good."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_clock)
            pause = _FIRST_PAUSE_SECONDS
            while self._over is None:
                since = trio.current_time()
                self._note_away(await self._connect_and_talk())
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                if trio.current_time() - since > _STEADY_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS
                await trio.sleep(pause)
            nursery.cancel_scope.cancel()

    def close(self) -> None:
        """Refuse all that waits and all that comes."""
        self._end(lambda: BrokerClosed("this client of the mailbox is closed: open another one"))

    # --- calls

    def _queued(
        self,
        method: str,
        params: dict[str, object],
        *,
        task: trio.lowlevel.Task | None,
        lost: Callable[[], object] | None,
    ) -> _Call:
        if self._over is not None:
            raise self._over()
        request_id = next(self._ids)
        # They are in the order of their ids, and only changes are kept at the other end.
        unanswered = next((call.id for call in self._calls.values() if call.changes), request_id)
        line = request_line(request_id, method, params, done=unanswered - 1)
        if len(line) > MAX_LINE_BYTES:
            raise MessageRefused(f"a request can have {MAX_LINE_BYTES} bytes, this one has {len(line)}: say less")
        if len(self._calls) >= _MAX_CALLS or self._waiting_bytes + len(line) > _MAX_BYTES:
            raise BrokerUnavailable(f"{self._why_away()}, and enough waits for it already: try again later")
        call = _Call(
            id=request_id,
            method=method,
            line=line,
            due=math.inf if task is None else trio.current_time() + _ANSWER_SECONDS,
            task=task,
            changes=METHODS[method].changes,
            lost=lost,
        )
        self._calls[request_id] = call
        self._waiting_bytes += len(line)
        self._unsent.append(call)
        self._filled.set()
        self._note_due(call)
        return call

    def _note_due(self, call: _Call) -> None:
        if call.due < self._next_due:
            self._due_changed.set()

    def _forget(self, call: _Call) -> None:
        del self._calls[call.id]
        self._waiting_bytes -= len(call.line)

    def _settle(self, answer: Answer) -> None:
        call = self._calls.get(answer.id or 0)
        if call is None:
            return  # nobody waits for it any more
        self._forget(call)
        if call.task is None:
            self._end_wait(answer)
        elif answer.kind is not None:
            trio.lowlevel.reschedule(call.task, outcome.Error(error_of(answer)))
        else:
            if call.method in ("open_turn", "close_turn"):
                # Here and not in the caller: the connection may break before that runs.
                self._has_turn = call.method == "open_turn"
            trio.lowlevel.reschedule(call.task, outcome.Value(answer))

    def _end_wait(self, answer: Answer | None) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.answer = answer
            waiting.ended.set()

    async def _run_clock(self) -> None:
        """Give up on calls when they are due."""
        while True:
            self._due_changed = trio.Event()
            self._next_due = min((call.due for call in self._calls.values()), default=math.inf)
            with trio.move_on_at(self._next_due):
                await self._due_changed.wait()
            now = trio.current_time()
            for call in [call for call in self._calls.values() if call.due <= now]:
                self._give_up(call)

    def _give_up(self, call: _Call) -> None:
        self._forget(call)
        may_be_done = call.begun and call.changes
        if may_be_done and call.lost is not None:
            call.lost()
        if call.task is None:
            return
        if call.raise_cancel is not None:
            _log.warning("a call of %s was cancelled while the broker was away; it may be done", call.method)
            trio.lowlevel.reschedule(call.task, outcome.capture(call.raise_cancel))
            return
        what = "it may be done, or not: look before you repeat it" if may_be_done else "nothing was done: try again"
        sentence = f"{self._why_away()} and gave no answer to {call.method} within {_ANSWER_SECONDS:.0f} s; {what}"
        trio.lowlevel.reschedule(call.task, outcome.Error(BrokerUnavailable(sentence, may_be_done=may_be_done)))

    def _end(self, error: Callable[[], BrokerError]) -> None:
        if self._over is not None:
            return
        self._over = error
        self._end_wait(None)
        for call in tuple(self._calls.values()):
            self._forget(call)
            if call.task is not None:
                trio.lowlevel.reschedule(call.task, outcome.Error(error()))

    # --- the connection

    async def _connect_and_talk(self) -> str:
        """Connect, and serve calls for as long as the connection holds; give the reason why it does not."""
        try:
            with trio.fail_after(_CONNECT_SECONDS):
                stream = await trio.open_unix_socket(os.fspath(self._path))
        except trio.TooSlowError:
            return f"nobody lets anybody in at {self._path}"
        except OSError as exc:
            return f"nobody answers at {self._path} ({exc.strerror or exc})"
        reason = "the connection is made anew"
        async with stream:
            with trio.CancelScope() as self._talking:
                reason = await self._talk(stream)
            self._talking = None
        return reason

    async def _talk(self, stream: trio.SocketStream) -> str:
        reader = LineReader(stream, limit_bytes=MAX_LINE_BYTES)
        try:
            with trio.fail_after(_CONNECT_SECONDS):
                answer = await self._attach(stream, reader)
        except trio.TooSlowError:
            return f"what listens at {self._path} says nothing"
        except (trio.BrokenResourceError, LineCut):
            return f"the broker behind {self._path} went away"
        except (LineTooLong, BadLine) as exc:
            sentence = f"what answers at {self._path} does not answer as a broker does: {exc}"
            self._end(lambda: MailboxSocketRefused(sentence))
            return sentence
        if answer.kind in _TRY_AGAIN:
            return f"the broker behind {self._path} lets nobody in ({answer.error})"
        if answer.kind is not None:
            self._end(lambda: MailboxSocketRefused(answer.error))
            return answer.error
        if self._away is not None:
            _log.info("the broker behind %s is back", self._path)
            self._away = None
        self._unsent = deque(self._calls.values())
        reason = f"the broker behind {self._path} does not read any more"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, stream, nursery.cancel_scope)
            reason = await self._read(reader)
            nursery.cancel_scope.cancel()
        return reason

    async def _attach(self, stream: trio.SocketStream, reader: LineReader) -> Answer:
        opening = any(call.method == "open_turn" and call.begun for call in self._calls.values())
        params = {
            "name": self._name,
            "client": self._client,
            "runs_turns": self._runs_turns,
            "has_turn": self._has_turn or opening,
        }
        await stream.send_all(request_line(next(self._ids), ATTACH, params, done=0))
        line = await reader.next_line()
        if line is None:
            raise LineCut
        return parse_answer(line)

    async def _write(self, stream: trio.SocketStream, talking: trio.CancelScope) -> None:
        try:
            while True:
                while not self._unsent:
                    self._filled = trio.Event()
                    await self._filled.wait()
                await stream.send_all(self._take_unsent())
        except trio.BrokenResourceError:
            talking.cancel()

    def _take_unsent(self) -> bytes:
        """The lines of what is to be sent next; from here on it may have reached the broker."""
        lines: list[bytes] = []
        size_bytes = 0
        while self._unsent and size_bytes < _SENT_BYTES:
            call = self._unsent.popleft()
            if call.id in self._calls:
                call.begun = True
                lines.append(call.line)
                size_bytes += len(call.line)
        return b"".join(lines)

    async def _read(self, reader: LineReader) -> str:
        gone = f"the broker behind {self._path} went away"
        while True:
            try:
                line = await reader.next_line()
                if line is None:
                    return gone
                answer = parse_answer(line)
            except (trio.BrokenResourceError, LineCut):
                return gone
            except (LineTooLong, BadLine) as exc:
                return f"the broker behind {self._path} said what makes no sense ({exc})"
            if answer.id is None:
                return f"the broker behind {self._path} lets nobody in ({answer.error})"
            if answer.kind == BrokerClosed.__name__:
                return f"the broker behind {self._path} closes"  # nothing was done: it is asked again
            self._settle(answer)

    def _note_away(self, reason: str) -> None:
        if self._away is None and self._over is None:
            _log.warning("%s; trying again until it is back", reason)
        self._away = reason

    def _why_away(self) -> str:
        return self._away or f"the broker behind {self._path} is there"
