"""HTTP/1.1 for one ASGI application on sockets of ours, around hypercorn's protocol.

Owns connections: how many, who holds them, how long each may take, and their end. hypercorn's own server is not used
because its writes are shielded without a bound, so that one client which stops reading holds a shutdown for ever. Knows
no MCP.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from math import inf
from typing import Any, final

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from typing_extensions import override

from hive_broker import get_logger

__all__ = ["MAX_CONNECTIONS", "WRITE_SECONDS", "hold_connection", "serve_http"]

_log = get_logger("hive_agent.mcp")

MAX_CONNECTIONS = 512
"""Of one listener: a thinking CLI holds two or three, and a process has 1,024 descriptors by default."""

MAX_SHARE = 64
"""Connections that one holder keeps when all of them are taken; of more, it gives back its oldest."""

MAX_HEAD_BYTES = 64 * 1024
"""A request's line and headers."""

HEAD_SECONDS = 10.0
"""For the whole head of a request on a connection that nobody holds yet."""

KEEP_ALIVE_SECONDS = 300.0
"""Between two requests of a holder: a model may think this long between two tool calls."""

WRITE_SECONDS = 5.0
"""For a client to make room for one write."""

END_SECONDS = 5.0
"""For requests to notice that their connection has ended, before they are cancelled."""

_RECEIVE_BYTES = 64 * 1024

_BUSY = b'{"error": "this listener has all the connections it takes: close some, or try again later"}'
_BUSY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BUSY), _BUSY)
)

_HOLD = "hyperhive.hold"

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


def hold_connection(scope: MutableMapping[str, Any], holder: str) -> None:
    """Say who came over a request's connection: one that nobody holds is given little time, and makes way first."""
    scope["state"][_HOLD](holder)


async def serve_http(
    app: AsgiApp,
    listeners: Sequence[trio.SocketListener],
    *,
    task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; every connection then ends at once, whatever it was in the middle of (STOP-3).

    Args:
        app: ASGI application, called once a request.
        listeners: listening sockets; closed on the way out.
        task_status: started when connections are accepted.
    """
    config, context = _config(), WorkerContext(None)
    connections: dict[_Connection, None] = {}  # the oldest first

    async def handle(stream: trio.SocketStream) -> None:
        if len(connections) >= MAX_CONNECTIONS and not _make_way(connections):
            await _turn_away(stream)
            return
        connection = _Connection(app, config, context, stream)
        connections[connection] = None
        try:
            await connection.run()
        except* Exception:  # noqa: BLE001 - one bad client costs one connection (REL-4)
            _log.exception("connection failed")
        finally:
            connections.pop(connection, None)

    async with trio.open_nursery() as nursery:
        try:
            await trio.serve_listeners(handle, list(listeners), handler_nursery=nursery, task_status=task_status)
        finally:
            # Cancelled: a write to a client that does not read is shielded, and ends when its socket does.
            for connection in connections:
                connection.close()


def _config() -> Config:
    config = Config()
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    config.keep_alive_max_requests = 2**63
    config.include_server_header = False
    config.accesslog = None
    # hypercorn uses a logger it is given as it is: no handler, no level, nothing global is touched (EMBED-1).
    config.errorlog = logging.getLogger("hive_agent.mcp.http")
    return config


def _make_way(connections: dict[_Connection, None]) -> bool:
    """End the oldest connection that nobody holds, else the oldest of who holds too many; False where all may stay."""
    shares = Counter(connection.holder for connection in connections)
    holder, share = (None, shares[None]) if None in shares else shares.most_common(1)[0]
    if holder is not None and share <= MAX_SHARE:
        return False
    oldest = next(connection for connection in connections if connection.holder == holder)
    del connections[oldest]
    oldest.close()
    _log.debug("connection closed to make way", holder=holder, share=share)
    return True


async def _turn_away(stream: trio.SocketStream) -> None:
    _log.warning("connection turned away", limit=MAX_CONNECTIONS)
    with trio.move_on_after(1):
        try:
            await stream.send_all(_BUSY_RESPONSE)
        except trio.BrokenResourceError:
            return


class _Protocol(H11Protocol):
    """HTTP/1.1 and nothing else: an offer to go on in HTTP/2 is not taken up."""

    @override
    async def _check_protocol(self, event: Any) -> None:
        return


@final
class _Connection:
    """One client's connection.

    Attributes:
        holder: who has proved to be behind it, None as long as nobody has.
    """

    def __init__(self, app: AsgiApp, config: Config, context: WorkerContext, stream: trio.SocketStream) -> None:
        self.holder: str | None = None
        self._app = app
        self._config = config
        self._context = context
        self._stream = stream
        self._write_lock = trio.Lock()
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()

    async def run(self) -> None:
        """Serve the connection until either side ends it."""
        try:
            client, server = self._stream.socket.getpeername(), self._stream.socket.getsockname()
        except OSError:
            return
        with self._scope:
            async with TaskGroup() as tasks:
                protocol = _Protocol(
                    ASGIWrapper(self._app),
                    self._config,
                    self._context,
                    tasks,
                    ConnectionState({_HOLD: self._hold}),
                    False,
                    client[:2],
                    server[:2],
                    self._on_event,
                )
                self._reading.deadline = trio.current_time() + HEAD_SECONDS
                with self._reading:
                    await self._read(protocol)
                self.close()
                await protocol.handle(Closed())

    def close(self) -> None:
        """Close the socket. Requests still running learn of it, and are cancelled when that does not end them."""
        self._stream.socket.close()
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + END_SECONDS)

    def _hold(self, holder: str) -> None:
        self.holder = holder

    async def _read(self, protocol: H11Protocol) -> None:
        while True:
            try:
                data = await self._stream.receive_some(_RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            await protocol.handle(RawData(bytes(data)))
            if not data:
                return

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Closed):
            self.close()
        elif isinstance(event, Updated):
            seconds = inf if not event.idle else HEAD_SECONDS if self.holder is None else KEEP_ALIVE_SECONDS
            self._reading.deadline = trio.current_time() + seconds

    async def _write(self, data: bytes) -> None:
        """Write all of it or end the connection: shielded, because half a write would garble what follows."""
        with trio.move_on_after(WRITE_SECONDS, shield=True):
            async with self._write_lock:
                try:
                    await self._stream.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.close()
                return
        _log.warning("client does not read, connection closed", seconds=WRITE_SECONDS)
        self.close()
