"""What ``recv`` promises (MSG-4, MSG-5, MSG-6, MSG-8, STOP-1)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest

from conformance._client import Caller
from conformance._subject import Turn

Restart = Callable[[], Awaitable[None]]
TurnOf = Callable[[str], Awaitable[Turn]]

_MAX_DELIVERIES = 5
"""``HIVE_MAX_DELIVERIES`` (MSG-6)."""


def _numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"\d+", text)]


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.mark.contract("MSG-4")
async def test_an_empty_inbox_says_so_at_once(iris: Caller) -> None:
    """MSG-4: nothing to wait for, no error."""
    inbox = await iris.recv()
    assert inbox.ids == []
    assert re.search(r"\b(no|none|nothing|empty)\b", inbox.text, re.IGNORECASE), inbox.text


@pytest.mark.contract("MSG-4")
async def test_recv_gives_one_message_unless_asked_for_more_the_oldest_first(iris: Caller, otto: Caller) -> None:
    """MSG-4: ``max`` is 1 by default; each answer ends with how many are left."""
    sent = [await otto.send(iris.name, f"body {word}") for word in ("one", "two", "three", "four")]
    inbox = await iris.recv()
    assert inbox.ids == sent[:1]
    assert _numbers(_last_line(inbox.after("body one"))) == [3]
    inbox = await iris.recv(max=2)
    assert inbox.ids == sent[1:3]
    assert _numbers(_last_line(inbox.after("body three"))) == [1]
    inbox = await iris.recv(max=5)
    assert inbox.ids == sent[3:]
    end = _last_line(inbox.after("body four"))
    assert re.search(r"\b(no|none|nothing|empty|0)\b", end, re.IGNORECASE), inbox.text


@pytest.mark.contract("MSG-4")
async def test_a_message_is_shown_with_sender_time_and_thread(iris: Caller, otto: Caller) -> None:
    """MSG-4: in its first line, behind the marker."""
    sent = await otto.send(iris.name, "hello")
    row = (await iris.recv()).only
    assert row.is_from(otto.name), row.head
    assert re.search(r"\d\d:\d\d", row.head), row.head
    assert row.thread == sent


@pytest.mark.contract("MSG-4")
async def test_more_than_five_is_clamped_and_said(iris: Caller, otto: Caller) -> None:
    """MSG-4: the cap is 5, and the answer says that it was applied."""
    sent = [await otto.send(iris.name, f"body {word}") for word in ("a", "b", "c", "d", "e", "f", "g")]
    inbox = await iris.recv(max=40)
    assert inbox.ids == sent[:5]
    end = inbox.after("body e")
    assert _numbers(_last_line(end)) == [2]
    said = re.compile(r"\b(40|most|limit|cap|clamped|maximum)\b", re.IGNORECASE)
    assert any(said.search(line) and 5 in _numbers(line) for line in end.splitlines()), inbox.text
    assert (await iris.recv(max=40)).ids == sent[5:]


@pytest.mark.contract("MSG-4")
async def test_only_whole_numbers_above_zero_are_a_max(iris: Caller, otto: Caller) -> None:
    """MSG-4: anything else pops nothing."""
    sent = await otto.send(iris.name, "hello")
    for wrong in (0, -1, "many"):
        assert "max" in await iris.refused("recv", max=wrong)
    assert (await iris.recv()).ids == [sent]


@pytest.mark.contract("MSG-5")
async def test_a_popped_message_is_not_given_out_again_while_it_is_in_flight(iris: Caller, otto: Caller) -> None:
    """MSG-5: outside of a turn it is in flight until it is acked, or its lease ends."""
    first, second = [await otto.send(iris.name, body) for body in ("one", "two")]
    assert [(await iris.recv()).ids for _ in range(3)] == [[first], [second], []]


@pytest.mark.contract("MSG-5")
async def test_what_was_popped_outside_a_turn_and_not_acked_comes_back_after_a_kill(
    iris: Caller, otto: Caller, restart: Restart
) -> None:
    """MSG-5: marked with the number of the attempt, before what nobody has seen."""
    first, second = [await otto.send(iris.name, body) for body in ("one", "two")]
    assert [row.redelivered for row in (await iris.recv()).rows] == [None]
    for attempt in (2, 3):
        await restart()
        row = (await iris.recv()).only
        assert (row.id, row.redelivered) == (first, attempt)
    row = (await iris.recv()).only
    assert (row.id, row.redelivered) == (second, None)


@pytest.mark.contract("MSG-5")
async def test_a_turn_that_ends_well_acks_what_it_popped_for_good(
    iris: Caller, otto: Caller, turn_of: TurnOf, restart: Restart
) -> None:
    """MSG-5: never redelivered once acked."""
    sent = await otto.send(iris.name, "one")
    turn = await turn_of(iris.name)
    later = await otto.send(iris.name, "two")
    assert (await iris.within(turn.headers).recv()).ids == [sent]
    await turn.end(well=True)
    await restart()
    row = (await iris.recv(max=5)).only
    assert (row.id, row.redelivered) == (later, None)


@pytest.mark.contract("MSG-5")
async def test_a_turn_that_fails_gives_back_what_it_popped(iris: Caller, otto: Caller, turn_of: TurnOf) -> None:
    """MSG-5: marked, with the attempt; what it had not popped is as it was."""
    first, second = [await otto.send(iris.name, body) for body in ("one", "two")]
    turn = await turn_of(iris.name)
    assert (await iris.within(turn.headers).recv()).ids == [first]
    await turn.end(well=False)
    turn = await turn_of(iris.name)
    rows = (await iris.within(turn.headers).recv(max=5)).rows
    assert [(row.id, row.redelivered) for row in rows] == [(first, 2), (second, None)]
    await turn.end(well=True)


@pytest.mark.contract("MSG-5")
async def test_a_turn_that_was_killed_gives_back_what_it_popped(
    iris: Caller, otto: Caller, turn_of: TurnOf, restart: Restart
) -> None:
    """MSG-5: also when everything was killed with it."""
    sent = await otto.send(iris.name, "one")
    turn = await turn_of(iris.name)
    assert (await iris.within(turn.headers).recv()).ids == [sent]
    await restart()
    row = (await iris.recv()).only
    assert (row.id, row.redelivered) == (sent, 2)


@pytest.mark.contract("MSG-5")
async def test_a_runtime_that_outlives_its_turn_pops_nothing(iris: Caller, otto: Caller, turn_of: TurnOf) -> None:
    """MSG-5: nobody would end the turn those rows were in flight for."""
    await otto.send(iris.name, "one")
    turn = await turn_of(iris.name)
    late = iris.within(turn.headers)
    await late.recv()
    await turn.end(well=True)
    sent = await otto.send(iris.name, "two")
    assert "turn" in await late.refused("recv")
    assert (await iris.recv()).ids == [sent]


@pytest.mark.contract("MSG-6")
async def test_a_message_that_no_turn_could_handle_is_dead_and_its_sender_is_told_once(
    iris: Caller, otto: Caller, turn_of: TurnOf
) -> None:
    """MSG-6: after five failed attempts."""
    sent = await otto.send(iris.name, "poison")
    for attempt in range(1, _MAX_DELIVERIES + 1):
        turn = await turn_of(iris.name)
        row = (await iris.within(turn.headers).recv()).only
        assert (row.id, row.redelivered) == (sent, None if attempt == 1 else attempt)
        assert (await otto.recv()).ids == []
        await turn.end(well=False)
    assert (await iris.recv()).ids == []
    told = (await otto.recv(max=5)).only
    assert sent in _numbers(told.rest), told
    assert not told.is_from(iris.name)


@pytest.mark.contract("STOP-1", "MSG-8")
async def test_a_fenced_inbox_gives_the_notice_and_no_message(
    iris: Caller, otto: Caller, turn_of: TurnOf, stop_agent: Callable[[str], Awaitable[None]], restart: Restart
) -> None:
    """STOP-1, MSG-8: the notice has id 0, so it shows no marker; what is behind the fence stays unread."""
    sent = await otto.send(iris.name, "for the next life")
    turn = await turn_of(iris.name)
    caller = iris.within(turn.headers)
    await stop_agent(iris.name)
    for arguments in ({}, {"max": 5}):
        inbox = await caller.recv(**arguments)
        assert inbox.ids == []
        assert "[msg" not in inbox.text
        assert "graceful-stop" in inbox.text
        assert "for the next life" not in inbox.text
    data = (await caller.call_for_data("recv")).data
    assert data is None or [(row["id"], row["from"]) for row in data["messages"]] == [(0, "graceful-stop")]
    await turn.end(well=True)
    await restart()
    row = (await iris.recv()).only
    assert (row.id, row.redelivered) == (sent, None)


@pytest.mark.contract("MSG-8")
async def test_there_is_nothing_to_ack_at_id_zero(iris: Caller, otto: Caller) -> None:
    """MSG-8: asking for it is refused or marks nothing."""
    sent = await otto.send(iris.name, "hello")
    await iris.call("ack_until", up_to=0)
    assert (await iris.recv()).ids == [sent]
