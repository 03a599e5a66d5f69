"""A mailbox's socket: one agent's door to the broker, for whoever stands before it (WAKE-2, SURF-5).

Owns the connections and what a peer may cost: its own buffers and nobody else's time (REL-4). Who calls is whose
socket it is; of the callers one at a time runs the agent's turns. Knows no rows: it asks a ``BrokerMailbox``, by name,
what ``_wire`` has read.

A turn belongs to the client that opened it and not to its connection: a client whose connection breaks, or whose broker
restarts, comes back under the same name and goes on. It ends when it is closed or when the agent begins another life:
a client with another name that runs its turns, which is let in only once the former is gone (TURN-4).
"""

from __future__ import annotations

import logging
import secrets
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import final

import trio

from ._applied import Once, carrying_out
from ._errors import BrokerError, BrokerUnavailable, MailboxSocketRefused, TurnOver
from ._lines import LineCut, LineReader, LineTooLong
from ._mailbox import BrokerMailbox
from ._socket_file import serve_unix_socket
from ._wire import (
    ATTACH,
    MAX_LINE_BYTES,
    METHODS,
    BadLine,
    Request,
    Wake,
    answer_line,
    parse_request,
    refusal_line,
    wake_answer_line,
)

__all__ = ["serve_mailbox"]

_log = logging.getLogger("hive_broker")

_MAX_CONNECTIONS = 16
"""Of one agent: its harness, and a handful of programs that wake it."""

_MAX_UNDER_WAY = 64
"""Requests of one connection that are being carried out, so that they share commits; beyond them nothing is read."""

_MAX_WAITS = 4
"""Requests of one connection that wait for mail. A client needs one."""

_SILENCE_SECONDS = 30.0
"""For a line of a peer that has not said who it is: one that holds a place for longer needs none."""

_WRITE_SECONDS = 5.0
"""For one answer to be taken; a client that reads takes it at once, and one that does not can ask again."""

_TAKEOVER_SECONDS = 2.0
"""For the kernel's word that a process is gone, when the next one is already here."""


