"""A request to the model, read: who asks, what was said last, which tools answered.

Owns the parsing of a Messages API body. Pure: bytes in, a frozen value out; knows no connection and no rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

__all__ = ["BadRequest", "ModelRequest", "ToolResult", "parse_request", "shortened"]

_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
"""Never recorded (SEC-5)."""

_BYTES_A_TOKEN: Final = 4
"""The usual rule of thumb for English and JSON; an estimate is all a stand-in can give."""


_SHOWN_CHARACTERS: Final = 200
"""Of a text that is shown in a sentence or a traceback."""


def shortened(text: str) -> str:
    """A text quoted, with its end left out when it is long."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


class BadRequest(Exception):
    """The body is not a Messages API request; the sentence says what it lacks."""


@attrs.frozen(kw_only=True)
class ToolResult:
    """What one tool call of the model came back with.

    Attributes:
        name: the tool, found through the transcript; ``""`` when no call in it has this id.
        text: its text blocks, one after the other.
        is_error: the client marked it as failed.
        tool_use_id: the call it answers.
    """

    name: str
    text: str = attrs.field(repr=shortened)
    is_error: bool
    tool_use_id: str


@attrs.frozen(kw_only=True)
class ModelRequest:
    """One recorded request.

    "Last" means what came after the model's last reply: in the middle of a tool loop that is the tools' results and
    perhaps a message that the user sent meanwhile, and not the prompt that started the turn.

    Attributes:
        number: 1 for the first request to its endpoint.
        path: without the query.
        model: the model asked for.
        stream: the client wants server-sent events.
        system: the system prompt, with every message of role ``system`` after it.
        tools: names of the tools offered, in their order.
        last_user: the text the user sent last.
        tool_results: what the model's last tool calls came back with.
        headers: names in lower case, without credentials.
        raw: the body as it came.
    """

    number: int
    path: str
    model: str
    stream: bool
    system: str = attrs.field(repr=shortened)
    tools: tuple[str, ...]
    last_user: str = attrs.field(repr=shortened)
    tool_results: tuple[ToolResult, ...]
    headers: Mapping[str, str] = attrs.field(repr=False)
    raw: bytes = attrs.field(repr=False)

    @property
    def body(self) -> dict[str, Any]:
        """The body as JSON: a fresh copy each time, so a record never changes."""
        body: dict[str, Any] = json.loads(self.raw)
        return body

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The transcript: a fresh copy each time."""
        return tuple(self.body["messages"])

    @property
    def estimated_tokens(self) -> int:
        """A plausible size of the prompt in tokens."""
        return max(1, len(self.raw) // _BYTES_A_TOKEN)

    def search(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """The first match of ``pattern`` in the last tool results, else in the last user text.

        Raises:
            LookupError: in neither.
        """
        for text in (*(result.text for result in self.tool_results), self.last_user):
            if match := re.search(pattern, text):
                return match
        raise LookupError(f"request {self.number} must hold {pattern!r} in its last tool results or user text")


def parse_request(*, number: int, path: str, headers: Mapping[str, str], raw: bytes) -> ModelRequest:
    """Read one body.

    Raises:
        BadRequest: it is not a JSON object with a model and a list of messages.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise BadRequest("the body must be JSON: send application/json") from exc
    if not isinstance(body, dict):
        raise BadRequest(f"the body must be a JSON object, got {type(body).__name__}")
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadRequest("messages: a list of objects is required")
    if not isinstance(model := body.get("model"), str):
        raise BadRequest("model: a name is required")
    last = _after_last_reply(messages)
    systems = [_text(body.get("system"))]
    systems += [_text(message.get("content")) for message in messages if message.get("role") == "system"]
    return ModelRequest(
        number=number,
        path=path,
        model=model,
        stream=body.get("stream") is True,
        system="\n".join(filter(None, systems)),
        tools=tuple(str(tool["name"]) for tool in _objects(body.get("tools")) if "name" in tool),
        last_user="\n".join(filter(None, (_text(message.get("content")) for message in last))),
        tool_results=tuple(_tool_results(last, _call_names(messages))),
        headers={name: value for name, value in headers.items() if name not in _SECRET_HEADERS},
        raw=raw,
    )


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(content: object) -> str:
    """The text of a string or of a list of blocks; other blocks have none."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in _objects(content) if block.get("type") == "text")


def _after_last_reply(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    start = 0
    for index, message in enumerate(messages, start=1):
        if message.get("role") == "assistant":
            start = index
    return [message for message in messages[start:] if message.get("role") == "user"]


def _call_names(messages: list[dict[str, Any]]) -> dict[str, str]:
    """Names of the tools by the id of their call; a later call wins, as the one that is being answered."""
    return {
        str(block.get("id")): str(block.get("name"))
        for message in messages
        if message.get("role") == "assistant"
        for block in _objects(message.get("content"))
        if block.get("type") == "tool_use"
    }


def _tool_results(messages: list[dict[str, Any]], names: Mapping[str, str]) -> Iterable[ToolResult]:
    for message in messages:
        for block in _objects(message.get("content")):
            if block.get("type") == "tool_result":
                call_id = str(block.get("tool_use_id"))
                yield ToolResult(
                    name=names.get(call_id, ""),
                    text=_text(block.get("content")),
                    is_error=block.get("is_error") is True,
                    tool_use_id=call_id,
                )
