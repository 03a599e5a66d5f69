"""Requests as they go over the wire, for what mcp's own client would never send.

Owns the two eras' JSON-RPC over HTTP, and raw bytes to the listener. Judges nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import trio

from ._client import Era
from ._subject import AgentDoor

__all__ = [
    "initialize",
    "message_of",
    "open_http",
    "post",
    "raw_answer",
    "request",
    "request_headers",
    "session_headers",
    "whole_request",
]

_ANSWER_SECONDS = 10.0
"""For an answer on loopback to what is refused at once."""


@asynccontextmanager
async def open_http(door: AgentDoor, **headers: str | None) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client with an agent's token.

    Args:
        door: the agent.
        headers: more of them, or others; None leaves one out.
    """
    fields = {"authorization": f"Bearer {door.token}", "accept": "application/json, text/event-stream"} | headers
    present = {name: value for name, value in fields.items() if value is not None}
    async with httpx2.AsyncClient(headers=present, timeout=_ANSWER_SECONDS) as http:
        yield http


def request(method: str, params: Mapping[str, Any] | None = None, *, id_: int | None = 1) -> dict[str, Any]:
    """A JSON-RPC request, or a notification for no id."""
    return {"jsonrpc": "2.0", "method": method, "params": dict(params or {})} | ({} if id_ is None else {"id": id_})


def initialize(version: str) -> dict[str, Any]:
    """How a client of the era with sessions begins."""
    client = {"name": "conformance", "version": "1"}
    return request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client})


def session_headers(began: httpx2.Response, version: str) -> dict[str, str]:
    """The headers of every later request of a client that got this answer to ``initialize``."""
    session = began.headers.get("mcp-session-id")
    assert session is not None, f"initialize must begin a session, got {began.status_code} {began.text[:200]!r}"
    return {"mcp-session-id": session, "mcp-protocol-version": version}


def request_headers(method: str, name: str | None = None) -> dict[str, str]:
    """The headers of a request of the era without sessions."""
    fields = {"mcp-protocol-version": Era.PER_REQUEST.value, "mcp-method": method}
    return fields if name is None else fields | {"mcp-name": name}


async def post(http: httpx2.AsyncClient, door: AgentDoor, method: str, **params: Any) -> httpx2.Response:
    """One request of the era without sessions, whole in itself."""
    headers = request_headers(method, params.get("name"))
    return await http.post(door.url, json=whole_request(method, params), headers=headers)


def whole_request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The body of such a request."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": Era.PER_REQUEST.value,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "conformance", "version": "1"},
    }
    return request(method, {**params, "_meta": meta})


def message_of(response: httpx2.Response) -> dict[str, Any]:
    """The JSON-RPC answer in a response, which may be JSON or a stream that ends with it."""
    text = response.text
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        text = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data: {")][-1]
    message: dict[str, Any] = json.loads(text)
    return message


async def raw_answer(door: AgentDoor, data: bytes, *, finish: bool = True) -> bytes:
    """Send bytes to an agent's listener, and return what came back when it ended the connection or was quiet.

    Args:
        door: the agent.
        data: as it goes over the wire.
        finish: whether to wait for an answer; else the connection is dropped as soon as the bytes are out.
    """
    address = urlsplit(door.url)
    answer = b""
    async with await trio.open_tcp_stream(str(address.hostname), int(address.port or 80)) as stream:
        try:
            await stream.send_all(data)
            while finish:
                with trio.fail_after(_ANSWER_SECONDS):
                    chunk = await stream.receive_some(65536)
                answer += chunk
                if not chunk or b"\r\n\r\n" in answer:
                    break
        except trio.BrokenResourceError:
            return answer
    return answer
