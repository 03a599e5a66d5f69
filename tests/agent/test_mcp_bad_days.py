"""The listener and peers that misbehave: each costs its own connection at most, and none of them a shutdown."""

import json
import logging
import socket
from contextlib import suppress

import pytest
import trio
from mcp_support import (
    TOKEN,
    Services,
    Stuck,
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
from waiting import eventually

from hive_agent._mcp import _http, _identity, open_listener

SHUTDOWN_SECONDS = 0.5
"""What an agent's stop may spend on its listener."""

CALL_RECV = modern("tools/call", {"name": "recv", "arguments": {}})
RECV_HEADERS = modern_headers("tools/call", "recv")
WEBSOCKET = (
    b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
).encode()


@pytest.fixture(autouse=True)
async def bounded_and_quiet(caplog):
    """Every test here is bounded, and nothing a peer does is worth a warning of the libraries beneath."""
    with trio.fail_after(20), caplog.at_level(logging.WARNING):
        yield
    noisy = [record for record in caplog.records if record.name.split(".")[0] in {"mcp", "hypercorn", "trio", "root"}]
    assert noisy == []


@pytest.fixture
async def served(bounded_and_quiet):
    """A listener with iris on it: ``(listener, url, desk)``; afterwards it must still answer, and close in time."""
    desk = make_desk()
    with trio.CancelScope() as closing:
        async with open_listener() as listener:
            with listener.mount(desk.services, token=TOKEN) as mount:
                yield listener, mount.urls["hyperhive"], desk
                answer = await exchange(listener.port, post_bytes(mount.urls["hyperhive"], CALL_RECV, **RECV_HEADERS))
                assert b'"isError":false' in answer
            closing.deadline = trio.current_time() + SHUTDOWN_SECONDS
    assert not closing.cancelled_caught, "the listener did not close in time"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xfe\xfd / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\nhttp2-settings: AAMAAABk\r\n\r\n",
        WEBSOCKET,
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000,
        b"x" * 300_000,
    ],
)
async def test_garbage_is_refused(served, garbage):
    """REL-4: a line that is no HTTP ends its connection and nothing else."""
    listener, _, _ = served
    answer = await exchange(listener.port, garbage)
    assert status_of(answer) in {0, 400, 403, 404, 413, 421, 431, 501}


async def test_a_body_over_the_limit_is_refused_in_words(served):
    """REL-4: and its sender lives to read them."""
    listener, url, _ = served
    answer = await exchange(listener.port, post_bytes(url, b"x" * 2 * 1024 * 1024, **RECV_HEADERS))
    assert status_of(answer) == 413
    assert b"at most 1048576 bytes" in answer


async def test_a_refusal_reaches_the_sender_of_a_long_body(served):
    """SURF-5: a connection reset is not how to learn that a token is wrong."""
    listener, url, _ = served
    answer = await exchange(listener.port, post_bytes(url, b"x" * 4 * 1024 * 1024, authorization="Bearer wrong"))
    assert status_of(answer) == 401


async def test_an_endless_body_is_not_read_for_ever(served):
    """REL-4: nor kept."""
    listener, url, _ = served
    head = post_bytes(url, b"", content_length=str(2**40), **RECV_HEADERS)
    async with await connect(listener.port) as stream, trio.open_nursery() as nursery:

        async def pour():
            with suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(b"x" * 65536)

        await stream.send_all(head)
        nursery.start_soon(pour)
        await read_answer(stream)


@pytest.mark.parametrize("depth", [100, 980, 100_000])
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_deep_json_is_no_way_in(served, depth, era):
    """REL-4: depth is bounded by the parsers, and what they let through is not walked."""
    listener, url, _ = served
    deep = b"[" * depth + b"]" * depth
    if era == "2026":
        body = CALL_RECV.replace(b'"arguments": {}', b'"arguments": {"max": %s, "other": %s}' % (deep, deep))
        answer = await exchange(listener.port, post_bytes(url, body, **RECV_HEADERS))
    else:
        answer = await exchange(listener.port, post_bytes(url, INITIALIZE.replace(b"{}", b'{"x": %s}' % deep)))
    assert status_of(answer) in {200, 400}


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[]", b"null", b"17", b'{"jsonrpc": "2.0"}', b"{" * 1000, b'"\\ud800"', b"NaN"]
)
@pytest.mark.parametrize("headers", [{}, RECV_HEADERS])
async def test_a_body_that_is_no_request_is_refused(served, body, headers):
    """REL-4: invalid UTF-8 and wrong shapes."""
    listener, url, _ = served
    answer = await exchange(listener.port, post_bytes(url, body, **headers))
    assert 400 <= status_of(answer) < 500


