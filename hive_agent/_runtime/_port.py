"""The runtime seam: what a turn needs from whatever runs the model.

Owns the values and protocols between the turn's runner and a runtime (Claude CLI, in memory). One contract suite runs
over every implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import attrs

from hive_agent._turn import Outcome, Signal

__all__ = ["McpServer", "Run", "RunLine", "RunNote", "RunReport", "RunRequest", "RunStarted", "Runtime"]


@attrs.frozen(kw_only=True)
class McpServer:
    """A streamable-HTTP tool server of the agent (SURF-7).

    Attributes:
        url: where it listens.
        headers: sent with every request; they hold the token, so they are kept out of every ``repr``.
        required: a turn without it is a failed turn.
    """

    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    required: bool = True


@attrs.frozen(kw_only=True)
class RunRequest:
    """One turn, as the runtime sees it.

    Attributes:
        prompt: what the turn begins with.
        system_prompt: added to the runtime's own.
        mcp_servers: name to server.
    """

    prompt: str
    system_prompt: str
    mcp_servers: Mapping[str, McpServer]


@attrs.frozen(kw_only=True)
class RunStarted:
    """The runtime's process exists."""

    pid: int


@attrs.frozen(kw_only=True)
class RunLine:
    """The runtime said something.

    Attributes:
        data: as it came.
        result: it is the turn's result; nothing but the exit should follow.
    """

    data: Mapping[str, Any]
    result: bool = False


@attrs.frozen(kw_only=True)
class RunNote:
    """Something the operator should find in the event log. It does not count as a sign of life."""

    text: str


@attrs.frozen(kw_only=True)
class RunReport:
    """How the run ended.

    Attributes:
        outcome: classified (TURN-5).
        detail: in words, for the operator; never a secret.
        reset_at: for RATE_LIMITED, unix seconds, where the service named a time.
        exit_code: negative for a signal; None when no process came to be.
        statistics: JSON object: what the run used, as far as the runtime said (TURN-7).
    """

    outcome: Outcome
    detail: str
    reset_at: float | None = None
    exit_code: int | None = None
    statistics: Mapping[str, Any] = attrs.field(factory=dict)


class Run(Protocol):
    """One run under way."""

    async def next(self) -> RunStarted | RunLine | RunNote | None:
        """Give the next thing that happened; None once the process is gone, reaped and all it said has been given."""
        ...

    def signal(self, signal: Signal) -> None:
        """Tell the process group to end; before the process exists it is told as soon as it does."""
        ...

    @property
    def report(self) -> RunReport:
        """How it ended; there once ``next`` gave None."""
        ...


class Runtime(Protocol):
    """What runs an agent's model."""

    def open_run(self, request: RunRequest) -> AbstractAsyncContextManager[Run]:
        """Run one turn for as long as the block lasts; when it is left, however, nothing of it runs any more."""
        ...

    async def end_orphans(self) -> tuple[int, ...]:
        """End what an earlier life of this agent left running; give the pids that were found (TURN-4)."""
        ...
