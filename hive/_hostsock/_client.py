"""The admin socket's calling end: what ``hivectl`` and scripts talk to a hive with (HOST-1).

Owns the bound of every call and what can be said when the hive is not there, goes away or speaks something else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, final

import trio

from hive._errors import HiveNotRunning, HiveUnintelligible, HiveVanished, RequestRefused, SocketUnusable
from hive._paths import require_socket_path
from hive_broker import Acked, BackedUp, LineCut, LineReader, LineTooLong, Message, Sent

from ._control import AgentStatusRow, DeadLetters, HiveStatus, Inbox, Thread
from ._wire import MAX_ANSWER_BYTES, from_json, read_answer, request_line

__all__ = ["HostClient", "open_host_client"]

_ANSWER_SECONDS = 5.0  # what every client of the protocol waits
_BACKUP_SECONDS = 3600.0  # a slow disk writes a hundred gigabytes meanwhile

T = TypeVar("T")


@asynccontextmanager
async def open_host_client(path: Path) -> AsyncIterator[HostClient]:
    """A connection to the hive whose admin socket is at ``path``; closed when the block ends.

    Raises:
        HiveNotRunning: nobody listens there.
        SocketUnusable: it does not let this user in.
        SocketPathTooLong: no socket can be there.
    """
    require_socket_path(path)
    try:
        with trio.fail_after(_ANSWER_SECONDS):
            stream = await trio.open_unix_socket(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as exc:
        raise HiveNotRunning(f"no hive is running: nobody listens on {path}; start one with `hive up`") from exc
    except trio.TooSlowError as exc:
        raise HiveNotRunning(f"no hive lets anybody in at {path} within {_ANSWER_SECONDS:.0f} s") from exc
    except OSError as exc:
        raise SocketUnusable(f"{path} does not let you in: {exc.strerror}; run this as its user or group") from exc
    async with stream:
        yield HostClient(stream, path)


@final
class HostClient:
    """Asks one hive, one thing at a time. Made by ``open_host_client``.

    Every method raises ``RequestRefused`` with the hive's sentence, ``HiveVanished`` when no answer came within 5 s
    (``backup``: an hour),
    and ``HiveUnintelligible`` when what came is no answer. After the last two, and after a cancelled call, the
    connection is out of step and every further call raises ``HiveVanished``.
    """

    def __init__(self, stream: trio.SocketStream, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._reader = LineReader(stream, limit_bytes=MAX_ANSWER_BYTES)
        self._turn = trio.Lock()
        self._in_step = True

    async def list_agents(self) -> tuple[str, ...]:
        """The names of the managed agents."""
        return from_json(await self._ask("agents", "list"), tuple[str, ...])

    async def agent_status(self) -> tuple[AgentStatusRow, ...]:
        """One row per managed agent."""
        return from_json(await self._ask("agent_statuses", "agent_status"), tuple[AgentStatusRow, ...])

    async def hive_status(self) -> HiveStatus:
        """The whole hive."""
        return from_json(await self._ask("status", "status"), HiveStatus)

    async def start(self, names: tuple[str, ...] | None) -> None:
        """Start these agents, or all of them for None."""
        await self._ask(None, "start", scope=_scope(names))

    async def stop(self, names: tuple[str, ...] | None, *, graceful: bool) -> None:
        """Stop these agents, or all of them for None; returns once that is under way."""
        await self._ask(None, "stop", scope=_scope(names), graceful=graceful)

    async def restart(self, name: str) -> None:
        """Stop and start one agent; returns once that is under way."""
        await self._ask(None, "restart", name=name)

    async def send(self, *, to: str, body: str, in_reply_to: int | None = None) -> Sent:
        """Store one message from the operator (MSG-1)."""
        optional = {} if in_reply_to is None else {"in_reply_to": in_reply_to}
        return from_json(await self._ask("sent", "send", to=to, body=body, **optional), Sent)

    async def inbox(self, *, agent: str | None = None, limit: int = 20, unread_only: bool = False) -> Inbox:
        """The newest ``limit`` messages to an agent, or to the operator for None; pops nothing."""
        optional = {} if agent is None else {"agent": agent}
        return from_json(await self._ask("inbox", "inbox", limit=limit, unread=unread_only, **optional), Inbox)

    async def ack(self, up_to: int) -> Acked:
        """Stamp the operator's rows with id <= ``up_to`` (MSG-7)."""
        return from_json(await self._ask("acked", "ack", up_to=up_to), Acked)

    async def thread(self, message_id: int) -> Thread:
        """The chain that ``message_id`` is part of (MSG-11)."""
        return from_json(await self._ask("thread", "thread", id=message_id), Thread)

    async def dead_letters(self, *, limit: int = 20, before_id: int | None = None) -> DeadLetters:
        """The newest ``limit`` dead letters of all inboxes, older than ``before_id`` where it is given (MSG-6)."""
        optional = {} if before_id is None else {"before_id": before_id}
        return from_json(await self._ask("dead_letters", "dead_letters", limit=limit, **optional), DeadLetters)

    async def requeue_dead_letter(self, message_id: int) -> Message:
        """Make a dead letter unread again, with all its attempts before it (MSG-6)."""
        return from_json(await self._ask("message", "requeue_dead_letter", id=message_id), Message)

    async def drop_dead_letter(self, message_id: int) -> Message:
        """Put a dead letter aside for good; it is kept, and marked (MSG-6)."""
        return from_json(await self._ask("message", "drop_dead_letter", id=message_id), Message)

    async def backup(self, path: Path | None = None) -> BackedUp:
        """Have the hive write a backup of its mail to an absolute path on its host, or beside the earlier ones."""
        optional = {} if path is None else {"path": str(path)}
        answer = await self._ask("backup", "backup", _BACKUP_SECONDS, **optional)
        return from_json(answer, BackedUp)

    async def shutdown(self, *, graceful: bool) -> None:
        """Ask the whole hive to stop; returns once that is under way."""
        await self._ask(None, "shutdown", graceful=graceful)

    async def _ask(
        self, payload: str | None, cmd: str, within_seconds: float = _ANSWER_SECONDS, /, **fields: object
    ) -> Any:
        async with self._turn:
            answer = await self._exchange({"cmd": cmd, **fields}, within_seconds)
        if answer["ok"] is not True:
            raise RequestRefused(str(answer.get("error", "the hive refused, and did not say why")))
        if payload is None:
            return None
        if payload not in answer:
            raise HiveUnintelligible(f'the hive\'s answer to {cmd} must have "{payload}" and has not')
        return answer[payload]

    async def _exchange(self, request: Mapping[str, object], within_seconds: float) -> Mapping[str, Any]:
        if not self._in_step:
            raise HiveVanished("this connection lost an answer; open another one")
        self._in_step = False
        try:
            with trio.fail_after(within_seconds):
                await self._stream.send_all(request_line(request))
                line = await self._reader.next_line()
        except trio.TooSlowError as exc:
            raise HiveVanished(f"the hive at {self._path} did not answer within {within_seconds:.0f} s") from exc
        except LineTooLong as exc:
            raise HiveUnintelligible(f"an answer must have at most {MAX_ANSWER_BYTES} bytes, one had more") from exc
        except (trio.BrokenResourceError, LineCut) as exc:
            raise self._vanished() from exc
        if line is None:
            raise self._vanished()
        answer = read_answer(line)
        self._in_step = True
        return answer

    def _vanished(self) -> HiveVanished:
        return HiveVanished(f"the hive at {self._path} went away before it answered; it may have done what was asked")


def _scope(names: tuple[str, ...] | None) -> Mapping[str, object]:
    return {"agents": True} if names is None else {"agent_names": list(names)}
