"""What the tests of the MCP door share: an agent's services, mailboxes with bad days, clients, raw sockets."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs
import httpx2
import trio
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from hive_agent._mcp._envelope import Caller, run_tool
from hive_agent._mcp._messaging import ACK_UNTIL, RECV, SEND
from hive_agent._mcp._popped import PoppedRows
from hive_agent._mcp._status import SET_STATUS
from hive_agent.testing import MemoryPost
from hive_broker import Delivery, Received

TOKEN = "a-token-of-iris"

TOOLS = {tool.name: tool for tool in (SEND, RECV, ACK_UNTIL, SET_STATUS)}

CLIENT_LEAKS = "ignore:Async generator 'http:ResourceWarning"
"""mcp's client of the 2025 era leaves generators of its HTTP library unfinished."""


@attrs.define(kw_only=True)
class Services:
    """A `ToolServices` to set by hand."""

    mailbox: object
    name: str = "iris"
    turn_id: int | None = None
    stop_notice: str | None = None
    status: str = ""

    def set_status(self, text: str) -> None:
        if "\n" in text or len(text) > 200:
            raise ValueError("a status must be one line of at most 200 characters: shorten it")
        self.status = text


@attrs.define
class Desk:
    """One agent with its post office, called without any HTTP."""

    post: MemoryPost
    services: Services
    popped: PoppedRows = attrs.field(factory=PoppedRows)
    is_wanted: bool = True

    async def call(self, tool: str, turn: str | None = None, **arguments: object) -> str:
        """The text of a call that must succeed."""
        result = await self.result(tool, turn, **arguments)
        assert result.outcome.value == "ok", result
        return result.text

    async def result(self, tool: str, turn: str | None = None, **arguments: object):
        caller = Caller(services=self.services, popped=self.popped, turn=turn, is_wanted=lambda: self.is_wanted)
        return await run_tool(TOOLS[tool], arguments, caller)

    async def mail(self, *bodies: str, sender: str = "operator") -> None:
        """Put messages into the inbox of iris."""
        for body in bodies:
            await trio.lowlevel.checkpoint()
            self.post.put(to="iris", body=body, sender=sender)

    async def open_turn(self) -> str:
        """Open a turn of iris; returns the header its runtime sends."""
        lease = await self.services.mailbox.open_turn(cause="test")
        self.services.turn_id = lease.id
        return str(lease.id)


def make_desk() -> Desk:
    post = MemoryPost(["iris", "otto"], wall_clock=lambda: 1_767_268_800.25)
    return Desk(post, Services(mailbox=post.mailbox("iris")))


@attrs.define
class Stuck:
    """A mailbox that never answers, and knows whether it was left alone again."""

    name: str = "iris"
    reached: trio.Event = attrs.field(factory=trio.Event)
    cancelled: trio.Event = attrs.field(factory=trio.Event)

    async def _wait(self, *_: object, **__: object) -> None:
        self.reached.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()

    send = recv = ack_until = summary = _wait


@attrs.define
class Failing:
    """A mailbox whose every call raises."""

    error: Exception
    name: str = "iris"

    async def _raise(self, *_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        raise self.error

    send = recv = ack_until = summary = _raise


@attrs.define
class Holding:
    """A mailbox that gives out one delivery, whatever is in it."""

    delivery: Delivery
    name: str = "iris"

    async def recv(self, **_: object) -> Received:
        await trio.lowlevel.checkpoint()
        return Received(deliveries=(self.delivery,), remaining=0)


@asynccontextmanager
async def open_client(url: str, *, mode: str, token: str = TOKEN, turn: str | None = None) -> AsyncIterator[Client]:
    """mcp's own client: ``mode`` is ``legacy`` (2025) or ``auto`` (2026 here)."""
    headers = {"authorization": f"Bearer {token}"} | ({} if turn is None else {"hive-turn": turn})
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def text_of(result) -> str:
    """The one text of a tool's result."""
    (block,) = result.content
    return block.text


def post_bytes(url: str, body: bytes, **headers: str) -> bytes:
    """A POST as it goes over the wire; a header given as None is left out."""
    authority, _, path = url.removeprefix("http://").partition("/")
    fields = {
        "host": authority,
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(body)),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"POST /{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value is not None)]
    head = "\n".join(lines).replace("\n", "\r\n")
    return head.encode() + b"\r\n\r\n" + body


def modern(method: str, params: dict | None = None) -> bytes:
    """A request of the 2026 era, whole in itself."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}
    ).encode()


def modern_headers(method: str, name: str | None = None) -> dict[str, str]:
    """What goes with `modern`."""
    return {"mcp_protocol_version": "2026-07-28", "mcp_method": method} | ({} if name is None else {"mcp_name": name})


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def exchange(port: int, data: bytes) -> bytes:
    """Send, and read until the head of an answer and what came with it is there, or the connection ends."""
    async with await connect(port) as stream:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data)
        return await read_answer(stream)


async def read_answer(stream: trio.SocketStream) -> bytes:
    answer = b""
    while True:
        try:
            chunk = await stream.receive_some(65536)
        except trio.BrokenResourceError:
            return answer
        answer += chunk
        head, found, body = answer.partition(b"\r\n\r\n")
        if not chunk:
            return answer
        if found:
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if not lengths or len(body) >= int(lengths[0].split(b":")[1]):
                return answer


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0
