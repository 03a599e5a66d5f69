"""What the built-in MCP server promises as a server (SURF-1 to SURF-4, SURF-6)."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import pytest

from conformance._client import Caller, Era, open_client
from conformance._http import initialize, message_of, open_http, post, request, session_headers
from conformance._subject import Subject

Restart = Callable[[], Awaitable[None]]

_TOOLS = {"send", "recv", "ack_until", "set_status"}
"""What every agent has in this version of the contract's list."""

_TEXT_LIMIT = 45_000
"""Characters of one answer."""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.contract("SURF-1")
async def test_a_url_is_on_loopback_and_serves_one_client_after_another(iris: Caller) -> None:
    """SURF-1: a runtime that is started anew finds what the last one found."""
    assert ipaddress.ip_address(str(urlsplit(iris.door.url).hostname)).is_loopback, iris.door.url
    for _ in range(3):
        async with open_client(iris.door, iris.era) as client:
            await client.list_tools()


@pytest.mark.contract("SURF-1", "SURF-4")
async def test_url_and_token_are_the_same_after_a_restart(iris: Caller, restart: Restart) -> None:
    """SURF-1: nobody has to be told."""
    await iris.recv()
    await restart()
    await iris.recv()


@pytest.mark.contract("SURF-2")
async def test_a_client_of_either_era_gets_its_version_and_the_tools(iris: Caller) -> None:
    """SURF-2: at the one URL, each with what it asked for."""
    async with open_client(iris.door, iris.era) as client:
        assert client.protocol_version == iris.era.value
        listed = await client.list_tools()
        called = await client.call_tool("recv", {})
    assert {tool.name for tool in listed.tools} >= _TOOLS
    assert not called.is_error


@pytest.mark.contract("SURF-2")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_the_era_session_headerss_has_a_session_and_a_stream_of_its_own(subject: Subject, version: str) -> None:
    """SURF-2: initialize, session, GET stream, end of the session."""
    door = subject.agents[0]
    async with open_http(door) as http:
        began = await http.post(door.url, json=initialize(version))
        assert message_of(began)["result"]["protocolVersion"] == version
        headers = session_headers(began, version)
        told = await http.post(door.url, json=request("notifications/initialized", id_=None), headers=headers)
        assert told.status_code == 202
        async with http.stream("GET", door.url, headers=headers) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
        listed = await http.post(door.url, json=request("tools/list"), headers=headers)
        assert {tool["name"] for tool in message_of(listed)["result"]["tools"]} >= _TOOLS
        assert (await http.delete(door.url, headers=headers)).is_success
        late = await http.post(door.url, json=request("tools/list"), headers=headers)
        assert late.status_code == 404


@pytest.mark.contract("SURF-2")
async def test_the_era_without_sessions_needs_no_request_before_another(subject: Subject) -> None:
    """SURF-2: discover is there, and a list or a call stands alone."""
    door = subject.agents[0]
    async with open_http(door) as http:
        called = await post(http, door, "tools/call", name="recv", arguments={})
        assert not message_of(called)["result"].get("isError", False)
        discovered = message_of(await post(http, door, "server/discover"))["result"]
        assert Era.PER_REQUEST.value in discovered["supportedVersions"]
        assert "mcp-session-id" not in called.headers


@pytest.mark.contract("SURF-3")
async def test_server_and_tools_have_the_names_the_model_knows(iris: Caller) -> None:
    """SURF-3: the CLI makes ``mcp__hyperhive__<tool>`` of them, and a schema and a description go with each."""
    async with open_client(iris.door, iris.era) as client:
        assert client.server_info is not None
        assert client.server_info.name == "hyperhive"
        tools = (await client.list_tools()).tools
    for tool in tools:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", tool.name), tool.name
        assert not tool.name.startswith("mcp"), tool.name
        assert tool.description, tool.name
        assert tool.input_schema["type"] == "object", tool.name


@pytest.mark.contract("SURF-3")
async def test_results_are_plain_text_unless_data_is_asked_for(iris: Caller, otto: Caller) -> None:
    """SURF-3: the CLI would show the model the data in place of the text."""
    sent = await otto.send(iris.name, "hello")
    calls: list[tuple[str, dict[str, object]]] = [
        ("send", {"to": otto.name, "body": "hello"}),
        ("recv", {}),
        ("ack_until", {"up_to": sent}),
        ("set_status", {"text": "testing"}),
        ("set_status", {"text": ""}),
    ]
    for tool, arguments in calls:
        answer = await iris.call(tool, **arguments)
        assert not answer.is_error, answer
        assert answer.data is None, tool
        assert not _is_json(answer.text), answer.text


