"""The admin socket's listening end (HOST-1).

Owns the connections and what a peer may cost: one task, one line and one answer at a time, and no waiting of anybody
else. Knows no hive: it asks a ``HiveControl``.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import final

import trio

import hive_broker
from hive._errors import RequestRefused, SocketUnusable
from hive._paths import require_socket_path
from hive_broker import (
    LineCut,
    LineReader,
    LineTooLong,
    MailboxSocketUnusable,
    get_logger,
    serve_unix_socket,
)

from ._control import AgentStatusStream, HiveControl
from ._dispatch import carry_out
from ._requests import Request, SubscribeAgentStatus, parse_request
from ._wire import MAX_REQUEST_BYTES, answer_line, refusal_line, to_json

__all__ = ["serve_host_socket"]

_MAX_CONNECTIONS = 256  # a desktop polls with a handful; far below the usual 1024 open files
_IDLE_SECONDS = 300.0  # a peer that has not finished a line for so long is gone or asleep
_WRITE_SECONDS = 5.0  # clients give up after 5 s; one that does not read for so long is dropped


_FULL = f"all {_MAX_CONNECTIONS} connections are taken; close one and try again"

_SOCKET_MODE = 0o660
_FOLDER_MODE = 0o751
"""What desktop clients of the same group expect (HOST-1)."""

_log = get_logger(__name__)


async def serve_host_socket(
    path: Path, control: HiveControl, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve the admin socket at ``path`` until cancelled; the file is gone afterwards.

    A request that was carried out is answered even when the cancellation comes in between. A file that somebody removes
    is made again; where another process listens by then, it is left alone until it goes.

    Args:
        path: of the socket (0660); its folder is made (0751) when it is not there. A dead socket is replaced.
        control: what the requests are put to.
        task_status: started once connections are taken.

    Raises:
        SocketPathTooLong: no unix socket can have this path.
        SocketUnusable: a live process listens there, or something that is no socket is there, or the folder says no.
    """
    require_socket_path(path)
    door = _Door(control)
    try:
        await serve_unix_socket(
            path, door.welcome, mode=_SOCKET_MODE, folder_mode=_FOLDER_MODE, task_status=task_status
        )
    except MailboxSocketUnusable as exc:
        raise SocketUnusable(str(exc)) from exc


@final
class _Door:
    """Lets connections in, and puts one request after another of each to the control."""

    def __init__(self, control: HiveControl) -> None:
        self._control = control
        self._connections = 0

    async def welcome(self, stream: trio.SocketStream) -> None:
        """Serve one connection; whatever goes wrong on it costs that connection and no other."""
        self._connections += 1
        try:
            if self._connections > _MAX_CONNECTIONS:
                await _write(stream, refusal_line(_FULL))
            else:
                await self._serve(stream)
        except trio.BrokenResourceError:
            pass  # the peer went away
        except trio.TooSlowError:
            _log.info("host_socket_reader_dropped", seconds=_WRITE_SECONDS)
        except Exception:  # noqa: BLE001  # a stranger's control and a stranger's peer meet here
            _log.exception("host_socket_connection_failed")
        finally:
            self._connections -= 1

    async def _serve(self, stream: trio.SocketStream) -> None:
        reader = LineReader(stream, limit_bytes=MAX_REQUEST_BYTES)
        while True:
            try:
                line = await _line_in_time(reader)
                if line is None:
                    return None
                request = parse_request(line)
            except LineTooLong:
                await _write(stream, refusal_line(f"a request must have at most {MAX_REQUEST_BYTES} bytes"))
            except LineCut:
                return await _write(stream, refusal_line("a request must end with a newline"))
            except RequestRefused as exc:
                await _write(stream, refusal_line(str(exc)))
            else:
                if isinstance(request, SubscribeAgentStatus):
                    return await self._push(stream)
                await _write(stream, await self._answer(request))

    async def _answer(self, request: Request) -> bytes:
        try:
            return answer_line(await carry_out(self._control, request))
        except (RequestRefused, hive_broker.BrokerError) as exc:
            return refusal_line(str(exc))
        except Exception:  # noqa: BLE001  # a stranger's control: its bug costs one answer
            return _confess(type(request).__name__)

    async def _push(self, stream: trio.SocketStream) -> None:
        """Push changed rows until the peer goes; a slow one misses rows, and one that does not read is dropped."""
        with ExitStack() as subscription:
            try:
                rows = subscription.enter_context(self._control.subscribe_agent_status())
            except Exception:  # noqa: BLE001  # a stranger's control: its bug costs one answer
                return await _write(stream, _confess("SubscribeAgentStatus"))
            await _write(stream, answer_line({}))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, stream, nursery.cancel_scope)
                await _push_rows(stream, rows)
                nursery.cancel_scope.cancel()
        return None


async def _push_rows(stream: trio.SocketStream, rows: AgentStatusStream) -> None:
    while True:
        line = answer_line({"agent_statuses": [to_json(await rows.next_row())]})
        try:
            with trio.fail_after(_WRITE_SECONDS):
                await stream.send_all(line)
        except trio.BrokenResourceError:
            return
        except trio.TooSlowError:
            _log.info("host_socket_subscriber_dropped", seconds=_WRITE_SECONDS)
            return


async def _until_gone(stream: trio.SocketStream, pushing: trio.CancelScope) -> None:
    # A subscriber has nothing more to say; what it writes is read only to see its end.
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass
    pushing.cancel()


async def _line_in_time(reader: LineReader) -> bytes | None:
    with trio.move_on_after(_IDLE_SECONDS):
        return await reader.next_line()
    return None


async def _write(stream: trio.SocketStream, line: bytes) -> None:
    # Shielded: what was carried out is said, also while the hive stops. The bound keeps that stop short.
    with trio.CancelScope(shield=True), trio.fail_after(_WRITE_SECONDS):
        await stream.send_all(line)


def _confess(request: str) -> bytes:
    """Log the error at hand, and say where it is (the traceback is no business of the peer's)."""
    error_id = secrets.token_hex(4)
    _log.exception("host_socket_request_failed", request=request, error_id=error_id)
    return refusal_line(f"the hive failed at this, and that is a bug; its log says more under error_id {error_id}")
