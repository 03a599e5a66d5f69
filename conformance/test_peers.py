"""What a peer that misbehaves can do at an agent's door: nothing to anybody else (REL-4)."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
import trio

from conformance._client import Caller, Era
from conformance._http import open_http, raw_answer, request_headers, whole_request
from conformance._subject import AgentDoor, Subject

_MEBIBYTE = 1024 * 1024

_SILENT_PEERS = 60


async def _answers_still(door: AgentDoor) -> None:
    for era in Era:
        await Caller(door=door, era=era).recv()


def _head(door: AgentDoor, *more: str) -> bytes:
    address = urlsplit(door.url)
    lines = [
        f"POST {address.path} HTTP/1.1",
        f"host: {address.netloc}",
        f"authorization: Bearer {door.token}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        *(f"{name}: {value}" for name, value in request_headers("tools/list").items()),
        *more,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _is_refusal(answer: bytes) -> bool:
    return not answer or answer.split(b" ", 2)[1].startswith(b"4")


@pytest.mark.contract("REL-4")
@pytest.mark.parametrize("announced", [True, False], ids=["with a length", "in chunks"])
async def test_a_body_over_a_mebibyte_is_refused(subject: Subject, announced: bool) -> None:
    """REL-4: no peer can make us keep more."""
    door = subject.agents[0]
    body = json.dumps(whole_request("tools/list", {"padding": "x" * 3 * _MEBIBYTE})).encode()
    if announced:
        answer = await raw_answer(door, _head(door, f"content-length: {len(body)}") + body)
    else:
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        answer = await raw_answer(door, _head(door, "transfer-encoding: chunked") + chunked)
    assert _is_refusal(answer), answer[:200]
    await _answers_still(door)


@pytest.mark.contract("REL-4")
async def test_headers_without_an_end_are_refused(subject: Subject) -> None:
    """REL-4: the same before the body."""
    door = subject.agents[0]
    answer = await raw_answer(door, _head(door)[:-2] + b"x: " + b"y" * _MEBIBYTE)
    assert _is_refusal(answer), answer[:200]
    await _answers_still(door)


@pytest.mark.contract("REL-4")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"[]",
        b"17",
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recv","arguments":"no"}}',
    ],
    ids=["empty", "no text", "half", "deep list", "deep object", "batch", "number", "method", "arguments"],
)
async def test_a_body_that_is_no_request_is_refused_in_both_eras(subject: Subject, body: bytes) -> None:
    """REL-4: with a status or an error of the protocol, and nothing else happens."""
    door = subject.agents[0]
    headers = {"content-type": "application/json"}
    async with open_http(door) as http:
        for more in ({}, request_headers("tools/call", "recv")):
            answer = await http.post(door.url, content=body, headers=headers | more)
            assert 400 <= answer.status_code < 500 or "error" in answer.text, (answer.status_code, answer.text)
    await _answers_still(door)


@pytest.mark.contract("REL-4")
@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"\0" * 1000,
        b"PRI * HTTP/2.0\r\n\r\n",
    ],
    ids=["tls", "no http", "zeros", "http 2"],
)
async def test_bytes_that_are_no_http_end_their_connection_only(subject: Subject, data: bytes) -> None:
    """REL-4: whatever it is."""
    door = subject.agents[0]
    answer = await raw_answer(door, data)
    assert not answer or answer.startswith(b"HTTP/1."), answer
    await _answers_still(door)


@pytest.mark.contract("REL-4")
async def test_peers_that_leave_in_the_middle_or_say_nothing_hold_up_nobody(subject: Subject) -> None:
    """REL-4: half a head, half a body, and connections that are only open."""
    door = subject.agents[0]
    await raw_answer(door, _head(door)[:40], finish=False)
    await raw_answer(door, _head(door, "content-length: 1000") + b'{"json', finish=False)
    address = urlsplit(door.url)
    async with AsyncExitStack() as peers:
        for _ in range(_SILENT_PEERS):
            peers.push_async_callback(
                (await trio.open_tcp_stream(str(address.hostname), int(address.port or 80))).aclose
            )
        await _answers_still(door)


@pytest.mark.contract("REL-4")
async def test_a_huge_number_of_unknown_arguments_changes_nothing(iris: Caller, otto: Caller) -> None:
    """REL-4: they are ignored, or refused."""
    sent = await otto.send(iris.name, "hello")
    many: dict[str, object] = {f"argument{number}": number for number in range(5_000)}
    await iris.call("recv", **many, max="no")
    assert (await iris.recv()).ids == [sent]
