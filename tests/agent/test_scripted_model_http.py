"""The scripted model as an HTTP server: what clients get, and what no client can do to it."""

import json
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio
import trio.testing

from hive_agent.testing import (
    ScriptedModel,
    ScriptFailed,
    Usage,
    call,
    cut,
    delay,
    fail,
    half,
    open_scripted_model,
    say,
    stall,
)

ASK = {"model": "opus", "max_tokens": 10, "messages": [{"role": "user", "content": "go"}]}
STREAM = {**ASK, "stream": True}


@asynccontextmanager
async def serving(model):
    with trio.fail_after(5):
        async with (
            open_scripted_model(model) as served,
            httpx2.AsyncClient(base_url=served.base_url, trust_env=False, timeout=5) as client,
        ):
            yield served, client


def scripted(*steps, **more) -> ScriptedModel:
    model = ScriptedModel()
    model.otherwise(*steps, **more)
    return model


def events(response) -> list[tuple[str, dict]]:
    found = []
    for block in response.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def until_closed(stream) -> bytes:
    received = b""
    while data := await stream.receive_some():
        received += data
    return received


def posted(body: bytes, *lines: str) -> bytes:
    head = ["POST /v1/messages HTTP/1.1", "host: x", f"content-length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


async def test_a_stream_has_the_events_of_the_api_in_their_order():
    """TURN-7: text, several calls and all figures arrive as the API sends them."""
    usage = Usage(input=1, output=2, cache_read=3, cache_creation=4)
    async with serving(scripted(say("a" * 300), call("Read", file_path="/é"), call("Grep"), usage=usage)) as (
        _,
        client,
    ):
        response = await client.post("/v1/messages?beta=true", json=STREAM)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["request-id"].startswith("req_")
    names = [name for name, _ in events(response)]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names == [
        "message_start",
        *block[:1],
        *block[1:2] * 2,
        *block[2:],
        *block * 2,
        "message_delta",
        "message_stop",
    ]
    data = [data for _, data in events(response)]
    assert all(name == item["type"] for name, item in events(response))
    assert data[0]["message"]["usage"] == {
        "input_tokens": 1,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 4,
        "output_tokens": 1,
    }
    assert [json.loads(item["delta"]["partial_json"]) for item in data if "partial_json" in item.get("delta", {})] == [
        {"file_path": "/é"},
        {},
    ]
    assert data[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    }


async def test_a_client_that_wants_no_stream_gets_one_message():
    """TURN-7: the same reply, in one piece."""
    usage = Usage(input=1, output=2)
    async with serving(scripted(say("hello"), delay(0), call("Read", file_path="/x"), usage=usage)) as (_, client):
        message = (await client.post("/v1/messages", json=ASK)).json()
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert message["content"][1]["input"] == {"file_path": "/x"}
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("tool_use", 2)


async def test_an_empty_reply_is_a_message_without_content():
    """TURN-5: a model may have nothing to say."""
    async with serving(scripted()) as (_, client):
        assert [name for name, _ in events(await client.post("/v1/messages", json=STREAM))] == [
            "message_start",
            "message_delta",
            "message_stop",
        ]


@pytest.mark.parametrize("body", [ASK, STREAM], ids=["whole", "stream"])
async def test_an_error_has_its_status_its_headers_and_the_shape_of_the_api(body):
    """TURN-5: outcomes are told apart by status, word and header."""
    async with serving(scripted(fail(429, "slow down", retry_after=600, headers={"x-more": "1"}))) as (_, client):
        response = await client.post("/v1/messages", json=body)
    assert response.status_code == 429
    assert (response.headers["retry-after"], response.headers["x-more"]) == ("600", "1")
    assert response.json() == {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}


async def test_an_error_after_the_first_words_is_an_event_of_the_stream():
    """TURN-5: overload can come in the middle of an answer."""
    async with serving(scripted(say("well"), fail(529))) as (_, client):
        response = await client.post("/v1/messages", json=STREAM)
    assert response.status_code == 200
    name, data = events(response)[-1]
    assert (name, data["error"]["type"]) == ("error", "overloaded_error")


async def test_a_cut_ends_the_connection_in_the_middle():
    """TURN-5: a dead network is not an answer."""
    async with serving(scripted(say("well"), cut())) as (_, client):
        for body in (ASK, STREAM):
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.post("/v1/messages", json=body)


async def test_a_cut_comes_after_what_was_said_before_it():
    """TURN-5: half an answer reaches the client."""
    async with serving(scripted(say("well"), cut())) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            await stream.send_all(posted(json.dumps(STREAM).encode()))
            received = await until_closed(stream)
    assert b"text_delta" in received
    assert b"message_stop" not in received
    assert not received.endswith(b"0\r\n\r\n")


async def test_a_cut_can_come_inside_of_a_block():
    """TURN-5: half the arguments of a call reach the client, and are no call."""
    async with serving(scripted(half(call("Write", content="0123456789")), cut())) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            await stream.send_all(posted(json.dumps(STREAM).encode()))
            received = await until_closed(stream)
    assert b"input_json_delta" in received
    assert b"9" not in received.partition(b"input_json_delta")[2]
    assert b"content_block_stop" not in received


async def test_the_second_half_of_a_block_comes_after_the_silence():
    """TURN-6: a pause inside of a block loses nothing."""
    async with serving(scripted(half(say("first and second")), delay(0), half(say("x")))) as (_, client):
        found = events(await client.post("/v1/messages", json=STREAM))
        whole = (await client.post("/v1/messages", json=ASK)).json()
    deltas = [(data["index"], data["delta"]["text"]) for name, data in found if name == "content_block_delta"]
    assert deltas == [(0, "first an"), (0, "d second"), (1, "x")]
    assert [name for name, _ in found].count("content_block_stop") == 2
    assert [block["text"] for block in whole["content"]] == ["first and second", "x"]


async def test_a_stalled_reply_goes_on_when_it_is_released():
    """TURN-6: silence is scripted by an event, before the first byte or after some."""
    first, second = trio.Event(), trio.Event()
    async with serving(scripted(stall(first), say("one"), stall(second), say("two"))) as (served, client):
        async with trio.open_nursery() as nursery:

            async def ask():
                responses.append(await client.post("/v1/messages", json=STREAM))

            responses = []
            nursery.start_soon(ask)
            await served.model.wait_requests(1)
            assert served.active_requests == 1
            first.set()
            second.set()
        assert events(responses[0])[-1][0] == "message_stop"


async def test_a_client_that_leaves_a_stall_leaves_no_task():
    """TURN-6: a killed runtime frees what it waited for."""
    async with serving(scripted(say("one"), stall())) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        await stream.send_all(posted(json.dumps(STREAM).encode()))
        received = b""
        while b"content_block_stop" not in received:
            received += await stream.receive_some()
        assert served.active_requests == 1
        await stream.aclose()
        await served.wait_idle()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_client_that_leaves_cancels_the_function_that_answers_it(reset):
    """TURN-6: a reply function ends with its client."""
    model = ScriptedModel()
    cancelled = trio.Event()

    async def answer(request):
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    model.otherwise(answer)
    async with serving(model) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        if reset:
            linger_zero = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, linger_zero)
        await stream.send_all(posted(json.dumps(ASK).encode()))
        await model.wait_requests(1)
        await stream.aclose()
        await cancelled.wait()
        await served.wait_idle()


