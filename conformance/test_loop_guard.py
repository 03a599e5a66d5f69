"""What stops agents that write to each other without end (MSG-10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from conformance._client import Caller
from conformance._subject import OperatorMail, Subject
from conformance.plugin import Lacking


async def _use_up(subject: Subject, iris: Caller, otto: Caller) -> int:
    """Write back and forth for as long as it is allowed; gives the budget."""
    budget = subject.pair_messages_per_hour
    if budget is None:
        raise Lacking("the subject has no budget between two agents that is known to be small enough to use up")
    for number in range(budget):
        sender, recipient = (iris, otto) if number % 2 else (otto, iris)
        await sender.send(recipient.name, f"thank you {number}")
    return budget


@pytest.mark.contract("MSG-10")
async def test_an_exchange_over_its_budget_is_refused_in_both_directions_and_nothing_is_stored(
    subject: Subject, iris: Caller, otto: Caller
) -> None:
    """MSG-10: the sentence has the figure; nothing is dropped that send took."""
    budget = await _use_up(subject, iris, otto)
    for sender, recipient in ((iris, otto), (otto, iris)):
        assert str(budget) in await sender.refused("send", to=recipient.name, body="one too many")
    bodies = ""
    for caller in (iris, otto):
        while (inbox := await caller.recv(max=5)).ids:
            bodies += inbox.text
    assert [f"thank you {number}\n" in bodies for number in range(budget)] == [True] * budget
    assert "one too many" not in bodies


@pytest.mark.contract("MSG-10")
async def test_the_operator_is_told_once_and_can_still_be_told_more(
    subject: Subject,
    iris: Caller,
    otto: Caller,
    operator_inbox: Callable[[], Awaitable[Sequence[OperatorMail]]],
) -> None:
    """MSG-10: of which agents, however often they try on."""
    await _use_up(subject, iris, otto)
    for _ in range(3):
        await iris.refused("send", to=otto.name, body="one too many")
        await otto.refused("send", to=iris.name, body="one too many")
    told = [mail.body for mail in await operator_inbox() if mail.sender not in (iris.name, otto.name)]
    assert len(told) == 1, told
    assert iris.name in told[0], told
    assert otto.name in told[0], told
    await iris.send("operator", "we were stopped")
