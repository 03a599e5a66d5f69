"""Agents whose mail has one fault each: what is sent, received, acked."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from planting import Box, replaces, spoils

import hive_broker
from hive_agent._mcp import _envelope, _inbox_text, _messaging
from hive_broker import Acked, MessageRefused, Received, Sent, _flow

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
        except MessageRefused as exc:
            refused = exc
        self.inner._allowed, allowed = frozenset(), self.inner._allowed
        await self.inner.send(**more)
        self.inner._allowed = allowed
        raise refused


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


@replaces("MSG-10")
def no_budgets(patch):
    opened = hive_broker.open_broker
    patch.setattr(hive_broker, "open_broker", lambda path, *, budgets, **more: opened(path, **more))


@spoils("MSG-10")
class DropsWhatIsOverTheBudget(Box):
    async def send(self, **more):
        try:
            return await self.inner.send(**more)
        except MessageRefused as refused:
            if "within an hour" in str(refused):
                return Sent(id=77)
            raise


@spoils("MSG-10")
class TellsNobodyOfALoop(Box):
    async def send(self, **more):
        try:
            return await self.inner.send(**more)
        except MessageRefused as exc:
            refused = exc
        operator = self.inner._engine
        await operator.change(_forget_what_system_told_the_operator)
        raise refused


def _forget_what_system_told_the_operator(db):
    db.execute("DELETE FROM messages WHERE sender = 'system' AND recipient = 'operator'")
    return _flow.Done(None)


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
    async def close_turn(self, turn_id, *, acked, **more):
        return await self.inner.close_turn(turn_id, acked=True, **more)


@spoils("MSG-5")
class GoodTurnsGiveBack(Box):
    async def close_turn(self, turn_id, *, acked, **more):
        return await self.inner.close_turn(turn_id, acked=False, **more)


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