async def test_leaving_the_block_ends_stalled_and_idle_connections_at_once():
    """STOP-3: nothing outlives the nursery."""
    async with serving(scripted(stall())) as (served, _), trio.open_nursery() as nursery:
        for body in (b"", posted(json.dumps(ASK).encode()), b"POST /v1/mess"):
            stream = await trio.open_tcp_stream("127.0.0.1", served.port)
            nursery.start_soon(until_reset, stream)
            await stream.send_all(body)
        await served.model.wait_requests(1)
        nursery.cancel_scope.cancel()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", served.port)


async def until_reset(stream):
    async with stream:
        await until_closed(stream)


async def test_one_connection_carries_one_request_after_the_other():
    """REL-4: keep-alive, and a request sent ahead of the answer to the one before it."""
    async with serving(scripted(say("hi"))) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            ask = posted(json.dumps(ASK).encode())
            await stream.send_all(ask + posted(json.dumps(ASK).encode(), "connection: close"))
            received = await until_closed(stream)
    assert received.count(b"HTTP/1.1 200") == 2
    assert len(served.model.requests) == 2


async def test_a_client_that_closes_its_side_after_asking_still_gets_its_answer():
    """REL-4: a half-closed connection is a legal one."""
    async with serving(scripted(say("hi"))) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            await stream.send_all(posted(json.dumps(ASK).encode()))
            await stream.send_eof()
            assert b'"end_turn"' in await until_closed(stream)


