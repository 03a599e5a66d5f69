"""The lines of a mailbox's socket: what is read of strangers' bytes, and what is made of our values."""

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_broker import MAX_BODY_BYTES, BrokerClosed, BrokerUnavailable, MessageRefused, Received, Sent, TurnOver
from hive_broker import _wire as wire
from hive_broker._types import Delivery, InboxSummary, Message


def request(**changed):
    whole = {"version": 1, "id": 7, "method": "send", "params": {"to": "ruth", "body": "x"}, "done": 3}
    return json.dumps({**whole, **changed}).encode()


def test_a_request_is_read_as_it_was_written():
    """WAKE-2."""
    line = wire.request_line(7, "send", {"to": "ruth", "body": "λ", "in_reply_to": None, "turn_id": 2}, done=6)
    read = wire.parse_request(line.rstrip(b"\n"))
    assert (read.id, read.method, read.done) == (7, "send", 6)
    assert read.params == {"to": "ruth", "body": "λ", "in_reply_to": None, "turn_id": 2}
    assert json.loads(line)["version"] == 1


@pytest.mark.parametrize(
    ("line", "sentence", "request_id"),
    [
        (b"", "one JSON object", None),
        (b"garbage", "one JSON object", None),
        (b"[]", "one JSON object", None),
        (b"NaN", "one JSON object", None),
        (b'{"version":1,"id":1,"method":"ack_until","params":{"up_to":1e999}}', "whole number", 1),
        (b'{"version":1,"id":NaN}', "one JSON object", None),
        (b'{"version":1,"id":"\xff"}', "byte 19 of this one is not", None),
        (b"[" * 100_000, "at most 32 lists", None),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "at most 32 lists", None),
        (b'{"version":1,"id":' + b"9" * 5000 + b"}", "one JSON object", None),
        (request(version=2), "version 1, got 2", 7),
        (request(version=None), "version 1, got None", 7),
        (request(version=True), "version 1, got True", 7),
        (request(id=None), "must have an id", None),
        (request(id=0), "must have an id", None),
        (request(id=2**63), "must have an id", None),
        (request(id=True), "must have an id", None),
        (request(method="sned"), "did you mean send", 7),
        (request(method="__class__"), "there are send", 7),
        (request(method=["send"]), "there is no method", 7),
        (request(params=[]), "must be an object", 7),
        (request(params={"to": "ruth"}), "body must be a string", 7),
        (request(params={"to": "ruth", "body": "x", "sender": "iris"}), "got 'sender'", 7),
        (request(params={"to": "ruth", "body": {"base64": "!"}}), "UTF-8 in base64", 7),
        (request(params={"to": "ruth", "body": {"base64": "/w=="}}), "UTF-8 in base64", 7),
        (request(params={"to": "ruth", "body": "x", "turn_id": 1.5}), "turn_id must be a whole number", 7),
        (request(done="all"), "whole number", 7),
        (b'{"cmd":"wake","from":1,"body":"x"}', 'string "from"', None),
        (b'{"cmd":"wake","from":"ci"}', 'string "body"', None),
        (b'{"cmd":"walk"}', "there is no command", None),
    ],
)
def test_a_line_that_is_no_request_is_refused_in_words(line, sentence, request_id):
    """REL-4: whatever it is, and with the id of the request where that can be told."""
    with pytest.raises(wire.BadLine, match=sentence) as caught:
        wire.parse_request(line)
    assert caught.value.request_id == request_id
    assert len(str(caught.value)) < 400


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(line):
    """REL-4."""
    for parse in (wire.parse_request, wire.parse_answer):
        with suppress(wire.BadLine):
            parse(line)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["version", "id", "method", "params", "to", "body", "cmd", "ok", "done", "base64"]), inner
        )
    ),
)


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from(["version", "id", "method", "params", "done", "cmd", "from", "body"]), json_values),
    st.sampled_from(sorted(wire.METHODS)),
)
def test_no_json_raises_anything_else(fields, method):
    """REL-4."""
    for data in (fields, {**fields, "version": 1, "id": 1, "method": method}):
        with suppress(wire.BadLine):
            wire.parse_request(json.dumps(data).encode())


