"""Who may pass: Host, Origin, path and bearer token, and a body that is neither endless nor slow (SURF-5, REL-4).

An ASGI application in front of every agent's MCP endpoint. Knows no MCP beyond the fact that it is spoken behind it.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, final

import attrs
import trio

from ._http import hold_connection

__all__ = [
    "MAX_BODY_BYTES",
    "Door",
    "Exchange",
    "Gate",
    "Receive",
    "Scope",
    "Send",
    "caller_turn",
    "exchange_of",
    "refuse",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES = 1024 * 1024
"""One request: four times the longest message, escaped (REL-4)."""

BODY_SECONDS = 30.0
"""For a request's body to arrive on loopback."""

_DRAIN_BYTES = 8 * MAX_BODY_BYTES
"""Of a body that is too long, what is read and dropped so that its sender gets to see the answer."""

_DRAIN_SECONDS = 2.0
"""For the body of a request that is refused for another reason."""

_EXCHANGE_KEY = "hyperhive.exchange"


@final
class Exchange:
    """One HTTP request and its answer, seen from the tool: whether there is still somebody to answer."""

    def __init__(self) -> None:
        self.is_open = True


class Door(Protocol):
    """What the gate opens: one agent's endpoint."""

    def accepts(self, token: bytes) -> bool:
        """Whether this is the token of the agent behind it, compared in constant time."""
        ...

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that has passed."""
        ...


def same_token(one: bytes, other: bytes) -> bool:
    """Compare two secrets without telling by the time how much of them agrees."""
    return hmac.compare_digest(one, other)


def exchange_of(scope: Scope) -> Exchange:
    """The exchange that the gate put into a request's scope."""
    exchange = scope[_EXCHANGE_KEY]
    assert isinstance(exchange, Exchange)  # noqa: S101 - narrows a value this module stored itself
    return exchange


def caller_turn(scope: Scope) -> str | None:
    """The ``Hive-Turn`` header as it came; several that differ are joined, which no turn's number looks like."""
    values = {value.decode("latin-1") for name, value in scope["headers"] if name == b"hive-turn"}
    return ", ".join(sorted(values)) if values else None


@attrs.frozen
class _Refusal:
    status: int
    sentence: str


@final
class Gate:
    """The ASGI application of a listener.

    Attributes:
        doors: path to endpoint, exactly as in the URL.
    """

    def __init__(self, authorities: frozenset[str]) -> None:
        """``authorities`` are the ``host:port`` this listener answers to."""
        self.doors: dict[str, Door] = {}
        self._hosts = frozenset(authority.encode() for authority in authorities)
        self._origins = frozenset(f"http://{authority}".encode() for authority in authorities)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or say in words why not."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close"})
            return
        door = self._admit(scope)
        if isinstance(door, _Refusal):
            await _drain(receive)
            await refuse(send, door.status, door.sentence, challenge=door.status == 401)
            return
        hold_connection(scope, scope["path"])
        await _pass_on(door, scope, receive, send)

    def _admit(self, scope: Scope) -> Door | _Refusal:
        """The door this request may pass, or why it may not."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return _Refusal(421, "this listener answers only to its own loopback address in the Host header")
        if any(origin.lower() not in self._origins for origin in _values(scope, b"origin")):
            return _Refusal(403, "requests from pages of another origin are refused")
        door = self.doors.get(scope["path"])
        if door is None:
            return _Refusal(404, "nothing is served at this path: the agent may have been stopped")
        token = _bearer_token(scope)
        if token is None:
            return _Refusal(401, "a bearer token is needed here: use the one that was given out with this URL")
        if not door.accepts(token):
            return _Refusal(401, "this is not the bearer token of this path: use the one given out with this URL")
        return door


async def _pass_on(door: Door, scope: Scope, receive: Receive, send: Send) -> None:
    body: bytes | None = None
    with trio.move_on_after(BODY_SECONDS) as in_time:
        body, is_whole = await _read_body(receive)
        if not is_whole:
            return
    if in_time.cancelled_caught:
        await refuse(send, 408, f"the request's body did not arrive within {BODY_SECONDS:.0f} seconds")
        return
    if body is None:
        await refuse(send, 413, f"a request's body must be at most {MAX_BODY_BYTES} bytes")
        return
    replay: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return replay.pop() if replay else await receive()

    exchange = scope[_EXCHANGE_KEY] = Exchange()
    try:
        await door.serve(scope, replayed, send)
    finally:
        exchange.is_open = False


async def _read_body(receive: Receive) -> tuple[bytes | None, bool]:
    """The body, None when it is too long; and whether the client stayed until its end.

    A body that is too long is read on and dropped up to a bound, so that its sender gets to see the answer.
    """
    body = bytearray()
    received = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"", False
        received += len(message.get("body", b""))
        if received <= MAX_BODY_BYTES:
            body += message.get("body", b"")
        else:
            body.clear()
        if received > _DRAIN_BYTES or not message.get("more_body", False):
            return (bytes(body) if received <= MAX_BODY_BYTES else None), True


async def _drain(receive: Receive) -> None:
    """Read a stranger's body without keeping any of it."""
    received, more = 0, True
    with trio.move_on_after(_DRAIN_SECONDS):
        while more and received <= _DRAIN_BYTES:
            message = await receive()
            received += len(message.get("body", b""))
            more = message.get("more_body", False)


async def refuse(send: Send, status: int, sentence: str, *, challenge: bool = False) -> None:
    """Answer in words, outside of MCP, and end the connection: what was refused must not hold one (REL-4)."""
    body = json.dumps({"error": sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if challenge:
        headers.append((b"www-authenticate", b'Bearer realm="hyperhive", error="invalid_token"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _bearer_token(scope: Scope) -> bytes | None:
    values = _values(scope, b"authorization")
    if len(values) != 1:
        return None
    kind, _, token = values[0].partition(b" ")
    return bytes(token.strip()) if kind.lower() == b"bearer" and token.strip() else None