async def test_many_clients_are_answered_side_by_side():
    """TURN-2: a fleet shares one model; all are in flight before the first is answered."""
    gate = trio.Event()
    async with serving(scripted(stall(gate), say("hi"))) as (served, _):
        limits = httpx2.Limits(max_connections=None)
        async with (
            httpx2.AsyncClient(base_url=served.base_url, trust_env=False, limits=limits, timeout=5) as client,
            trio.open_nursery() as nursery,
        ):
            for _ in range(100):
                nursery.start_soon(ask_ok, client)
            await served.model.wait_requests(100)
            assert served.active_requests == 100
            gate.set()
        assert served.active_requests == 0


async def ask_ok(client):
    assert (await client.post("/v1/messages", json=STREAM)).status_code == 200


async def test_tokens_are_counted_by_an_estimate_or_by_the_script():
    """COMP-1: the CLI asks for the size of a context."""
    exact = ScriptedModel(count=lambda request: 1234)
    for model, tokens in ((ScriptedModel(), len(json.dumps(ASK, separators=(",", ":"))) // 4), (exact, 1234)):
        async with serving(model) as (_, client):
            response = await client.post("/v1/messages/count_tokens?beta=true", json=ASK)
        assert response.json() == {"input_tokens": tokens}
        assert (len(model.counts), len(model.requests)) == (1, 0)


async def test_other_paths_get_an_error_in_words_and_are_noted():
    """SURF-6: what the stand-in cannot do it says."""
    model = ScriptedModel()
    async with serving(model) as (_, client):
        assert (await client.get("/")).status_code == 200
        assert (await client.head("/")).status_code == 200
        assert (await client.get("/v1/models")).json()["error"]["type"] == "not_found_error"
        assert (await client.get("/v1/messages")).status_code == 404
        assert (await client.head("/v1/messages")).status_code == 404
    assert model.strays == ("GET /v1/models", "GET /v1/messages", "HEAD /v1/messages")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_a_body_that_is_no_request_gets_an_error_in_words_and_is_noted(path):
    """REL-4: a stranger's bytes end no task."""
    model = ScriptedModel()
    async with serving(model) as (_, client):
        response = await client.post(path, content=b"not json")
        assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
        assert (await client.get("/")).status_code == 200
    assert model.strays == (f"POST {path}: the body must be JSON: send application/json",)


@pytest.mark.parametrize(
    ("garbage", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000, b"431"),
        (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 33554433\r\n\r\n", b"413"),
        (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 19 + b"\r\n\r\n", b"413"),
    ],
)
async def test_garbage_costs_its_own_connection_and_no_other(garbage, status):
    """REL-4: no bytes of a peer end a task or grow memory without bound."""
    model = ScriptedModel()
    async with serving(model) as (served, client):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            await stream.send_all(garbage)
            await stream.send_eof()
            received = await until_closed(stream)
        assert received.startswith(b"HTTP/1.1 " + status)
        assert b'"type": "error"' in received
        assert (await client.get("/")).status_code == 200
    assert len(model.strays) == 1


@pytest.mark.parametrize("line", [b"CONNECT example.com:443 HTTP/1.1\r\n", b"GET /x HTTP/1.1\r\nupgrade: h2c\r\n"])
async def test_a_client_that_wants_another_protocol_is_refused_in_this_one(line):
    """SEC-1: a stand-in for a model is no proxy."""
    async with serving(ScriptedModel()) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            await stream.send_all(line + b"host: example.com\r\nconnection: upgrade\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 404")


@pytest.mark.slow
async def test_a_body_over_the_limit_is_refused_while_it_is_still_sent():
    """REL-4: memory is bounded also when no length was announced, and the refusal arrives."""

    async with serving(ScriptedModel()) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream, trio.open_nursery() as nursery:
            head = posted(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
            chunk = b"%x\r\n%s\r\n" % (1024 * 1024, b"x" * 1024 * 1024)
            nursery.start_soon(stream.send_all, head + 33 * chunk)
            received = await until_closed(stream)
    assert received.startswith(b"HTTP/1.1 413")
    assert b"request_too_large" in received


@pytest.mark.parametrize("part", [b"POST /v1/mess", posted(b"12345")[:-2], b""])
async def test_a_client_that_leaves_in_the_middle_of_a_request_is_forgotten(part):
    """REL-4: half a request is none."""
    model = ScriptedModel()
    async with serving(model) as (served, client):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            await stream.send_all(part)
            await stream.send_eof()
            assert await until_closed(stream) == b""
        assert (await client.get("/")).status_code == 200
    assert model.strays == model.requests == ()


async def test_a_client_that_floods_while_it_waits_is_dropped():
    """REL-4: what a client sends ahead is bounded."""
    async with serving(scripted(stall())) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            with pytest.raises(trio.BrokenResourceError):
                await stream.send_all(posted(json.dumps(ASK).encode()) + b"x" * 50_000_000)
        await served.wait_idle()


async def test_a_client_that_asks_before_it_sends_is_told_to_go_on():
    """REL-4: ``expect: 100-continue`` is part of HTTP."""
    async with serving(scripted(say("hi"))) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            body = json.dumps(ASK).encode()
            request = posted(body, "expect: 100-continue", "connection: close")
            await stream.send_all(request[: -len(body)])
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
            await stream.send_all(body)
            assert b'"end_turn"' in await until_closed(stream)


async def test_a_client_of_http_1_0_is_answered_without_chunks():
    """REL-4: old clients exist."""
    async with serving(scripted(say("hi"))) as (served, _):
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with stream:
            await stream.send_all(posted(json.dumps(STREAM).encode()).replace(b"HTTP/1.1", b"HTTP/1.0"))
            received = await until_closed(stream)
    assert received.endswith(b'data: {"type":"message_stop"}\n\n')


async def test_a_failing_script_is_told_at_the_end_of_the_block():
    """EMBED-1: a bug in a script is the test's failure."""
    model = ScriptedModel(count=lambda request: 1 // 0)
    model.otherwise(lambda request: request.tool_results[0])

    async def ask_twice():
        async with serving(model) as (_, client):
            assert (await client.post("/v1/messages", json=ASK)).status_code == 400
            assert (await client.post("/v1/messages/count_tokens", json=ASK)).status_code == 400

    with pytest.raises(ScriptFailed, match="request 1 with IndexError") as caught:
        await ask_twice()
    assert isinstance(caught.value.__cause__, IndexError)


async def test_an_error_of_the_block_leaves_it_as_it_is():
    """EMBED-1: errors leave in one shape, also those that are groups."""
    model = ScriptedModel()
    with pytest.raises(KeyError, match="mine"):
        async with open_scripted_model(model):
            raise KeyError("mine")
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="x"), match="also mine"):
        async with open_scripted_model(model):
            raise ExceptionGroup("also mine", [ValueError("x")])


async def test_cancellation_of_the_block_passes_through():
    """EMBED-1: the server is a guest in the caller's scope."""
    with trio.CancelScope() as scope:
        async with open_scripted_model(ScriptedModel()):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_port_that_is_taken_is_an_error():
    """SEC-1: a fixed port is loopback's own or nobody's."""
    async with open_scripted_model(ScriptedModel()) as served:
        with pytest.raises(OSError, match="in use"):
            async with open_scripted_model(ScriptedModel(), port=served.port):
                raise AssertionError("two servers on one port")
    async with open_scripted_model(ScriptedModel(), port=served.port) as again:
        assert again.base_url == served.base_url


async def test_a_delay_is_time_of_the_trio_clock(autojump_clock):
    """TURN-6: hours of a slow model cost a test nothing."""
    async with open_scripted_model(scripted(delay(3600), say("late"))) as served:
        stream, peer = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.serve_connection, peer)
            await stream.send_all(posted(json.dumps(STREAM).encode(), "connection: close"))
            received = b""
            while b"late" not in received:
                received += await stream.receive_some()
            nursery.cancel_scope.cancel()
    assert trio.current_time() >= 3600
