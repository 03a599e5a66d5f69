"""Who gets a connection of the listener when there are more who want one than it takes."""

import tracemalloc

import pytest
import trio
from mcp_support import (
    TOKEN,
    Services,
    connect,
    exchange,
    make_desk,
    modern,
    modern_headers,
    post_bytes,
    read_answer,
    status_of,
)
from trio.testing import wait_all_tasks_blocked

from hive_agent._mcp import _http, open_listener
from hive_agent._mcp._identity import Gate

CALL_RECV = modern("tools/call", {"name": "recv", "arguments": {}})
RECV_HEADERS = modern_headers("tools/call", "recv")


def call_of(url: str, **headers: str) -> bytes:
    return post_bytes(url, CALL_RECV, **RECV_HEADERS, **headers)


@pytest.fixture
async def served():
    """A listener with iris and otto on it, and the URL of each."""
    desk = make_desk()
    otto = Services(mailbox=desk.post.mailbox("otto"), name="otto")
    with trio.fail_after(5):
        async with open_listener() as listener:
            with (
                listener.mount(desk.services, token=TOKEN) as mount,
                listener.mount(otto, token=TOKEN) as other,
            ):
                yield listener.port, mount.urls["hyperhive"], other.urls["hyperhive"]


async def connected(port: int, count: int) -> list[trio.SocketStream]:
    """Connections that the listener has accepted."""
    streams = [await connect(port) for _ in range(count)]
    await wait_all_tasks_blocked(0.01)
    return streams


async def is_served(stream: trio.SocketStream, url: str) -> bool:
    await stream.send_all(call_of(url))
    return status_of(await read_answer(stream)) == 200


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (401, CALL_RECV, {"authorization": "Bearer wrong"}),
        (401, CALL_RECV, {"authorization": None}),
        (403, CALL_RECV, {"origin": "http://evil.example"}),
        (413, b"x" * 2_000_000, {}),
        (421, CALL_RECV, {"host": "evil.example"}),
    ],
    ids=["wrong token", "no token", "origin", "long body", "host"],
)
async def test_a_refusal_ends_its_connection(served, status, body, headers):
    """REL-4, SURF-5: whoever was refused holds nothing."""
    port, url, _ = served
    async with await connect(port) as stream:
        await stream.send_all(post_bytes(url, body, **RECV_HEADERS, **headers))
        answer = await read_answer(stream)
        assert status_of(answer) == status
        assert b"\r\nconnection: close\r\n" in answer
        assert await stream.receive_some() == b""


async def test_a_path_where_nothing_is_ends_its_connection(served):
    """REL-4: also without any token."""
    port, url, _ = served
    async with await connect(port) as stream:
        await stream.send_all(call_of(url.replace("iris", "nobody"), authorization=None))
        assert status_of(await read_answer(stream)) == 404
        assert await stream.receive_some() == b""


async def test_the_oldest_connection_that_nobody_holds_makes_way(served, monkeypatch):
    """REL-4: strangers who say nothing cannot keep an agent from its tools."""
    monkeypatch.setattr(_http, "MAX_CONNECTIONS", 3)
    port, url, _ = served
    oldest, *others = await connected(port, 3)
    assert status_of(await exchange(port, call_of(url))) == 200
    assert await oldest.receive_some() == b""
    for stream in others:
        assert await is_served(stream, url)
    for stream in (oldest, *others):
        await stream.aclose()


async def test_an_agent_keeps_its_connection_through_a_flood_of_strangers(served, monkeypatch):
    """REL-4: it has shown its token on it."""
    monkeypatch.setattr(_http, "MAX_CONNECTIONS", 3)
    port, url, _ = served
    (held,) = await connected(port, 1)
    assert await is_served(held, url)
    strangers = await connected(port, 20)
    assert await is_served(held, url)
    assert status_of(await exchange(port, call_of(url))) == 200
    for stream in (held, *strangers):
        await stream.aclose()


async def test_an_agent_that_holds_too_many_connections_gives_one_back(served, monkeypatch):
    """REL-4: one agent cannot keep another from its tools."""
    monkeypatch.setattr(_http, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(_http, "MAX_SHARE", 2)
    port, url, url_of_otto = served
    held_by_otto, oldest, *others = await connected(port, 4)
    assert await is_served(held_by_otto, url_of_otto)
    for stream in (oldest, *others):
        assert await is_served(stream, url)
    assert status_of(await exchange(port, call_of(url_of_otto))) == 200
    assert await oldest.receive_some() == b""
    assert await is_served(held_by_otto, url_of_otto)
    for stream in (held_by_otto, oldest, *others):
        await stream.aclose()


async def test_the_body_of_a_refused_request_is_not_kept():
    """REL-4: strangers must not be able to fill the memory."""
    chunk, left, sent = b"x" * 65_536, 60, []

    async def receive():
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": chunk, "more_body": left > 0}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/", "headers": [(b"host", b"here:1")]}
    tracemalloc.start()
    await Gate(frozenset({"here:1"}))(scope, receive, send)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (sent[0]["status"], left) == (404, 0)
    assert peak < 100_000