@pytest.mark.contract("SURF-3")
async def test_who_asks_for_data_gets_the_facts_of_the_text(iris: Caller, otto: Caller) -> None:
    """SURF-3: beside it."""
    first = await iris.call_for_data("send", to=otto.name, body="hello")
    assert first.data is not None
    assert f"#{first.data['id']}" in first.text
    await iris.send(otto.name, "more")
    answer = await otto.call_for_data("recv")
    assert answer.data is not None
    (row,) = answer.data["messages"]
    assert (row["id"], row["from"], row["body"]) == (first.data["id"], iris.name, "hello")
    assert answer.data["unread"] == 1
    assert answer.text.startswith(f"[msg #{row['id']}]")


@pytest.mark.contract("SURF-3")
async def test_a_message_too_long_for_one_answer_comes_in_parts_that_say_how_much_is_left(
    iris: Caller, otto: Caller
) -> None:
    """SURF-3: nothing is lost, and no answer is so long that the CLI would cut it."""
    total = 100_000
    sent = await otto.send(iris.name, "~" * total)
    shown = 0
    while shown < total:
        inbox = await iris.recv()
        assert inbox.ids == [sent]
        assert len(inbox.text) <= _TEXT_LIMIT
        part = inbox.text.count("~")
        assert part > 0
        shown += part
        assert shown == total or f"{total - shown:,}" in inbox.text or str(total - shown) in inbox.text
    assert shown == total
    assert (await iris.recv()).ids == []


@pytest.mark.contract("SURF-3")
async def test_messages_that_do_not_fit_together_stay_unread_or_come_first_next(iris: Caller, otto: Caller) -> None:
    """SURF-3: also of an answer with several of them; the limit counts as the CLI does, in UTF-16."""
    marks = ["🐝", "🍯", "🌼", "🐻"]
    for mark in marks:
        await otto.send(iris.name, mark * 9_000)
    shown = ""
    for _ in range(2 * len(marks)):
        inbox = await iris.recv(max=5)
        assert len(inbox.text.encode("utf-16-le")) // 2 <= _TEXT_LIMIT
        shown += inbox.text
    assert [shown.count(mark) for mark in marks] == [9_000] * 4


@pytest.mark.contract("SURF-4")
async def test_a_connected_client_of_the_newer_era_calls_on_over_a_restart(subject: Subject, restart: Restart) -> None:
    """SURF-4: there is nothing to register again."""
    async with open_client(subject.agents[0], Era.PER_REQUEST) as client:
        assert not (await client.call_tool("recv", {})).is_error
        await restart()
        assert not (await client.call_tool("recv", {})).is_error


@pytest.mark.contract("SURF-4")
async def test_a_session_that_a_restart_ended_is_told_so_and_begins_again_at_the_same_url(
    subject: Subject, restart: Restart
) -> None:
    """SURF-4: 404 is what makes a client initialize again; anything else and it gives up."""
    door, version = subject.agents[0], Era.SESSIONS.value
    async with open_http(door) as http:
        began = await http.post(door.url, json=initialize(version))
        headers = session_headers(began, version)
        await restart()
        late = await http.post(door.url, json=request("tools/list"), headers=headers)
        assert late.status_code == 404
        again = await http.post(door.url, json=initialize(version))
        assert session_headers(again, version) != headers


@pytest.mark.contract("SURF-6")
@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("send", {"to": "nobody-at-all", "body": "hello"}, "nobody-at-all"),
        ("send", {"to": "operator"}, "body"),
        ("send", {"to": ["operator"], "body": "hello"}, "to"),
        ("send", {"to": "operator", "body": "hello", "in_reply_to": "yesterday"}, "in_reply_to"),
        ("recv", {"max": "many"}, "max"),
        ("ack_until", {}, "up_to"),
        ("ack_until", {"up_to": -3}, "up_to"),
        ("set_status", {}, "text"),
        ("set_status", {"text": "x" * 300}, "200"),
    ],
    ids=["recipient", "no body", "list", "reply", "max", "no id", "negative", "no text", "long status"],
)
async def test_a_failing_call_answers_one_sentence_that_names_what_was_wrong(
    iris: Caller, tool: str, arguments: dict[str, object], named: str
) -> None:
    """SURF-6: ``isError``, in words a model can act on; no traceback, no code."""
    sentence = await iris.refused(tool, **arguments)
    assert named in sentence, sentence
    assert "Traceback" not in sentence
    assert "\n" not in sentence.strip(), sentence
    assert len(sentence.split()) >= 5, sentence
    assert len(sentence) < 1_000, sentence
