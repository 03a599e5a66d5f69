"""What surrounds every tool call: the log before and after, and the shape of what can go wrong (ENV-1, SURF-6).

Knows no tool and no MCP; the server calls it, and it calls the handler.
"""

from __future__ import annotations

import enum
import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from hive_agent._errors import ToolRefused
from hive_agent._ports import ToolServices
from hive_broker import get_logger

from ._clamp import clamp
from ._popped import PoppedRows
from ._tool import Tool, ToolCall

__all__ = ["Caller", "Outcome", "ToolResult", "run_tool"]

_log = get_logger("hive_agent.mcp")

_LOGGED_CHARACTERS = 200
"""Of any text in the log: enough to recognise a message, too little to leak one (SEC-5)."""


_LOGGED_ARGUMENTS = 20
"""Names of a call in the log: no tool takes as many."""


class Outcome(enum.Enum):
    """How a call ended."""

    OK = "ok"
    REFUSED = "refused"
    BUG = "bug"
    CANCELLED = "cancelled"


@attrs.frozen(kw_only=True)
class ToolResult:
    """What goes back to the client; ``data`` is None when the call failed."""

    text: str
    data: Mapping[str, object] | None
    outcome: Outcome


@attrs.frozen(kw_only=True)
class Caller:
    """Who calls, as the connection shows it (SURF-5).

    Attributes:
        services: the agent whose path and token were used.
        popped: that agent's rows that are still to be shown.
        turn: the ``Hive-Turn`` header as it came, if it came.
        is_wanted: whether the connection that asked is still there.
    """

    services: ToolServices
    popped: PoppedRows
    turn: str | None
    is_wanted: Callable[[], bool]


async def run_tool(tool: Tool[Any], arguments: Mapping[str, Any], caller: Caller) -> ToolResult:
    """Run one tool for one caller.

    A sentence meant for the model comes back as a refusal; anything else that is raised is our bug, and the model gets
    an id that finds the traceback in the log.

    Raises:
        trio.Cancelled: the client gave up or left; what the handler promises about cancellation holds.
    """
    log = _log.bind(tool=tool.name, caller=caller.services.name)
    log.info("tool called", turn=_short(caller.turn), arguments=_short_arguments(arguments))
    began_at = trio.current_time()
    result = ToolResult(text="", data=None, outcome=Outcome.CANCELLED)
    try:
        result = await _run(tool, arguments, caller, log)
    finally:
        log.info(
            "tool answered",
            outcome=result.outcome.value,
            duration_seconds=round(trio.current_time() - began_at, 6),
            text=_short(result.text),
        )
    return result


async def _run(tool: Tool[Any], arguments: Mapping[str, Any], caller: Caller, log: Any) -> ToolResult:
    try:
        turn_id = _turn_of(caller)
        checked = tool.check(arguments)
        if checked.ignored:
            log.warning(
                "unknown arguments ignored", names=[_short(name) for name in checked.ignored[:_LOGGED_ARGUMENTS]]
            )
        call = ToolCall(services=caller.services, turn_id=turn_id, popped=caller.popped, is_wanted=caller.is_wanted)
        answer = await tool.handler(call, checked.value)
    except ToolRefused as refused:
        return ToolResult(text=clamp(str(refused)), data=None, outcome=Outcome.REFUSED)
    except Exception:
        # A tool is a stranger's code here: its bug costs one call, not the listener.
        error_id = secrets.token_hex(4)
        log.error("tool failed", error_id=error_id, exc_info=True)
        text = f"{tool.name} failed because of a fault in hyperhive, not in your call: tell the operator id {error_id}."
        return ToolResult(text=text, data=None, outcome=Outcome.BUG)
    return ToolResult(text=clamp(answer.text), data=answer.data, outcome=Outcome.OK)


def _turn_of(caller: Caller) -> int | None:
    """The calling runtime's turn: None outside one, refused when that turn is no longer the open one (MSG-5)."""
    if caller.turn is None:
        return None
    if not (caller.turn.isascii() and caller.turn.isdigit()):
        raise ToolRefused(
            f"the header Hive-Turn must be a turn's number, but {_short(caller.turn)!r} came, so nothing was done: "
            "send the number the harness wrote, or leave the header out."
        )
    open_turn = caller.services.turn_id
    if open_turn is None or caller.turn.lstrip("0") != str(open_turn):
        raise ToolRefused(f"turn {_short(caller.turn)} is over, so nothing was done: stop here, the next turn goes on.")
    return open_turn


def _short_arguments(arguments: Mapping[str, Any]) -> dict[str, object]:
    shown = itertools.islice(arguments.items(), _LOGGED_ARGUMENTS)
    return {str(_short(name)): _short(value) for name, value in shown}


def _short(value: object) -> object:
    """A value for the log: text cut, containers by kind, so that nothing is long, deep, whole or not Unicode."""
    if isinstance(value, str):
        cut = value if len(value) <= _LOGGED_CHARACTERS else value[:_LOGGED_CHARACTERS] + f"… ({len(value)})"
        return cut.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return "{…}"
    if isinstance(value, list):
        return "[…]"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a huge number"
    return value
