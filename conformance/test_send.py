"""What ``send`` promises (MSG-1, MSG-2, MSG-3, MSG-9, MSG-11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio

from conformance._client import Caller
from conformance._subject import OperatorMail, Subject, Turn
from conformance.plugin import Lacking

_LIMIT_PROBE_BYTES = 900 * 1024
"""Over any sensible limit of a body, and still within one request of 1 MiB."""

Restart = Callable[[], Awaitable[None]]


@pytest.mark.contract("MSG-1")
async def test_what_was_sent_is_received_as_it_was_under_the_id_that_send_gave(iris: Caller, otto: Caller) -> None:
    """MSG-1: one row, and its id."""
    body = "Zwölf Boxkämpfer 🥊\n\n  indented, with a `[msg` in it\nand a last line"
    sent = await iris.send(otto.name, body)
    inbox = await otto.recv(max=5)
    assert inbox.ids == [sent]
    assert body in inbox.rows[0].rest


@pytest.mark.contract("MSG-1")
async def test_messages_that_are_sent_at_once_are_all_stored_once(iris: Caller, otto: Caller) -> None:
    """MSG-1: each with an id of its own."""
    ids: list[int] = []

    async def send(number: int) -> None:
        ids.append(await iris.send(otto.name, f"number {number}."))

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(send, number)
    rows = [row for _ in range(2) for row in (await otto.recv(max=5)).rows]
    assert sorted(ids) == sorted(row.id for row in rows)
    assert all(sum(f"number {number}." in row.rest for row in rows) == 1 for number in range(10))


@pytest.mark.contract("MSG-1")
async def test_a_message_that_send_returned_survives_a_kill(iris: Caller, otto: Caller, restart: Restart) -> None:
    """MSG-1: it is stored, not on its way."""
    sent = await iris.send(otto.name, "kept")
    await restart()
    inbox = await otto.recv()
    assert inbox.ids == [sent]
    assert "kept" in inbox.rows[0].rest


@pytest.mark.contract("MSG-1", "MSG-2")
async def test_the_operator_gets_mail_like_anybody(
    iris: Caller, operator_inbox: Callable[[], Awaitable[Sequence[OperatorMail]]]
) -> None:
    """MSG-1: ``operator`` is a recipient."""
    sent = await iris.send("operator", "for a person")
    assert OperatorMail(id=sent, sender=iris.name, body="for a person") in await operator_inbox()


@pytest.mark.contract("MSG-1", "MSG-11")
async def test_the_operators_mail_is_received_and_answered_in_its_thread(
    iris: Caller,
    operator_send: Callable[[str, str], Awaitable[int]],
    operator_inbox: Callable[[], Awaitable[Sequence[OperatorMail]]],
) -> None:
    """MSG-1, MSG-11: a person is a correspondent like any agent."""
    asked = await operator_send(iris.name, "how far are you?")
    row = (await iris.recv()).only
    assert (row.id, row.thread, row.is_from("operator")) == (asked, asked, True)
    answered = await iris.send("operator", "nearly there", in_reply_to=asked)
    assert answered in [mail.id for mail in await operator_inbox()]


def _limited(subject: Subject, caller: Caller) -> tuple[Caller, tuple[str, ...]]:
    for door in subject.agents:
        if door.allowed_recipients:
            return Caller(door=door, era=caller.era), door.allowed_recipients
    raise Lacking("the subject has no agent that is known to be limited in whom it writes to")


@pytest.mark.contract("MSG-2")
async def test_a_limited_agent_is_told_whom_it_may_write_to_and_nothing_is_stored(
    subject: Subject, iris: Caller
) -> None:
    """MSG-2: the refusal names them."""
    limited, allowed = _limited(subject, iris)
    barred = next(door for door in subject.agents if door.name not in (*allowed, limited.name))
    sentence = await limited.refused("send", to=barred.name, body="psst")
    assert all(name in sentence for name in (*allowed, "operator")), sentence
    assert (await Caller(door=barred, era=iris.era).recv()).ids == []


@pytest.mark.contract("MSG-2")
async def test_a_limited_agent_reaches_whom_it_may_and_always_the_operator(subject: Subject, iris: Caller) -> None:
    """MSG-2: it can always report that it is stuck."""
    limited, allowed = _limited(subject, iris)
    await limited.send("operator", "I am stuck")
    sent = await limited.send(allowed[0], "hello")
    friend = next(door for door in subject.agents if door.name == allowed[0])
    assert (await Caller(door=friend, era=iris.era).recv()).ids == [sent]


@pytest.mark.contract("MSG-3")
async def test_an_unknown_recipient_is_refused_with_the_closest_name(iris: Caller, otto: Caller) -> None:
    """MSG-3: most are misspelt."""
    misspelt = otto.name + "x"
    sentence = await iris.refused("send", to=misspelt, body="hello")
    assert otto.name in sentence.replace(misspelt, ""), sentence
    assert (await otto.recv()).ids == []


@pytest.mark.contract("MSG-3")
@pytest.mark.parametrize("name", ["system", "graceful-stop", "../otto", ""])
async def test_a_name_that_no_agent_can_have_is_refused(iris: Caller, name: str) -> None:
    """MSG-3: reserved ones have no inbox."""
    assert (await iris.refused("send", to=name, body="hello")).strip()


@pytest.mark.contract("MSG-3")
@pytest.mark.parametrize("body", ["", "  \n\t "], ids=["nothing", "blanks"])
async def test_an_empty_body_is_refused_and_nothing_is_stored(iris: Caller, otto: Caller, body: str) -> None:
    """MSG-3: it would only cost a turn."""
    assert "body" in await iris.refused("send", to=otto.name, body=body)
    assert (await otto.recv()).ids == []


@pytest.mark.contract("MSG-3")
async def test_a_body_over_the_limit_is_refused_with_the_limit(iris: Caller, otto: Caller) -> None:
    """MSG-3: the sentence has the figure, and nothing is stored."""
    sentence = await iris.refused("send", to=otto.name, body="x" * _LIMIT_PROBE_BYTES)
    assert any(character.isdigit() for character in sentence.replace(str(_LIMIT_PROBE_BYTES), "")), sentence
    assert (await otto.recv()).ids == []


@pytest.mark.contract("MSG-3")
async def test_only_a_message_one_sent_or_received_can_be_answered(iris: Caller, otto: Caller) -> None:
    """MSG-3: neither one that does not exist nor a stranger's."""
    strangers = await otto.send("operator", "between us")
    for wrong in (strangers, 2**53 - 1):
        assert str(wrong) in await iris.refused("send", to=otto.name, body="about that", in_reply_to=wrong)
    assert (await otto.recv()).ids == []


