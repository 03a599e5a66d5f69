"""What a person reads while a hive runs in the foreground: one line for each thing that happens.

Owns the words and their layout; pure but for the time zone. Agent-supplied text is shown as it is, without control
characters and never as markup.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import final

import attrs

import hive_agent
import hive_broker

from ._hive import AgentHappened, HiveEvent
from .cli._text import on_terminal

__all__ = ["Line", "Story"]

BODY_CHARACTERS = 90
"""How much of a message between agents is shown; messages to the operator are shown whole."""


@attrs.frozen(kw_only=True)
class Line:
    """One line.

    Attributes:
        at: unix seconds.
        who: whose doing it is; decides the colour.
        text: what happened.
        rest: further lines, shown below it.
        quiet: shown dimmed.
    """

    at: float
    who: str
    text: str
    rest: tuple[str, ...] = ()
    quiet: bool = False

    @property
    def clock(self) -> str:
        """The time of day, local."""
        return time.strftime("%H:%M:%S", time.localtime(self.at))


@final
class Story:
    """Turns what happens into lines.

    Args:
        clock: the hour, for happenings that carry none.
    """

    def __init__(self, clock: hive_agent.WallClock = time.time) -> None:
        self._clock = clock
        self._started: dict[str, float] = {}

    def lines(self, event: HiveEvent) -> Iterator[Line]:
        """Tell one happening; most need one line, some none."""
        match event:
            case hive_broker.MessageSent(message=message):
                yield self._sent(message)
            case hive_broker.MessagesPopped(agent=agent, messages=messages):
                again = " again" if any(message.attempts > 1 for message in messages) else ""
                yield self._line(agent, f"reads {_numbers(message.id for message in messages)}{again}", quiet=True)
            case hive_broker.MessagesReturned(agent=agent, ids=ids):
                yield self._line(agent, f"{_numbers(ids)} went back to the inbox")
            case hive_broker.MessagesDied(agent=agent, ids=ids):
                yield self._line(agent, f"{_numbers(ids)} became a dead letter")
            case AgentHappened(agent=agent, event=happened):
                yield from self._happened(agent, happened)
            case _:
                # An ack shows as the end of the turn that brought it.
                return

    def _sent(self, message: hive_broker.Message) -> Line:
        head = f"→ {message.recipient}  #{message.id}"
        body = on_terminal(message.body, lines=True)
        if message.recipient == hive_broker.OPERATOR and message.sender != hive_broker.SYSTEM:
            return Line(at=message.sent_at, who=message.sender, text=head, rest=tuple(body.splitlines()))
        # What the hive itself tells the operator was shown when it happened.
        first = " ".join(body.split())
        shown = first if len(first) <= BODY_CHARACTERS else first[: BODY_CHARACTERS - 1] + "…"
        return Line(at=message.sent_at, who=message.sender, text=f"{head}  {shown}")

    def _happened(self, agent: str, event: hive_agent.AgentEvent) -> Iterator[Line]:
        match event.kind:
            case hive_agent.EventKind.TURN_START:
                self._started[agent] = event.at
                yield Line(at=event.at, who=agent, text=f"wakes: {event.data['cause']}", quiet=True)
            case hive_agent.EventKind.TURN_END:
                yield self._turn_end(agent, event)
            case hive_agent.EventKind.STATUS_CHANGED:
                status = on_terminal(str(event.data["status_text"]))
                yield Line(at=event.at, who=agent, text=f"status: {status}" if status else "clears its status")
            case hive_agent.EventKind.NOTE:
                yield Line(at=event.at, who=agent, text=on_terminal(str(event.data["text"])))
            case _:
                return

    def _turn_end(self, agent: str, event: hive_agent.AgentEvent) -> Line:
        seconds = event.at - self._started.pop(agent, event.at)
        calls = sum(event.data["statistics"].get("tool_calls", {}).values())
        took = f"{seconds:.1f} s, {calls} tool call{'' if calls == 1 else 's'}"
        if event.data["outcome"] == hive_agent.Outcome.DONE.value:
            return Line(at=event.at, who=agent, text=f"is done after {took}", quiet=True)
        detail = on_terminal(str(event.data["detail"]))
        outcome = str(event.data["outcome"]).replace("_", " ")
        return Line(at=event.at, who=agent, text=f"turn ended: {outcome} after {took}", rest=(detail,))

    def _line(self, who: str, text: str, *, quiet: bool = False) -> Line:
        return Line(at=self._clock(), who=who, text=text, quiet=quiet)


def _numbers(ids: Iterator[int] | tuple[int, ...]) -> str:
    return ", ".join(f"#{id_}" for id_ in ids)
