"""A reply in the words of the Messages API: server-sent events, one JSON message, or an error.

Owns the shapes on the wire. Pure: knows no connection and keeps no state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import attrs

from hive_agent.testing._reply import Call, Fail, Reply, Say, Usage
from hive_agent.testing._request import ModelRequest

__all__ = ["Envelope", "block_frames", "error_body", "error_frame", "estimate_usage", "first_frame", "last_frames"]

_DELTA_CHARACTERS: Final = 256
"""Longest piece of one delta, so that a client has to put pieces together as it must with the real API."""

_CHARACTERS_A_TOKEN: Final = 4


@attrs.frozen(kw_only=True)
class Envelope:
    """What names one reply: ids that no other reply has, the model, the figures.

    Attributes:
        message_id: a client merges what shares one, so it is never reused.
        model: as it was asked for.
        usage: the figures.
    """

    message_id: str
    model: str
    usage: Usage

    @property
    def request_id(self) -> str:
        """The id of the response."""
        return f"req_{self.message_id.removeprefix('msg_')}"

    def call_id(self, index: int) -> str:
        """The id of the call that is content block ``index``."""
        return f"toolu_{self.message_id.removeprefix('msg_')}_{index}"

    def message(self, content: list[dict[str, Any]], *, stop_reason: str | None, output: int) -> dict[str, Any]:
        """The message object of the API."""
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": self.usage.input,
                "cache_creation_input_tokens": self.usage.cache_creation,
                "cache_read_input_tokens": self.usage.cache_read,
                "output_tokens": output,
            },
        }

    def whole(self, reply: Reply) -> dict[str, Any]:
        """The answer to a request that wants no stream."""
        blocks = [step for step in reply.steps if isinstance(step, Say | Call)]
        content = [
            {"type": "text", "text": block.text}
            if isinstance(block, Say)
            else {"type": "tool_use", "id": self.call_id(index), "name": block.name, "input": dict(block.input)}
            for index, block in enumerate(blocks)
        ]
        return self.message(content, stop_reason=_stop_reason(reply), output=self.usage.output)


def estimate_usage(request: ModelRequest, reply: Reply) -> Usage:
    """Plausible figures for a reply that gives none."""
    size = 0
    for step in reply.steps:
        if isinstance(step, Say):
            size += len(step.text)
        elif isinstance(step, Call):
            size += len(step.name) + len(json.dumps(dict(step.input)))
    return Usage(input=request.estimated_tokens, output=max(1, size // _CHARACTERS_A_TOKEN))


def first_frame(envelope: Envelope) -> bytes:
    """The event that opens a stream; its output figure is the API's first guess."""
    return _event("message_start", message=envelope.message([], stop_reason=None, output=1))


def block_frames(envelope: Envelope, index: int, block: Say | Call) -> tuple[bytes, bytes]:
    """The events of one content block, in two halves."""
    if isinstance(block, Say):
        start: dict[str, Any] = {"type": "text", "text": ""}
        name, content = "text", block.text
    else:
        start = {"type": "tool_use", "id": envelope.call_id(index), "name": block.name, "input": {}}
        name, content = "partial_json", json.dumps(dict(block.input))
    kind = "text_delta" if name == "text" else "input_json_delta"
    middle = len(content) // 2 if block.halved else len(content)
    first, second = (
        b"".join(
            _event("content_block_delta", index=index, delta={"type": kind, name: piece}) for piece in _pieces(part)
        )
        for part in (content[:middle], content[middle:])
    )
    return (
        _event("content_block_start", index=index, content_block=start) + first,
        second + _event("content_block_stop", index=index),
    )


def last_frames(envelope: Envelope, reply: Reply) -> bytes:
    """The events that close a stream: why it stopped and the final figures."""
    stopped = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    return _event("message_delta", delta=stopped, usage={"output_tokens": envelope.usage.output}) + _event(
        "message_stop"
    )


def error_body(error: Fail) -> dict[str, Any]:
    """The body of an HTTP error."""
    return {"type": "error", "error": {"type": error.kind, "message": error.message}}


def error_frame(error: Fail) -> bytes:
    """The event of an error in the middle of a stream."""
    return _event("error", error={"type": error.kind, "message": error.message})


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if any(isinstance(step, Call) for step in reply.steps) else "end_turn"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _DELTA_CHARACTERS):
        yield text[start : start + _DELTA_CHARACTERS]


def _event(name: str, **fields: object) -> bytes:
    data = json.dumps({"type": name, **fields}, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()