async def test_half_a_surrogate_pair_does_not_reach_the_mailbox(served):
    """MSG-3: JSON can spell what UTF-8 cannot."""
    listener, url, desk = served
    body = modern("tools/call", {"name": "send", "arguments": {"to": "otto", "body": "\ud800"}})
    assert rb"\ud800" in body
    request = post_bytes(url, body, **modern_headers("tools/call", "send"))
    answer = await exchange(listener.port, request)
    assert b"valid Unicode" in answer
    assert desk.post.messages("otto") == ()


@pytest.mark.slow
async def test_two_hundred_connections_opened_and_dropped_leave_nothing(served):
    """REL-4: neither politely closed ones nor reset ones."""
    listener, url, _ = served
    before = trio.lowlevel.current_statistics().tasks_living
    for number in range(200):
        stream = await connect(listener.port)
        if number % 2:
            await stream.send_all(post_bytes(url, CALL_RECV, **RECV_HEADERS)[: number * 2])
        if number % 3:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        await stream.aclose()
    await eventually(lambda: trio.lowlevel.current_statistics().tasks_living <= before)


async def test_connections_over_the_limit_are_turned_away_in_words(served, monkeypatch):
    """REL-4: and taken again once others have gone."""
    listener, url, _ = served
    monkeypatch.setattr(_http, "MAX_CONNECTIONS", 2)
    request = post_bytes(url, CALL_RECV, **RECV_HEADERS)
    async with await connect(listener.port) as one, await connect(listener.port) as two:
        for stream in (one, two):
            await stream.send_all(request)
            assert status_of(await read_answer(stream)) == 200
        answer = await exchange(listener.port, b"")
        assert status_of(answer) == 503
        assert b"close some" in answer
    await wait_all_tasks_blocked(0.01)


@pytest.mark.parametrize("part", [20, -5], ids=["half a head", "half a body"])
async def test_a_request_that_never_ends_is_given_up(part, served, monkeypatch):
    """REL-4: slowly dripping requests do not hold connections for ever."""
    monkeypatch.setattr(_http, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(_identity, "BODY_SECONDS", 0.05)
    listener, url, _ = served
    async with await connect(listener.port) as stream:
        await stream.send_all(post_bytes(url, CALL_RECV, **RECV_HEADERS)[:part])
        answer = await read_answer(stream)
    assert status_of(answer) == (0 if part > 0 else 408)


async def test_a_connection_that_rests_too_long_is_closed(served, monkeypatch):
    """REL-4: between requests there is more time, and it ends too."""
    monkeypatch.setattr(_http, "KEEP_ALIVE_SECONDS", 0.05)
    listener, url, _ = served
    async with await connect(listener.port) as stream:
        await stream.send_all(post_bytes(url, CALL_RECV, **RECV_HEADERS))
        assert status_of(await read_answer(stream)) == 200
        assert await stream.receive_some() == b""


async def test_many_requests_share_one_connection(served):
    """SURF-1: also two sent before the first was answered."""
    listener, url, _ = served
    request = post_bytes(url, CALL_RECV, **RECV_HEADERS)
    async with await connect(listener.port) as stream:
        await stream.send_all(request + request)
        answers = b""
        while answers.count(b'"version"') < 2 or not answers.endswith(b"}}}}"):
            answers += await stream.receive_some()
        for _ in range(20):
            await stream.send_all(request)
            assert status_of(await read_answer(stream)) == 200


async def test_a_2026_client_that_vanishes_cancels_its_call():
    """SURF-2: the tool stops, so that it pops no mail for nobody."""
    services = Services(mailbox=(stuck := Stuck()))
    async with open_listener() as listener:
        with listener.mount(services, token=TOKEN) as mount:
            async with await connect(listener.port) as stream:
                await stream.send_all(post_bytes(mount.urls["hyperhive"], CALL_RECV, **RECV_HEADERS))
                await stuck.reached.wait()
            await stuck.cancelled.wait()


async def test_mail_popped_for_a_2025_client_that_vanished_is_kept_for_the_next_call():
    """MSG-5: in that era a disconnect cancels nothing, so the tool must notice by itself."""
    desk = make_desk()
    turn = await desk.open_turn()
    await desk.mail("precious")
    real = desk.services.mailbox
    reached, go_on, done = trio.Event(), trio.Event(), trio.Event()

    class Slow:
        async def recv(self, **arguments):
            received = await real.recv(**arguments)
            reached.set()
            await go_on.wait()
            done.set()
            return received

    desk.services.mailbox = Slow()
    async with open_listener() as listener:
        with listener.mount(desk.services, token=TOKEN) as mount:
            url = mount.urls["hyperhive"]
            session = await open_session(listener.port, url)
            call = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "recv"}}).encode()
            request = post_bytes(url, call, mcp_session_id=session, hive_turn=turn)
            async with await connect(listener.port) as stream:
                await stream.send_all(request)
                await reached.wait()
            await wait_all_tasks_blocked(0.01)
            go_on.set()
            await done.wait()
            await wait_all_tasks_blocked(0.01)
            assert mount.unshown(int(turn)) == (1,)
            desk.services.mailbox = real
            again = await exchange(listener.port, post_bytes(url, CALL_RECV, hive_turn=turn, **RECV_HEADERS))
            assert b"precious" in again
            assert mount.unshown(int(turn)) == ()