@pytest.mark.contract("MSG-9")
async def test_the_same_send_again_within_a_turn_is_the_first(
    iris: Caller, otto: Caller, turn_of: Callable[[str], Awaitable[Turn]]
) -> None:
    """MSG-9: a retry after a lost answer makes no second message; another body or thread is another message."""
    asked = await otto.send(iris.name, "what is up?")
    turn = await turn_of(iris.name)
    caller = iris.within(turn.headers)
    assert (await caller.recv()).ids == [asked]
    first = await caller.send(otto.name, "hello")
    assert await caller.send(otto.name, "hello") == first
    other = await caller.send(otto.name, "hello!")
    answer = await caller.send(otto.name, "hello", in_reply_to=asked)
    assert len({first, other, answer}) == 3
    assert (await otto.recv(max=5)).ids == [first, other, answer]
    await turn.end(well=True)


@pytest.mark.contract("MSG-9")
async def test_the_same_send_in_the_next_turn_is_another_message(
    iris: Caller, otto: Caller, turn_of: Callable[[str], Awaitable[Turn]]
) -> None:
    """MSG-9: a reminder may say the same as the day before."""
    ids = []
    for _ in range(2):
        await otto.send(iris.name, "again, please")
        turn = await turn_of(iris.name)
        caller = iris.within(turn.headers)
        await caller.recv()
        ids.append(await caller.send(otto.name, "done"))
        await turn.end(well=True)
    assert ids[0] != ids[1]
    assert (await otto.recv(max=5)).ids == ids


@pytest.mark.contract("MSG-11")
async def test_a_chain_of_answers_is_one_thread(iris: Caller, otto: Caller) -> None:
    """MSG-11: as recv shows it; a message that answers nothing begins a thread of its own."""
    first = await iris.send(otto.name, "first")
    second = await otto.send(iris.name, "second", in_reply_to=first)
    third = await iris.send(otto.name, "third", in_reply_to=second)
    apart = await iris.send(otto.name, "apart")
    threads = {row.id: row.thread for caller in (iris, otto) for row in (await caller.recv(max=5)).rows}
    assert threads == {first: first, second: first, third: first, apart: apart}
