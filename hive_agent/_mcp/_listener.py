"""The door of the agents to their tools: one HTTP listener, a path for each agent and server (SURF-1).

Owns the port and what is mounted. Whoever starts agents opens one and mounts each agent on it for as long as it lives.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, final

import trio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from tricycle import open_service_nursery

from hive_agent._errors import AgentMisuse, ListenerUnavailable
from hive_agent._ports import ToolServices
from hive_broker import get_logger, is_agent_name

from ._http import serve_http
from ._identity import MAX_BODY_BYTES, Gate, Receive, Scope, Send, refuse, same_token
from ._messaging import ACK_UNTIL, RECV, SEND
from ._popped import PoppedRows
from ._server import build_server
from ._status import SET_STATUS
from ._tool import Tool

__all__ = ["Listener", "Mount", "open_listener"]

_log = get_logger("hive_agent.mcp")

SERVERS: Mapping[str, tuple[Tool[Any], ...]] = {"hyperhive": (SEND, RECV, ACK_UNTIL, SET_STATUS)}
"""The servers every agent has, and their tools."""

SESSION_IDLE_SECONDS = 600.0
"""A client of the 2025 era that vanished leaves its session for this long; one that lives just opens another."""

MAX_SESSIONS = 64
"""Of one agent and server, of the 2025 era."""


@asynccontextmanager
async def open_listener(*, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Listener]:
    """A listener that accepts from the moment this is entered until it is left; then all of it ends at once (STOP-3).

    A cancellation from outside reaches the block first: what is mounted is served until the block has been left.

    Args:
        host: a loopback address (SEC-1).
        port: 0 for any free one; keep what was picked to keep the URLs (SURF-1).

    Raises:
        AgentMisuse: the host is not loopback, or the port is none.
        ListenerUnavailable: the port cannot be opened.
    """
    _check_address(host, port)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as exc:
        raise ListenerUnavailable(
            f"cannot listen on {host}:{port} ({exc.strerror or exc}): "
            "stop what uses that port, or choose another one (0 picks a free one)"
        ) from exc
    # A service nursery: agents that finish their turns inside this block, cancelled or not, still have their tools.
    async with open_service_nursery() as nursery:
        listener = Listener(host, listeners[0].socket.getsockname()[1], nursery)
        await nursery.start(partial(serve_http, listener._gate, listeners))  # noqa: SLF001 - its own maker
        try:
            yield listener
        finally:
            listener._closed = True  # noqa: SLF001 - its own maker
            nursery.cancel_scope.cancel()


def _check_address(host: str, port: int) -> None:
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise AgentMisuse(f"the listener's host must be a loopback address such as 127.0.0.1, not {host!r}")
    if not 0 <= port <= 65_535:
        raise AgentMisuse(f"the listener's port must be from 0 to 65535, not {port!r}")


@final
class Mount:
    """One agent on a listener.

    Attributes:
        name: the agent.
        urls: server name to URL, for the agent's MCP configuration (SURF-7).
    """

    def __init__(self, name: str, urls: Mapping[str, str], popped: PoppedRows) -> None:
        self.name = name
        self.urls = MappingProxyType(dict(urls))
        self._popped = popped

    def unshown(self, turn_id: int) -> tuple[int, ...]:
        """Ids of the rows ``recv`` popped in this turn without any answer reaching its caller.

        A turn that ends well with such rows must not ack them: the model has not seen them (MSG-5).
        """
        return self._popped.unshown(turn_id)


@final
class Listener:
    """An open listener, made by `open_listener`.

    Attributes:
        port: where it listens.
        base_url: the same as a URL, without a slash at its end.
    """

    def __init__(self, host: str, port: int, nursery: trio.Nursery) -> None:
        literal = f"[{host}]" if ":" in host else host
        self.port = port
        self.base_url = f"http://{literal}:{port}"
        self._gate = Gate(frozenset(f"{name}:{port}" for name in (literal, "127.0.0.1", "localhost", "[::1]")))
        self._nursery = nursery
        self._closed = False

    @contextmanager
    def mount(self, services: ToolServices, *, token: str) -> Iterator[Mount]:
        """Serve an agent's tools until this is left: its URLs are then 404, its sessions and running calls end.

        Args:
            services: the agent's; every call that comes with its path and token is this agent's (SURF-5).
            token: its bearer token.

        Raises:
            AgentMisuse: the name is no agent's or is mounted already, the token is unfit, or the listener is closed.
        """
        name = services.name
        paths = {server: f"/agents/{name}/mcp/{server}" for server in SERVERS}
        self._check_mount(name, token, paths)
        popped = PoppedRows()
        endpoints = []
        for server, path in paths.items():
            endpoint = _Endpoint(services, server, SERVERS[server], popped, token.encode())
            self._gate.doors[path] = endpoint
            self._nursery.start_soon(endpoint.run, name=f"mcp {server} of {name}")
            endpoints.append(endpoint)
        _log.debug("agent mounted", agent=name)
        try:
            yield Mount(name, {server: self.base_url + path for server, path in paths.items()}, popped)
        finally:
            for path, endpoint in zip(paths.values(), endpoints, strict=True):
                del self._gate.doors[path]
                endpoint.close()
            _log.debug("agent unmounted", agent=name)

    def _check_mount(self, name: str, token: str, paths: Mapping[str, str]) -> None:
        if self._closed:
            raise AgentMisuse("this listener is closed: open another one to mount agents on")
        if not is_agent_name(name):
            raise AgentMisuse(f"an agent to mount must have a valid name, not {name!r}")
        if any(path in self._gate.doors for path in paths.values()):
            raise AgentMisuse(f"agent {name!r} is mounted already: leave its mount before mounting it again")
        if not token or any(not "!" <= char <= "~" for char in token):
            raise AgentMisuse("a token must be one or more visible ASCII characters: use secrets.token_urlsafe()")


@final
class _Endpoint:
    """One server of one agent behind the gate, and everything that goes on in it."""

    def __init__(
        self, services: ToolServices, server: str, tools: tuple[Tool[Any], ...], popped: PoppedRows, token: bytes
    ) -> None:
        # Not stateless and not JSON only: so that a client's cancellation reaches the tool.
        self._manager = StreamableHTTPSessionManager(
            build_server(server, tools, services, popped),
            session_idle_timeout=SESSION_IDLE_SECONDS,
            max_sessions=MAX_SESSIONS,
            max_request_body_size=MAX_BODY_BYTES,
        )
        self._token = token
        self._ready = trio.Event()
        self._scope = trio.CancelScope()
        self._requests: set[trio.CancelScope] = set()

    async def run(self) -> None:
        """Hold the sessions until `close`."""
        with self._scope:
            async with self._manager.run():
                self._ready.set()
                await trio.sleep_forever()

    def close(self) -> None:
        """End every session and every request, at once."""
        self._scope.cancel()
        for request in self._requests:
            request.cancel()

    def accepts(self, token: bytes) -> bool:
        """See `Door`."""
        return same_token(token, self._token)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `Door`."""
        has_begun = False

        async def watched_send(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        with trio.CancelScope() as request:
            self._requests.add(request)
            try:
                await self._ready.wait()
                await self._manager.handle_request(scope, receive, watched_send)
            finally:
                self._requests.discard(request)
        if request.cancelled_caught and not has_begun:
            await refuse(send, 404, "nothing is served at this path any more: the agent was stopped")
