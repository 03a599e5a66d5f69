"""Agents whose door has one fault each: the fence, the protocol, identity, texts, status, limits."""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from planting import Box, replaces, spoils

import hive_agent
from hive_agent import _agent, _status
from hive_agent._mcp import _clamp, _envelope, _identity, _inbox_text, _listener, _messaging, _popped, _server

# --- the fence


@replaces("MSG-8")
def the_notice_has_a_marker(patch):
    patch.setattr(_messaging, "stop_notice_text", lambda notice: f"[msg #0] from graceful-stop\n{notice}")


@replaces("STOP-1")
def there_is_no_fence(patch):
    patch.setattr(_agent.Agent, "stop_notice", None)


@replaces("STOP-1")
def the_fence_says_nothing(patch):
    patch.setattr(_messaging, "stop_notice_text", lambda _: "no unread messages.")


# --- the door


@replaces("SURF-1", "SURF-4")
def the_port_moves(patch):
    opened = hive_agent.open_listener
    patch.setattr(hive_agent, "open_listener", lambda port: opened())


@replaces("SURF-2")
def no_sessions(patch):
    manager = _listener.StreamableHTTPSessionManager
    patch.setattr(_listener, "StreamableHTTPSessionManager", partial(manager, stateless=True))


def _guarded(patch: pytest.MonkeyPatch, refuse: Callable[[Any], int | None], relabel: dict[int, int]) -> None:
    """Let the gate refuse more, or under another status."""
    serve = _identity.Gate.__call__

    async def call(self, scope, receive, send):
        async def relabelled(message):
            if "status" in message:
                message = {**message, "status": relabel.get(message["status"], message["status"])}
            await send(message)

        if (status := refuse(scope)) is not None:
            await _identity.refuse(send, status, "not here")
        else:
            await serve(self, scope, receive, relabelled)

    patch.setattr(_identity.Gate, "__call__", call)


@replaces("SURF-2")
def no_newer_era(patch):
    def is_newer(scope):
        return 400 if (b"mcp-protocol-version", b"2026-07-28") in scope["headers"] else None

    _guarded(patch, is_newer, {})


@replaces("SURF-2")
def no_stream(patch):
    _guarded(patch, lambda scope: 405 if scope["method"] == "GET" else None, {})


@replaces("SURF-4")
def an_old_session_is_a_bad_request(patch):
    _guarded(patch, lambda _: None, {404: 400})


@replaces("SURF-3")
def prefixed_names(patch):
    tools = tuple(attrs.evolve(tool, name=f"mcp__hyperhive__{tool.name}") for tool in _listener.SERVERS["hyperhive"])
    aliases = _listener.SERVERS["hyperhive"]
    patch.setattr(_listener, "SERVERS", {"hyperhive": (*aliases, *tools)})


def _as_result(patch: pytest.MonkeyPatch, change: Callable[[Any], Any], *, meta: Any = ...) -> None:
    made = _server._as_mcp_result
    patch.setattr(_server, "_as_mcp_result", lambda result, asked: made(change(result), asked if meta is ... else meta))


@replaces("SURF-3")
def text_is_json(patch):
    _as_result(patch, lambda result: attrs.evolve(result, text=json.dumps({"text": result.text})))


@replaces("SURF-3")
def data_for_everybody(patch):
    _as_result(patch, lambda result: result, meta={_server.STRUCTURED_META_KEY: True})


@replaces("SURF-3")
def data_for_nobody(patch):
    _as_result(patch, lambda result: result, meta={})


@replaces("SURF-3")
def no_limit_of_text(patch):
    patch.setattr(_inbox_text, "TEXT_LIMIT", 10**9)
    patch.setattr(_clamp, "TEXT_LIMIT", 10**9)


@replaces("SURF-3")
def what_does_not_fit_is_dropped(patch):
    shown = _popped.PoppedRows.mark_shown
    patch.setattr(
        _popped.PoppedRows,
        "mark_shown",
        lambda self, turn_id, popped, *, seen: shown(self, turn_id, popped, seen=len(popped.text)),
    )


@replaces("SURF-5")
def any_token(patch):
    patch.setattr(_listener, "same_token", lambda _one, _other: True)


@replaces("SURF-5")
def no_token(patch):
    patch.setattr(_identity, "_bearer_token", lambda _scope: b"")
    patch.setattr(_listener, "same_token", lambda _one, _other: True)


def _blind_to(patch: pytest.MonkeyPatch, header: bytes, instead: Callable[[_identity.Gate], list[bytes]]) -> None:
    admit, values = _identity.Gate._admit, _identity._values

    def blind(self, scope):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                _identity, "_values", lambda scope, name: instead(self) if name == header else values(scope, name)
            )
            return admit(self, scope)

    patch.setattr(_identity.Gate, "_admit", blind)


@replaces("SURF-5")
def any_host(patch):
    _blind_to(patch, b"host", lambda gate: [next(iter(gate._hosts))])


@replaces("SURF-5")
def any_origin(patch):
    _blind_to(patch, b"origin", lambda _: [])


@spoils("SURF-5")
class SendsAsSomebodyElse(Box):
    async def send(self, **more):
        return await self.others[1].inner.send(**more)


@replaces("SURF-5")
def the_sender_is_an_argument(patch):
    properties = dict(_messaging.SEND.input_schema["properties"]) | {"sender": {"type": "string"}}
    patch.setitem(_messaging.SEND.input_schema, "properties", properties)


@replaces("SURF-5")
def bodies_can_pretend(patch):
    patch.setattr(_inbox_text, "_LOOKS_LIKE_A_HEAD", re.compile(r"(?!)"))


@replaces("SURF-6")
def failures_look_fine(patch):
    _as_result(patch, lambda result: attrs.evolve(result, outcome=_envelope.Outcome.OK))


@replaces("SURF-6")
def failures_are_tracebacks(patch):
    def with_traceback(result):
        if result.outcome is _envelope.Outcome.OK:
            return result
        return attrs.evolve(result, text=f"Traceback (most recent call last):\n  ...\n{result.text}")

    _as_result(patch, with_traceback)


# --- status, limits


@replaces("SELF-1")
def long_statuses(patch):
    patch.setattr(_status, "MAX_STATUS_CHARACTERS", 1000)


@replaces("SELF-1")
def statuses_of_many_lines(patch):
    patch.setattr(_status, "_is_printable", lambda _: True)


@replaces("SELF-1")
def statuses_are_not_kept(patch):
    patch.setattr(_status.StatusFile, "write", lambda _self, _text: None)


@replaces("SELF-1")
def a_status_cannot_be_cleared(patch):
    write = _status.StatusFile.write
    patch.setattr(_status.StatusFile, "write", lambda self, text: write(self, text) if text else None)


@replaces("REL-4")
def no_limit_of_bodies(patch):
    patch.setattr(_identity, "MAX_BODY_BYTES", 2**30)
    patch.setattr(_listener, "MAX_BODY_BYTES", 2**30)


@replaces("REL-4")
def a_bad_body_is_our_fault(patch):
    _guarded(patch, lambda _: None, {400: 500, 413: 500})


@spoils("REL-5")
class IdsAreReused(Box):
    async def send(self, **more):
        sent = await self.inner.send(**more)
        return attrs.evolve(sent, id=(sent.id - 1) % 2 + 1)
