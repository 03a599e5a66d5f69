"""What the suite's tests are given: the subject, its agents as callers, and what a subject may lack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio

from conformance._client import Caller, Era
from conformance._subject import OperatorMail, Subject, Turn
from conformance.plugin import FACTORY, REPORT, Lacking

_SECONDS = 60.0
"""For one test, start and restarts included: nothing in it has to wait for a clock."""

_TURN_SECONDS = 5.0
"""For an agent with mail to begin a turn."""

_HIGHEST_ID = 2**53 - 1
"""Beyond any row there is, and exact in every JSON parser."""


@pytest.fixture(params=[pytest.param(era, id=era.value) for era in Era])
def era(request: pytest.FixtureRequest) -> Era:
    """Each generation of the protocol."""
    found: Era = request.param
    return found


@pytest.fixture
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """A subject with empty inboxes."""
    with trio.fail_after(_SECONDS):
        async with request.config.stash[FACTORY]() as opened:
            request.config.stash[REPORT].subject = opened.description
            for door in opened.agents[:2]:
                await Caller(door=door, era=Era.PER_REQUEST).ok("ack_until", up_to=_HIGHEST_ID)
            yield opened


@pytest.fixture
async def iris(subject: Subject, era: Era) -> Caller:
    """The subject's first agent, whatever its name."""
    return Caller(door=subject.agents[0], era=era)


@pytest.fixture
async def otto(subject: Subject, era: Era) -> Caller:
    """Another agent."""
    if len(subject.agents) < 2:
        raise Lacking("the subject has one agent only")
    return Caller(door=subject.agents[1], era=era)


def _lacking(reason: str) -> Callable[..., Awaitable[Any]]:
    """Stands for what a subject does not offer: a test is skipped where it first needs it, always at the same place."""

    async def lack(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise Lacking(reason)

    return lack


@pytest.fixture
async def restart(subject: Subject) -> Callable[[], Awaitable[None]]:
    """Kills the implementation and starts it again."""
    return subject.restart or _lacking("the subject cannot be restarted from here")


@pytest.fixture
async def turn_of(subject: Subject) -> Callable[[str], Awaitable[Turn]]:
    """Gives the turn an agent takes because it has mail."""
    begun = subject.turn_of or _lacking("the turns of the subject cannot be played from here")

    async def turn_of(name: str) -> Turn:
        turn: Turn | None = None
        with trio.move_on_after(_TURN_SECONDS):
            turn = await begun(name)
        assert turn is not None, f"{name} has mail and began no turn within {_TURN_SECONDS:.0f} s"
        return turn

    return turn_of


@pytest.fixture
async def stop_agent(subject: Subject) -> Callable[[str], Awaitable[None]]:
    """Asks an agent to stop."""
    return subject.stop_agent or _lacking("the agents of the subject cannot be stopped from here")


@pytest.fixture
async def operator_send(subject: Subject) -> Callable[[str, str], Awaitable[int]]:
    """Stores a message of the operator."""
    return subject.operator_send or _lacking("the operator of the subject cannot write from here")


@pytest.fixture
async def operator_inbox(subject: Subject) -> Callable[[], Awaitable[Sequence[OperatorMail]]]:
    """Gives the operator's messages."""
    return subject.operator_inbox or _lacking("the inbox of the subject's operator cannot be seen from here")
