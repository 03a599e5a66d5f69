"""The tool ``set_status``: one line that the operator sees beside the agent's name (SELF-1)."""

from __future__ import annotations

import attrs

from hive_agent._errors import ToolRefused

from ._tool import Tool, ToolAnswer, ToolCall, argument

__all__ = ["SET_STATUS"]


@attrs.frozen(kw_only=True)
class StatusArguments:
    text: str = argument(
        'One line of at most 200 characters; "" removes it.', example="Reviewing the parser, 3 of 7 files done"
    )


async def _set_status(call: ToolCall, arguments: StatusArguments) -> ToolAnswer:
    try:
        call.services.set_status(arguments.text)
    except ValueError as exc:
        raise ToolRefused(str(exc)) from exc
    except OSError as exc:
        raise ToolRefused(
            f"the status could not be kept ({exc.strerror or type(exc).__name__}), so it is unchanged: try again later."
        ) from exc
    text = f"status set: {arguments.text}" if arguments.text else "status cleared"
    return ToolAnswer(text=text, data={"status": arguments.text})


SET_STATUS = Tool(
    name="set_status",
    title="Show a status line",
    description=(
        "Tell the operator in one line what you are doing; it is shown beside your name and stays until you change it. "
        "Set it when you begin something long, and clear it with an empty text when you are done."
    ),
    input_type=StatusArguments,
    handler=_set_status,
    idempotent=True,
)