async def test_a_client_that_stops_reading_loses_its_connection(served, monkeypatch):
    """REL-4: a write is bounded, and the listener goes on meanwhile."""
    monkeypatch.setattr(_http, "WRITE_SECONDS", 0.1)
    listener, url, desk = served
    await desk.mail("x" * 40_000)
    request = post_bytes(url, CALL_RECV, **RECV_HEADERS)
    async with await connect(listener.port) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        with suppress(trio.BrokenResourceError):
            while True:
                await desk.mail("x" * 40_000)
                await stream.send_all(request)


@pytest.mark.slow
async def test_a_shutdown_waits_for_nobody(monkeypatch):
    """STOP-3: open streams of both eras, a running call, half a head, half a body, and a client that reads nothing."""
    services = Services(mailbox=Stuck())
    desk = make_desk()
    streams = []
    with trio.CancelScope() as closing:
        async with open_listener() as listener:
            with (
                listener.mount(services, token=TOKEN) as mount,
                listener.mount(Services(mailbox=desk.services.mailbox, name="otto"), token=TOKEN) as otto,
            ):
                url = mount.urls["hyperhive"]
                session = await open_session(listener.port, url)
                listen = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
                call = post_bytes(url, CALL_RECV, **RECV_HEADERS)
                for data in (
                    post_bytes(url, listen, **modern_headers("subscriptions/listen")),
                    post_bytes(url, b"", mcp_session_id=session).replace(b"POST", b"GET", 1),
                    call,
                    call[:30],
                    call[:-10],
                    b"",
                ):
                    streams.append(await connect(listener.port))
                    await streams[-1].send_all(data)
                for stream in streams[:2]:
                    assert status_of(await read_head(stream)) == 200
                await services.mailbox.reached.wait()

                deaf = await connect(listener.port)
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                streams.append(deaf)
                listing = post_bytes(otto.urls["hyperhive"], modern("tools/list"), **modern_headers("tools/list"))
                with trio.move_on_after(0.3):
                    while True:
                        await deaf.send_all(listing)
            closing.deadline = trio.current_time() + SHUTDOWN_SECONDS
    assert not closing.cancelled_caught
    for stream in streams:
        await stream.aclose()


async def test_a_cancelled_listener_closes_as_promptly():
    """STOP-3: cancellation of the embedding scope, not only leaving the block."""
    services = Services(mailbox=Stuck())
    async with trio.open_nursery() as nursery:

        async def serve(task_status):
            async with open_listener() as listener:
                with listener.mount(services, token=TOKEN) as mount:
                    task_status.started((listener.port, mount.urls["hyperhive"]))
                    await trio.sleep_forever()

        port, url = await nursery.start(serve)
        async with await connect(port) as stream:
            await stream.send_all(post_bytes(url, CALL_RECV, **RECV_HEADERS))
            await services.mailbox.reached.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(SHUTDOWN_SECONDS):
                assert await read_answer(stream) == b""


async def open_session(port: int, url: str) -> str:
    """The id of a session of the 2025 era, ready for calls."""
    answer = await exchange(port, post_bytes(url, INITIALIZE))
    (line,) = [line for line in answer.split(b"\r\n") if line.startswith(b"mcp-session-id")]
    session = line.split(b": ")[1].decode()
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    assert status_of(await exchange(port, post_bytes(url, note, mcp_session_id=session))) == 202
    return session


async def read_head(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        chunk = await stream.receive_some()
        assert chunk
        head += chunk
    return head
