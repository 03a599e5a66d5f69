"""What the suite is pointed at: agents with an MCP door each, and what else the implementation lets it do.

Owns the values and nothing else. A test that needs what a subject lacks is skipped with that reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

import attrs

__all__ = ["AgentDoor", "OperatorMail", "Subject", "SubjectFactory", "Turn"]


@attrs.frozen(kw_only=True)
class AgentDoor:
    """One agent, as a client of its built-in MCP server reaches it (SURF-1, SURF-5).

    Attributes:
        name: what its mail is addressed to.
        url: of its server ``hyperhive``.
        token: the bearer token of that URL.
        allowed_recipients: to whom it may write beside ``operator``; empty for everybody, None when nobody knows.
        state_dir: the agent's state folder, when the suite can read it.
    """

    name: str
    url: str
    token: str = attrs.field(repr=False)
    allowed_recipients: tuple[str, ...] | None = None
    state_dir: Path | None = None


@attrs.frozen(kw_only=True)
class OperatorMail:
    """A message in the operator's inbox."""

    id: int
    sender: str
    body: str


class Turn(Protocol):
    """One turn of an agent that is open now, whose runtime the suite plays (MSG-5)."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the runtime's requests carry beside the token, so that its calls count as this turn's."""
        ...

    async def end(self, *, well: bool) -> None:
        """End the turn well or badly; returns when what it had popped is acked or back in the inbox."""
        ...


@attrs.frozen(kw_only=True)
class Subject:
    """An implementation of the contract, running.

    Attributes:
        description: for the report.
        agents: the first two must be able to write to each other; what is in their inboxes will be acked.
        pair_messages_per_hour: how much the first two agents may write to each other, where that is at least 20 (the
            suite's other tests need as much) and few enough to be used up in a test (MSG-10).
        restart: ends the implementation as ``kill -9`` does and returns when it runs again on the same state, with
            nothing told to its clients.
        operator_send: stores a message of the operator, given recipient and body, and returns its id.
        operator_inbox: gives the operator's messages, oldest first; the newest twenty are enough.
        turn_of: returns the turn that an agent takes because it has mail, waiting for it to begin.
        stop_agent: asks an agent to stop gracefully while a turn of it is open; returns when its inbox is fenced.
    """

    description: str
    agents: Sequence[AgentDoor]
    pair_messages_per_hour: int | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    operator_send: Callable[[str, str], Awaitable[int]] | None = None
    operator_inbox: Callable[[], Awaitable[Sequence[OperatorMail]]] | None = None
    turn_of: Callable[[str], Awaitable[Turn]] | None = None
    stop_agent: Callable[[str], Awaitable[None]] | None = None


SubjectFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[Subject]]
"""What ``--subject module:factory`` names: opens a fresh subject for each test and closes it after."""
