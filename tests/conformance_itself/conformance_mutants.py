"""Agents with one fault each: what the suite has to notice.

Each function here opens a subject as ``--subject conformance_mutants:<name>`` wants it. A fault is planted at the
mailbox's seam where it can be, and else by replacing one piece of the door.
"""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

import hive_agent
import hive_broker
from conformance._own import open_own_subject
from hive_agent import _agent, _status
from hive_agent._mcp import _clamp, _envelope, _identity, _inbox_text, _listener, _messaging, _popped, _server
from hive_broker import Acked, MessageRefused, Received, Sent

MUTANTS: dict[str, tuple[str, ...]] = {}
"""Name of each mutant, and the ids whose tests must fail with it."""

Open = Callable[[], AbstractAsyncContextManager[Any]]


class Box:
    """A mailbox that passes everything on; a mutant overrides what it spoils."""

    others: list["Box"]

    def __init__(self, inner: Any, boxes: list["Box"]) -> None:
        self.inner = inner
        self.others = boxes
        boxes.append(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def spoils(*ids: str) -> Callable[[type[Box]], type[Box]]:
    """A mutant from a mailbox class."""

    def register(kind: type[Box]) -> type[Box]:
        def open_mutant() -> AbstractAsyncContextManager[Any]:
            boxes: list[Box] = []
            return open_own_subject(wrap=lambda mailbox: kind(mailbox, boxes))

        _register(kind.__name__, ids, open_mutant)
        return kind

    return register


def replaces(*ids: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], None]:
    """A mutant from a function that replaces pieces for as long as the subject is open."""

    def register(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
        @asynccontextmanager
        async def open_mutant():
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                async with open_own_subject() as subject:
                    yield subject

        _register(plant.__name__, ids, open_mutant)

    return register


def _register(name: str, ids: tuple[str, ...], open_mutant: Open) -> None:
    MUTANTS[name] = ids
    globals()[f"open_{name}"] = open_mutant


# --- what is sent


@replaces("MSG-1", "REL-5", "MSG-7")
def a_kill_loses_everything(patch):
    patch.setattr(shutil, "copytree", lambda _from, to, **_: Path(to).mkdir())


@spoils("MSG-1")
class BodyIsTidied(Box):
    async def send(self, *, body, **more):
        return await self.inner.send(body=" ".join(body.split()) or body, **more)


@spoils("MSG-1")
class StoredTwice(Box):
    async def send(self, **more):
        await self.inner.send(**more)
        return await self.inner.send(**more)


@spoils("MSG-1", "MSG-11")
class AnswersWithAnotherId(Box):
    async def send(self, **more):
        sent = await self.inner.send(**more)
        return attrs.evolve(sent, id=sent.id + 1)


@spoils("MSG-1")
class OperatorMailGoesNowhere(Box):
    async def send(self, *, to, **more):
        return Sent(id=77) if to == "operator" else await self.inner.send(to=to, **more)


@spoils("MSG-2")
class AllowsEverybody(Box):
    def __init__(self, inner, boxes):
        super().__init__(inner, boxes)
        inner._allowed = frozenset()


@spoils("MSG-2")
class OperatorIsBarredToo(Box):
    async def send(self, *, to, **more):
        if self.inner._allowed and to not in self.inner._allowed:
            raise MessageRefused("you can write to otto and operator only, not to that name: choose one of them")
        return await self.inner.send(to=to, **more)


@spoils("MSG-2", "MSG-3", "SURF-6")
class RefusesWithoutAReason(Box):
    async def send(self, **more):
        try:
            return await self.inner.send(**more)
        except MessageRefused:
            raise MessageRefused("refused") from None


@spoils("MSG-2")
class StoresWhatItRefuses(Box):
    async def send(self, **more):
        try:
            return await self.inner.send(**more)
        except MessageRefused:
            self.inner._allowed, allowed = frozenset(), self.inner._allowed
            await self.inner.send(**more)
            self.inner._allowed = allowed
            raise


@spoils("MSG-3")
class UnknownNamesAreSwallowed(Box):
    async def send(self, **more):
        try:
            return await self.inner.send(**more)
        except MessageRefused as refused:
            if "no agent" in str(refused) or "reserved" in str(refused):
                return Sent(id=77)
            raise


@spoils("MSG-3")
class EmptyBodiesAreFilledIn(Box):
    async def send(self, *, body, **more):
        return await self.inner.send(body=body if body.strip() else "(empty)", **more)


@spoils("MSG-3")
class LongBodiesAreCut(Box):
    async def send(self, *, body, **more):
        return await self.inner.send(body=body[:100_000], **more)


@spoils("MSG-3")
class AnswersToAnythingAreTaken(Box):
    async def send(self, *, in_reply_to=None, **more):
        try:
            return await self.inner.send(in_reply_to=in_reply_to, **more)
        except MessageRefused:
            return await self.inner.send(**more)


@spoils("MSG-9")
class SendsTwiceInATurn(Box):
    async def send(self, *, turn_id=None, **more):
        return await self.inner.send(**more)


@spoils("MSG-9")
class NeverSendsTheSameAgain(Box):
    def __init__(self, inner, boxes):
        super().__init__(inner, boxes)
        self.seen = {}

    async def send(self, **more):
        key = (more["to"], more["body"], more["in_reply_to"])
        if more["turn_id"] is None:
            return await self.inner.send(**more)
        if key not in self.seen:
            self.seen[key] = await self.inner.send(**more)
        return self.seen[key]


@spoils("MSG-9")
class OneMessageATurn(Box):
    def __init__(self, inner, boxes):
        super().__init__(inner, boxes)
        self.seen = {}

    async def send(self, **more):
        if more["turn_id"] is None:
            return await self.inner.send(**more)
        if more["turn_id"] not in self.seen:
            self.seen[more["turn_id"]] = await self.inner.send(**more)
        return self.seen[more["turn_id"]]


# --- what is received


def _deliveries(received: Received, change: Callable[[Any], Any]) -> Received:
    return attrs.evolve(received, deliveries=tuple(change(delivery) for delivery in received.deliveries))


@spoils("MSG-11")
class EveryMessageIsItsOwnThread(Box):
    async def recv(self, **more):
        def alone(delivery):
            return attrs.evolve(delivery, message=attrs.evolve(delivery.message, thread_id=delivery.message.id))

        return _deliveries(await self.inner.recv(**more), alone)


@spoils("MSG-4")
class NewestFirst(Box):
    def __init__(self, inner, boxes):
        super().__init__(inner, boxes)
        self.held = []

    async def recv(self, *, limit, turn_id):
        while (received := await self.inner.recv(limit=5, turn_id=turn_id)).deliveries:
            self.held += received.deliveries
        given = self.held[::-1][:limit]
        self.held = self.held[: len(self.held) - len(given)]
        return Received(deliveries=tuple(given), remaining=len(self.held))


@spoils("MSG-4")
class MiscountsWhatIsLeft(Box):
    async def recv(self, **more):
        received = await self.inner.recv(**more)
        return attrs.evolve(received, remaining=received.remaining + len(received.deliveries))


@replaces("MSG-4")
def no_cap(patch):
    patch.setattr(_inbox_text, "RECV_CAP", 50)


@replaces("MSG-4")
def everything_at_once(patch):
    page = _messaging.InboxPage
    patch.setattr(_messaging, "InboxPage", lambda _wanted: page(5))


@replaces("MSG-4")
def no_time_is_shown(patch):
    patch.setattr(_inbox_text, "_utc", lambda _: "lately")


@replaces("MSG-4")
def a_cap_nobody_hears_of(patch):
    page = _messaging.InboxPage
    patch.setattr(_messaging, "InboxPage", lambda wanted: page(min(wanted, 5)))


@spoils("MSG-5")
class AcksWhatItPops(Box):
    async def recv(self, **more):
        received = await self.inner.recv(**more)
        for delivery in received.deliveries:
            await self.inner.ack_until(delivery.message.id)
        return received


@spoils("MSG-5")
class OnlyPeeks(Box):
    def __init__(self, inner, boxes):
        super().__init__(inner, boxes)
        self.shown = None

    async def recv(self, **more):
        if self.shown is None and (received := await self.inner.recv(**more)).deliveries:
            self.shown = received
        return self.shown or received


@spoils("MSG-5")
class DoesNotMarkWhatComesAgain(Box):
    async def recv(self, **more):
        return _deliveries(await self.inner.recv(**more), lambda delivery: attrs.evolve(delivery, attempt=1))


@spoils("MSG-5", "MSG-6")
class FailedTurnsAck(Box):
    async def close_turn(self, turn_id, *, acked, record):
        return await self.inner.close_turn(turn_id, acked=True, record=record)


@spoils("MSG-5")
class GoodTurnsGiveBack(Box):
    async def close_turn(self, turn_id, *, acked, record):
        return await self.inner.close_turn(turn_id, acked=False, record=record)


@replaces("MSG-5")
def late_runtimes_pop(patch):
    def turn_of(caller):
        open_turn = caller.services.turn_id
        return open_turn if caller.turn == str(open_turn) else None

    patch.setattr(_envelope, "_turn_of", turn_of)


def _with_max_deliveries(patch: pytest.MonkeyPatch, number: int) -> None:
    patch.setattr(hive_broker, "open_broker", partial(hive_broker.open_broker, max_deliveries=number))


@replaces("MSG-6")
def nothing_ever_dies(patch):
    _with_max_deliveries(patch, 1000)


@replaces("MSG-6")
def one_failure_is_death(patch):
    _with_max_deliveries(patch, 1)


@spoils("MSG-6")
class NobodyIsToldOfADeath(Box):
    async def recv(self, **more):
        received = await self.inner.recv(**more)
        kept = tuple(delivery for delivery in received.deliveries if delivery.message.sender != "system")
        return attrs.evolve(received, deliveries=kept)


# --- what is acked


@spoils("MSG-7")
class AcksForEverybody(Box):
    async def ack_until(self, up_to):
        acked = [await box.inner.ack_until(up_to) for box in self.others]
        return next(one for one, box in zip(acked, self.others, strict=True) if box is self)


@spoils("MSG-7")
class AcksOneTooFew(Box):
    async def ack_until(self, up_to):
        return await self.inner.ack_until(up_to - 1)


@spoils("MSG-7")
class AcksOneTooMany(Box):
    async def ack_until(self, up_to):
        return await self.inner.ack_until(up_to + 1)


@spoils("MSG-7")
class HidesWhatWasNeverRead(Box):
    async def ack_until(self, up_to):
        return attrs.evolve(await self.inner.ack_until(up_to), never_read=0)


@spoils("MSG-7")
class AcksInMemoryOnly(Box):
    async def ack_until(self, up_to):
        popped = 0
        while (await self.inner.summary()).unread and popped < up_to:
            popped += len((await self.inner.recv(limit=1)).deliveries)
        return Acked(acked=popped, never_read=popped)


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


__all__ = ["MUTANTS", *(f"open_{name}" for name in MUTANTS)]