async def serve_mailbox(
    path: Path,
    mailbox: BrokerMailbox,
    *,
    runs_turns: bool,
    attached: Callable[[int | None], object] = lambda _: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one agent's mailbox at ``path`` until cancelled; the file is gone afterwards.

    A request that was carried out is answered even when the cancellation comes in between. A file that is removed
    meanwhile is made again.

    Args:
        path: of the socket (0600); its folder is made (0700) when it is not there. A dead socket is replaced.
        mailbox: what is asked.
        runs_turns: whether a client may run the agent's turns; False where the hive does that itself.
        attached: told the pid of the client that runs the turns when it comes, and None when it is gone; must not
            block or raise.
        task_status: started once connections are taken.

    Raises:
        MailboxSocketUnusable: the path is too long, a live process listens there, something that is no socket is
            there, or the folder says no.
    """
    door = _Door(mailbox, runs_turns=runs_turns, attached=attached)
    await serve_unix_socket(path, door.welcome, mode=0o600, folder_mode=0o700, task_status=task_status)


@final
class _Connection:
    """One peer.

    Attributes:
        pid: its process, as the kernel says; 0 where it does not.
        client: what it calls itself, None until it has said so.
        under_way: ids of its requests that are being carried out.
        room: taken by each of them.
        waits: of those that wait for mail.
        scope: ends all of it.
        gone: set when nothing of it is left.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.scope = trio.CancelScope()
        self.pid = _pid_of(stream)
        self.client: str | None = None
        self.under_way: set[int] = set()
        self.room = trio.Semaphore(_MAX_UNDER_WAY)
        self.waits: set[trio.CancelScope] = set()
        self.gone = trio.Event()
        self._unwritten: list[bytes] = []
        self._writing = trio.Lock()
        self._is_broken = False

    async def write(self, line: bytes) -> None:
        """Give one answer. A peer that does not take it is let go."""
        self._unwritten.append(line)
        # Shielded: what was carried out is said, also while the broker closes. The bound keeps that short.
        with trio.move_on_after(_WRITE_SECONDS, shield=True) as bound:
            try:
                async with self._writing:
                    # Answers of one commit come together, and go in one piece; the rest of their writers find nothing.
                    lines, self._unwritten = self._unwritten, []
                    if lines and not self._is_broken:
                        await self.stream.send_all(b"".join(lines))
                    return
            except trio.BrokenResourceError:
                pass
        if bound.cancelled_caught:
            _log.info("a client (pid %d) does not read its answers and was let go", self.pid)
        self._is_broken = True  # perhaps in the middle of a line
        self.scope.cancel()


@final
class _Door:
    """Lets peers in, and puts what they ask to the mailbox."""

    def __init__(self, mailbox: BrokerMailbox, *, runs_turns: bool, attached: Callable[[int | None], object]) -> None:
        self._mailbox = mailbox
        self._runs_turns = runs_turns
        self._attached = attached
        self._connections = 0
        self._runner: _Connection | None = None

    async def welcome(self, stream: trio.SocketStream) -> None:
        """Serve one connection; whatever goes wrong on it costs that connection and no other."""
        self._connections += 1
        connection = _Connection(stream)
        try:
            with connection.scope:
                async with trio.open_nursery() as nursery:
                    await self._serve(connection, nursery)
        except Exception:  # noqa: BLE001 -- a peer's trouble, or a bug over it, costs its connection
            _log.exception("a connection to the mailbox of %s failed", self._mailbox.name)
        finally:
            self._connections -= 1
            connection.gone.set()
            if self._runner is connection:
                self._runner = None
                self._attached(None)

    async def _serve(self, connection: _Connection, nursery: trio.Nursery) -> None:
        if self._connections > _MAX_CONNECTIONS:
            full = f"all {_MAX_CONNECTIONS} connections to this mailbox are taken: close one and try again"
            return await connection.write(refusal_line(None, BrokerUnavailable(full)))
        try:
            await self._read(connection, nursery)
        finally:
            for wait in connection.waits:
                wait.cancel()
        return None

    async def _read(self, connection: _Connection, nursery: trio.Nursery) -> None:
        reader = LineReader(connection.stream, limit_bytes=MAX_LINE_BYTES)
        while True:
            async with connection.room:
                pass  # nothing is read while all of it is taken
            try:
                line = await _next_line(reader, None if connection.client else _SILENCE_SECONDS)
                if line is None:
                    return None
                request = parse_request(line)
            except trio.BrokenResourceError:
                return None
            except LineTooLong:
                error = BadLine(f"a line can have at most {MAX_LINE_BYTES} bytes: send less")
                await connection.write(refusal_line(None, error))
            except LineCut:
                return await connection.write(refusal_line(None, BadLine("a line must end with a newline: add it")))
            except BadLine as exc:
                await connection.write(refusal_line(exc.request_id, exc))
            else:
                await self._take(connection, request, nursery)

    async def _take(self, connection: _Connection, request: Request | Wake, nursery: trio.Nursery) -> None:
        if isinstance(request, Wake):
            await connection.room.acquire()
            nursery.start_soon(self._wake, connection, request)
            return None
        try:
            self._check(connection, request)
            if request.method == ATTACH:
                await self._attach(connection, request)
                return await connection.write(answer_line(request.id, ATTACH, None))
        except BrokerError as exc:
            return await connection.write(refusal_line(request.id, exc))
        connection.under_way.add(request.id)
        if METHODS[request.method].waits:
            scope = trio.CancelScope()
            connection.waits.add(scope)  # here, so that it is counted before the next line is read
            nursery.start_soon(self._wait, connection, request, scope)
        else:
            await connection.room.acquire()
            nursery.start_soon(self._answer, connection, request)
        return None

    # --- who it is

    async def _attach(self, connection: _Connection, request: Request) -> None:
        name, client = request.params["name"], request.params["client"]
        if name != self._mailbox.name:
            raise MailboxSocketRefused(
                f"this is the mailbox of {self._mailbox.name}, not of {name!r:.80}: use the socket of that one"
            )
        if request.params["runs_turns"]:
            await self._take_over(connection, client, has_turn=request.params["has_turn"])
        connection.client = client

    async def _take_over(self, connection: _Connection, client: str, *, has_turn: bool) -> None:
        """Make this connection the one that runs the agent's turns."""
        name = self._mailbox.name
        if not self._runs_turns:
            raise MailboxSocketRefused(
                f'the hive runs the turns of {name} itself: give it runs = "outside" in hive.toml first'
            )
        with trio.move_on_after(_TAKEOVER_SECONDS):
            while (former := self._runner) is not None and former is not connection:
                if former.client == client:
                    former.scope.cancel()  # it knows before the kernel told us that this connection is over
                await former.gone.wait()
        if (former := self._runner) is not None and former is not connection:
            raise MailboxSocketRefused(
                f"the turns of {name} are run by another process, pid {former.pid}, and an agent has one life at a "
                "time: stop that one first"
            )
        self._runner = connection
        await self._mailbox.begin_life(client=client, has_turn=has_turn)
        self._attached(connection.pid)

    # --- what it asks

    def _check(self, connection: _Connection, request: Request) -> None:
        """Refuse what this peer may not ask now.

        Raises:
            MailboxSocketRefused, TurnOver, BrokerUnavailable: it may not.
        """
        if request.id in connection.under_way:
            raise MailboxSocketRefused(f"id {request.id} is of a request that is under way: count on")
        if request.method == ATTACH:
            return
        if connection.client is None:
            raise MailboxSocketRefused(f"the first request of a connection must be {ATTACH}, got {request.method}")
        method = METHODS[request.method]
        if method.of_turns and self._runner is not connection:
            raise TurnOver(f"only the client that runs the turns of {self._mailbox.name} can ask for {request.method}")
        if method.waits and len(connection.waits) >= _MAX_WAITS:
            raise BrokerUnavailable(f"a connection can wait {_MAX_WAITS} times at once, and does: let one of them end")

    async def _answer(self, connection: _Connection, request: Request) -> None:
        try:
            await connection.write(await self._carry_out(connection, request))
        finally:
            connection.under_way.discard(request.id)
            connection.room.release()

    async def _wait(self, connection: _Connection, request: Request, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await connection.write(await self._carry_out(connection, request))
        finally:
            connection.waits.discard(scope)
            connection.under_way.discard(request.id)

    async def _wake(self, connection: _Connection, wake: Wake) -> None:
        try:
            line = wake_answer_line(await self._mailbox.wake(label=wake.label, body=wake.body))
        except BrokerError as exc:
            line = refusal_line(None, exc)
        except Exception:  # noqa: BLE001 -- a bug costs one answer
            line = refusal_line(None, _confessed("wake"))
        await connection.write(line)
        connection.room.release()

    async def _carry_out(self, connection: _Connection, request: Request) -> bytes:
        method = METHODS[request.method]
        call = partial(getattr(self._mailbox, request.method), **request.params, **method.fixed)
        try:
            if not method.changes:
                return answer_line(request.id, request.method, await call())
            with carrying_out(Once(agent=self._mailbox.name, client=str(connection.client), request=request)):
                return answer_line(request.id, request.method, await call())
        except (BrokerError, ValueError) as exc:
            return refusal_line(request.id, exc)
        except Exception:  # noqa: BLE001 -- a bug costs one answer
            return refusal_line(request.id, _confessed(request.method))


async def _next_line(reader: LineReader, seconds: float | None) -> bytes | None:
    if seconds is None:
        return await reader.next_line()
    with trio.move_on_after(seconds):
        return await reader.next_line()
    return None


def _pid_of(stream: trio.SocketStream) -> int:
    try:
        credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError:
        return 0
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def _confessed(what: str) -> BrokerUnavailable:
    """Log the error at hand, and say where it is: the traceback is no business of the peer's (SURF-6)."""
    error_id = secrets.token_hex(4)
    _log.exception("%s over a mailbox's socket failed, error id %s", what, error_id)
    return BrokerUnavailable(
        f"the broker failed at this, and that is a bug; its log has more under error id {error_id}"
    )
