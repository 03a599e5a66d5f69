"""What ``ack_until`` promises (MSG-7), and what ids do (REL-5)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest

from conformance._client import Caller
from conformance._subject import Turn

Restart = Callable[[], Awaitable[None]]


def _numbers(text: str, up_to: int) -> list[int]:
    """Figures of an answer without the id that was asked for."""
    return [int(found) for found in re.findall(r"\d+", text.replace(f"#{up_to}", ""))]


@pytest.mark.contract("MSG-7")
async def test_ack_until_marks_read_and_unread_rows_and_says_how_many_were_never_read(
    iris: Caller, otto: Caller
) -> None:
    """MSG-7: every row up to the id, itself included, and none above."""
    sent = [await otto.send(iris.name, f"body {number}") for number in range(7)]
    assert (await iris.recv(max=2)).ids == sent[:2]
    assert _numbers(await iris.ok("ack_until", up_to=sent[4]), sent[4]) == [5, 3]
    assert (await iris.recv(max=5)).ids == sent[5:]


@pytest.mark.contract("MSG-7")
async def test_acked_rows_never_come_back(iris: Caller, otto: Caller, restart: Restart) -> None:
    """MSG-7: whether they had been read or not; a row that was read and not acked does."""
    read, unread, kept = [await otto.send(iris.name, body) for body in ("read", "unread", "kept")]
    assert (await iris.recv()).ids == [read]
    await iris.ok("ack_until", up_to=unread)
    assert (await iris.recv()).ids == [kept]
    await restart()
    assert (await iris.recv(max=5)).ids == [kept]


@pytest.mark.contract("MSG-7")
async def test_an_ack_within_a_turn_holds_when_the_turn_fails(
    iris: Caller, otto: Caller, turn_of: Callable[[str], Awaitable[Turn]]
) -> None:
    """MSG-7: acked is acked."""
    sent = [await otto.send(iris.name, body) for body in ("one", "two")]
    turn = await turn_of(iris.name)
    caller = iris.within(turn.headers)
    assert (await caller.recv(max=2)).ids == sent
    await caller.ok("ack_until", up_to=sent[0])
    await turn.end(well=False)
    row = (await iris.recv(max=5)).only
    assert (row.id, row.redelivered) == (sent[1], 2)


@pytest.mark.contract("MSG-7")
async def test_other_agents_rows_are_not_touched(iris: Caller, otto: Caller) -> None:
    """MSG-7: whatever the id says."""
    others = await iris.send(otto.name, "for otto")
    own = await otto.send(iris.name, "for iris")
    assert _numbers(await iris.ok("ack_until", up_to=2**53 - 1), 2**53 - 1) == [1, 1]
    assert (await iris.recv()).ids == []
    assert (await otto.recv()).ids == [others]
    assert own > others


@pytest.mark.contract("MSG-7")
async def test_with_nothing_to_mark_that_is_said(iris: Caller) -> None:
    """MSG-7: no error, and no count of anything."""
    text = await iris.ok("ack_until", up_to=2**53 - 1)
    assert re.search(r"\b(no|none|nothing|0)\b", text, re.IGNORECASE), text


@pytest.mark.contract("REL-5")
async def test_ids_only_grow_also_over_acks_and_kills(iris: Caller, otto: Caller, restart: Restart) -> None:
    """REL-5: an id means one message for ever."""
    ids = []
    for round_ in range(3):
        ids += [await otto.send(iris.name, f"{round_} {body}") for body in ("one", "two")]
        await iris.ok("ack_until", up_to=ids[-1])
        await restart()
    assert ids == sorted(set(ids))
    assert ids[0] > 0