def message(body):
    return Message(
        id=1, sender="iris", recipient="ruth", body=body, in_reply_to=None, thread_id=1, sent_at=1.5, attempts=2
    )


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_value_comes_back_as_it_was(text):
    """MSG-1: also texts that JSON can only carry with escapes."""
    received = Received(deliveries=(Delivery(message=message(text * 200), attempt=2),), remaining=3)
    line = wire.answer_line(1, "recv", received)
    assert wire.from_json(wire.parse_answer(line).result, Received) == received


@pytest.mark.parametrize("character", ["x", "\x01", '"', "\n", "λ", "\U0001f41d"])
def test_the_largest_body_fits_into_a_line_whatever_it_is_made_of(character):
    """REL-4: a control character has six bytes in JSON; a body of them goes in base64."""
    body = character * (MAX_BODY_BYTES // len(character.encode()))
    line = wire.request_line(2**63 - 1, "send", {"to": "ruth", "body": body}, done=2**63 - 2)
    assert len(line) <= wire.MAX_LINE_BYTES // 2
    assert wire.parse_request(line).params["body"] == body
    two = Received(deliveries=(Delivery(message=message(body), attempt=1),) * 2, remaining=0)
    assert json.loads(wire.answer_line(1, "recv", two))["ok"] is True


def test_half_a_surrogate_pair_gets_through_to_whoever_refuses_it():
    """MSG-3: the broker's own sentence says what is wrong with it."""
    line = wire.request_line(1, "send", {"to": "x\ud800", "body": "x" * 2000 + "\ud800"}, done=0)
    assert wire.parse_request(line).params["to"] == "x\ud800"


def test_an_answer_without_room_in_a_line_is_a_refusal():
    """REL-4."""
    body = "x" * MAX_BODY_BYTES
    line = wire.answer_line(
        1, "recv", Received(deliveries=(Delivery(message=message(body), attempt=1),) * 5, remaining=0)
    )
    assert len(line) < 1000
    with pytest.raises(BrokerUnavailable, match="more than 1048576 bytes"):
        raise wire.error_of(wire.parse_answer(line))


def test_a_summary_of_any_number_of_labels_fits():
    """REL-4, WAKE-2: anybody who can wake an agent can make them up."""
    senders = tuple((f"{n:063d}", 1) for n in range(100_000))
    summary = InboxSummary(unread=100_000, redelivered=0, senders=senders, oldest_sent_at=1.0)
    read = wire.from_json(wire.parse_answer(wire.answer_line(1, "summary", summary)).result, InboxSummary)
    assert (read.unread, read.senders) == (100_000, senders[:1000])


@pytest.mark.parametrize(
    "error", [MessageRefused("a"), TurnOver("b"), BrokerClosed("c"), BrokerUnavailable("d"), ValueError("e")]
)
def test_an_error_keeps_its_type_and_its_sentence(error):
    """SURF-6: a caller handles it as it would in process."""
    answer = wire.parse_answer(wire.refusal_line(4, error))
    again = wire.error_of(answer)
    assert (answer.id, type(again), str(again)) == (4, type(error), str(error))


def test_an_error_of_a_later_version_is_one_that_may_pass():
    """The other end may be newer."""
    line = b'{"version":1,"id":4,"ok":false,"kind":"LaterKind","error":"not now"}'
    with pytest.raises(BrokerUnavailable, match="not now"):
        raise wire.error_of(wire.parse_answer(line))


def test_fields_of_a_later_version_are_passed_over_and_absent_ones_are_not():
    """The other end may be newer; it may not be something else."""
    assert wire.from_json({"id": 3, "duplicate": True, "later": {}}, Sent) == Sent(id=3, duplicate=True)
    with pytest.raises(wire.BadLine, match="shape of Sent"):
        wire.from_json({"duplicate": True}, Sent)


def test_what_is_not_json_is_refused_before_it_is_sent():
    """TURN-7: a record is JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        wire.request_line(1, "close_turn", {"record": {"cost": math.nan}}, done=0)
    with pytest.raises(TypeError):
        wire.request_line(1, "close_turn", {"record": {"x": object()}}, done=0)


def test_a_digest_is_of_what_was_asked_and_not_of_when():
    """A number used twice for different things is noticed."""
    same = [wire.parse_request(request(done=done)).digest for done in (0, 5)]
    other = wire.parse_request(request(params={"to": "ruth", "body": "y"})).digest
    assert same[0] == same[1] != other
