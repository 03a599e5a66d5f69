"""The admin socket's requests and answers as lines of bytes."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive._errors import HiveUnintelligible, RequestRefused
from hive._hostsock import AgentDetail, AgentStatusRow, HiveStatus, Inbox, Thread
from hive._hostsock._requests import (
    LookIntoInbox,
    NotInThisVersion,
    Restart,
    Scope,
    Send,
    Shutdown,
    Start,
    Stop,
    parse_request,
)
from hive._hostsock._wire import answer_line, from_json, messages_that_fit, read_answer, refusal_line, to_json
from hive_broker import Acked, Message, Sent

PINNED = [
    '{"cmd":"list"}',
    '{"cmd":"agent_status"}',
    '{"cmd":"subscribe_agent_status"}',
    '{"cmd":"urls"}',
    '{"cmd":"set_paused","name":"worker-one","paused":true}',
    '{"cmd":"restart","name":"worker-one"}',
    '{"cmd":"start","scope":{"agent_names":["worker-one"]}}',
    '{"cmd":"stop","scope":{"agent_names":["worker-one"]},"graceful":true}',
    '{"cmd":"pending"}',
    '{"cmd":"approve","id":42}',
    '{"cmd":"deny","id":9223372036854775807}',
    '{"cmd":"deny","id":-1}',
    '{"version":1,"cmd":"list"}',
]


def refusal(line: str | bytes) -> str:
    with pytest.raises(RequestRefused) as caught:
        parse_request(line if isinstance(line, bytes) else line.encode())
    return str(caught.value)


@pytest.mark.parametrize("line", PINNED)
def test_what_desktop_clients_write_is_understood(line: str):
    """HOST-1: their lines, byte for byte; they send no version."""
    parse_request(line.encode())


def test_a_request_becomes_a_typed_value():
    """HOST-1: fields, and what is meant when they are left out."""
    assert parse_request(b'{"cmd":"restart","name":"iris"}') == Restart(name="iris")
    assert parse_request(b'{"cmd":"start","scope":{"agents":true}}') == Start(scope=Scope(agents=True))
    both = b'{"cmd":"stop","scope":{"agent_names":["iris","iris"]},"graceful":false}'
    assert parse_request(both) == Stop(scope=Scope(agent_names=("iris",)), graceful=False)
    assert parse_request(b'{"cmd":"send","to":"iris","body":"hi","in_reply_to":null}') == Send(to="iris", body="hi")
    assert parse_request(b'{"cmd":"inbox"}') == LookIntoInbox(agent=None, limit=20, unread=False)
    assert parse_request(b'{"cmd":"shutdown"}') == Shutdown(graceful=True)
    assert parse_request(b'{"cmd":"pending"}') == NotInThisVersion(verb="pending")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "must be one JSON object on one line: Expecting value at character 0"),
        ("[]", "must be one JSON object on one line, got a list"),
        ("null", "got null"),
        ("nonsense", "Expecting value"),
        ('{"cmd":"list"} x', "Extra data at character 15"),
        (b'{"cmd":"\xff"}', "it must be UTF-8"),
        ('{"cmd":"ack","up_to":NaN}', "NaN is no JSON"),
        ('{"cmd":"ack","up_to":' + "9" * 5000 + "}", "must be one JSON object"),
        ("[" * 100_000, "must not be nested deeper than 8 levels"),
        ('{"cmd":"list","x":' + "[" * 9 + "]" * 9 + "}", "must not be nested deeper than 8 levels"),
        ("{}", 'must have a string "cmd", got null'),
        ('{"cmd":7}', 'must have a string "cmd", got 7'),
        ('{"cmd":"lst"}', "there is no cmd 'lst'; did you mean list?"),
        ('{"cmd":"list","version":2}', "version must be 1, got 2"),
        ('{"cmd":"list","version":true}', "version must be 1, got true"),
        ('{"cmd":"list","nme":1}', "list: nme is not known"),
        ('{"cmd":"restart"}', "restart: name is missing"),
        ('{"cmd":"restart","nme":"a"}', "restart: name is missing; nme is not known; did you mean name?"),
        ('{"cmd":"restart","name":""}', "restart: name must be an agent's name, got ''"),
        ('{"cmd":"stop","scope":{}}', "scope must name something"),
        ('{"cmd":"start","scope":{"agents":false,"agent_names":[]}}', "scope must name something"),
        ('{"cmd":"start","scope":{"agents":true,"forge":true}}', "this hive runs no forge"),
        ('{"cmd":"start","scope":{"agent_name":["a"]}}', "agent_name is not known; did you mean agent_names?"),
        ('{"cmd":"start","scope":"all"}', "scope must be an object, got 'all'"),
        ('{"cmd":"stop","scope":{"agents":1}}', "agents must be true or false, got 1"),
        ('{"cmd":"stop","scope":{"agents":true},"graceful":"no"}', "graceful must be true or false, got 'no'"),
        ('{"cmd":"send","to":"a","body":"\\ud800"}', "body must be a string, got '\\ud800'"),
        ('{"cmd":"send","to":"a","body":"b","in_reply_to":0}', "in_reply_to must be a whole number from 1"),
        ('{"cmd":"inbox","limit":1000}', "limit must be a whole number from 1 to 200, got 1000"),
        ('{"cmd":"approve","id":9223372036854775808}', "id must be a whole number"),
        ('{"cmd":"set_paused","name":"a"}', "paused is missing"),
    ],
)
def test_a_wrong_request_is_refused_in_words(line: str | bytes, sentence: str):
    """HOST-1, REL-4: what was wrong, what must hold, and what was probably meant."""
    assert sentence in refusal(line)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_line_is_a_request_or_refused(line: bytes):
    """REL-4: no line raises anything else."""
    with suppress(RequestRefused):
        parse_request(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
VERBS = st.sampled_from(["start", "stop", "restart", "send", "inbox", "ack", "thread", "shutdown", "approve"])
FIELDS = st.sampled_from(["scope", "name", "to", "body", "in_reply_to", "limit", "agent", "up_to", "id", "graceful"])


@given(VERBS, st.dictionaries(FIELDS, JSON, max_size=4))
def test_any_field_is_taken_or_refused(verb: str, fields: dict[str, object]):
    """REL-4: whatever stands where a name, a number or a scope should."""
    with suppress(RequestRefused):
        parse_request(json.dumps({"cmd": verb, **fields}).encode())


def test_a_row_has_the_order_of_the_wire_and_leaves_out_what_is_absent():
    """HOST-1: desktop clients tell absent from null."""
    row = AgentStatusRow(
        name="iris",
        running=True,
        deployed_sha="abc",
        parent="ruth",
        active_model="m",
        status_text="reading",
        status_set_at=1_788_784_496.7,
        url="https://h/agent/iris/",
    )
    assert json.dumps(to_json(row)) == (
        '{"name": "iris", "running": true, "failed": false, "needs_update": false, "needs_login": false, '
        '"deployed_sha": "abc", "pending_reminders": 0, "paused": false, "parent": "ruth", "active_model": "m", '
        '"status_text": "reading", "status_set_at": "2026-09-07T12:34:56Z", "url": "https://h/agent/iris/"}'
    )
    assert list(to_json(AgentStatusRow(name="a", running=False))) == [
        "name",
        "running",
        "failed",
        "needs_update",
        "needs_login",
        "pending_reminders",
        "paused",
    ]


@pytest.mark.parametrize(
    "row",
    [
        AgentStatusRow(name="a", running=False, status_text="stale", status_set_at=1.0),
        AgentDetail(name="a", running=True, status_set_at=1.0),
    ],
)
def test_the_instant_of_a_status_is_sent_exactly_with_its_text(row: AgentStatusRow):
    """HOST-1, SELF-1: and neither for an agent that does not run."""
    assert {"status_text", "status_set_at"}.isdisjoint(to_json(row))


def test_every_line_has_a_version_and_stays_one_line():
    """HOST-1: refusals included; control bytes of a body stay escaped."""
    for line in (answer_line({"agents": ["a\n\x1b\u2028"]}), refusal_line('no "x"\n')):
        assert line.startswith(b'{"version":1,"ok":')
        assert line.count(b"\n") == 1
        assert line.isascii()
    assert refusal_line("no") == b'{"version":1,"ok":false,"error":"no"}\n'


NUMBERS = st.integers(0, 2**63 - 1)
MESSAGES = st.builds(
    Message,
    id=st.integers(1, 2**63 - 1),
    sender=st.text(max_size=8),
    recipient=st.text(max_size=8),
    body=st.text(),
    in_reply_to=st.none() | st.integers(1, 9),
    thread_id=st.integers(1, 9),
    sent_at=st.integers(0, 2**33).map(float),
    attempts=st.integers(0, 9),
    acked_at=st.none() | st.integers(0, 2**33).map(float),
    dead_at=st.none() | st.integers(0, 2**33).map(float),
)
DETAILS = st.builds(
    AgentDetail,
    name=st.text(max_size=5),
    running=st.just(value=True),
    status_text=st.just("x"),
    status_set_at=st.integers(0, 2**33).map(float),
    turn_state_since=st.none() | st.floats(0, 2**33),
    note=st.none() | st.text(max_size=5),
    turns=st.integers(0, 9),
)
VALUES = st.one_of(
    st.builds(Inbox, owner=st.text(max_size=5), unread=NUMBERS, messages=st.lists(MESSAGES, max_size=3).map(tuple)),
    st.builds(Thread, id=NUMBERS, messages=st.lists(MESSAGES, max_size=3).map(tuple), left_out=NUMBERS),
    st.builds(
        HiveStatus,
        hive=st.text(max_size=5),
        pid=st.integers(1, 2**31 - 1),
        started_at=st.integers(0, 2**33).map(float),
        operator_unread=NUMBERS,
        agents=st.lists(DETAILS, max_size=3).map(tuple),
        warnings=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    ),
    st.builds(Sent, id=NUMBERS, duplicate=st.booleans()),
    st.builds(Acked, acked=NUMBERS, never_read=NUMBERS),
)


@given(VALUES)
def test_a_value_crosses_the_wire_whole(value: object):
    """HOST-1: what a client gets is what the hive had."""
    line = answer_line({"value": to_json(value)})
    assert from_json(read_answer(line)["value"], type(value)) == value


def test_fields_of_a_later_version_are_passed_over():
    """HOST-1: optional fields come without a new version."""
    assert from_json({"id": 3, "duplicate": False, "shard": 7}, Sent) == Sent(id=3)


@pytest.mark.parametrize(
    "line",
    [b"HTTP/1.1 400", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"ok":true}', b'{"version":99,"ok":true}'],
)
def test_what_is_no_answer_of_this_protocol_is_said(line: bytes):
    """HOST-1: a client refuses another version, and whatever is no hive."""
    with pytest.raises(HiveUnintelligible):
        read_answer(line)


@pytest.mark.parametrize("value", [None, 3, [], {"id": "x"}, {"duplicate": True}, "text"])
def test_an_answer_of_another_shape_is_said(value: object):
    """HOST-1: no traceback in the client."""
    with pytest.raises(HiveUnintelligible, match="does not have the shape of Sent"):
        from_json(value, Sent)


def test_the_newest_messages_win_the_room_of_an_answer():
    """REL-4: no inbox makes a line that no client would take."""
    body = "\x01" * (256 * 1024)
    messages = tuple(
        Message(id=n, sender="a", recipient="b", body=body, in_reply_to=None, thread_id=n, sent_at=1.0)
        for n in range(9)
    )
    fit = messages_that_fit(messages)
    assert [message.id for message in fit] == [7, 8]
    assert messages_that_fit(messages[:1]) == messages[:1]
    assert messages_that_fit(()) == ()
