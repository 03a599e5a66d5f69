"""The tools for mail: ``send``, ``recv``, ``ack_until``.

Owns what they mean and say. The sender is always the calling agent (SURF-5). Knows no MCP and no storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from hive_agent._errors import ToolRefused
from hive_broker import BrokerClosed, BrokerUnavailable, MessageRefused, TurnOver

from ._inbox_text import STOP_SENDER, InboxPage, popped_from, stop_notice_text
from ._tool import Tool, ToolAnswer, ToolCall, argument

__all__ = ["ACK_UNTIL", "ANSWER_SECONDS", "RECV", "SEND"]

ANSWER_SECONDS = 60.0
"""How long a call waits for a broker that is away (SURF-4)."""


@attrs.frozen(kw_only=True)
class SendArguments:
    to: str = argument("Name of the agent to write to, or `operator` for the person in charge.", example="iris")
    body: str = argument("The message. Plain text or Markdown.", example="The build is green again.")
    in_reply_to: int | None = argument(
        "The number after `msg #` of the message you are answering, if any.", example=12, minimum=1, default=None
    )


@attrs.frozen(kw_only=True)
class RecvArguments:
    max: int | None = argument("How many messages to read: 1 to 5. Default 1.", example=5, minimum=1, default=None)


@attrs.frozen(kw_only=True)
class AckArguments:
    up_to: int = argument(
        "The highest number after `msg #` that you have dealt with; every message of yours up to it is marked.",
        example=12,
        minimum=1,
    )


async def _send(call: ToolCall, arguments: SendArguments) -> ToolAnswer:
    with _broker_in_words(nothing="stored"):
        sent = await call.services.mailbox.send(
            to=arguments.to, body=arguments.body, in_reply_to=arguments.in_reply_to, turn_id=call.turn_id
        )
    text = f"sent: message #{sent.id} to {arguments.to}"
    if sent.duplicate:
        text += f"\nthis is the same as #{sent.id} you sent earlier in this turn; no second message was made"
    return ToolAnswer(text=text, data={"id": sent.id, "to": arguments.to, "duplicate": sent.duplicate})


async def _recv(call: ToolCall, arguments: RecvArguments) -> ToolAnswer:
    page = InboxPage(arguments.max if arguments.max is not None else 1)
    trouble: str | None = None
    try:
        with _broker_in_words(nothing="taken from the inbox"):
            async with call.popped.lock:
                if (notice := call.services.stop_notice) is not None:
                    return _stop_answer(notice)
                await _fill(call, page)
    except ToolRefused as refused:
        if not page.parts:
            raise
        trouble = str(refused)
    # Nothing is awaited from the lock to the answer: a row counts as shown only if its caller is still there.
    if call.is_wanted():
        for part in page.parts:
            call.popped.mark_shown(call.turn_id, part.popped, seen=part.seen)
    return ToolAnswer(text=page.text(outside_turn=call.turn_id is None, trouble=trouble), data=page.data())


def _stop_answer(notice: str) -> ToolAnswer:
    message = {"id": 0, "from": STOP_SENDER, "body": notice}
    return ToolAnswer(text=stop_notice_text(notice), data={"messages": [message], "unread": None})


async def _fill(call: ToolCall, page: InboxPage) -> None:
    """Show what is waiting, then pop row by row: a row is popped only when this answer can show it."""
    mailbox = call.services.mailbox
    _require_turn(call)
    for waiting in call.popped.waiting(call.turn_id):
        if page.has_room:
            page.add(waiting)
    while page.has_room and page.unread != 0 and call.services.stop_notice is None:
        received = await mailbox.recv(limit=1, turn_id=call.turn_id)
        page.unread = received.remaining
        for delivery in received.deliveries:
            popped = popped_from(delivery)
            call.popped.add(call.turn_id, popped)
            page.add(popped)
        if not received.deliveries:
            break
    if page.unread is None:
        page.unread = (await mailbox.summary()).unread


def _require_turn(call: ToolCall) -> None:
    if call.turn_id is not None and call.turn_id != call.services.turn_id:
        raise TurnOver("ended while this call waited for another one")


async def _ack_until(call: ToolCall, arguments: AckArguments) -> ToolAnswer:
    with _broker_in_words(nothing="marked"):
        async with call.popped.lock:
            _require_turn(call)
            acked = await call.services.mailbox.ack_until(arguments.up_to)
            call.popped.forget(arguments.up_to)
    if acked.acked == 0:
        text = f"no open messages up to #{arguments.up_to}: there was nothing to mark as handled."
    else:
        text = f"marked {acked.acked} messages up to #{arguments.up_to} as handled; they will not come back."
        if acked.acked == 1:
            text = text.replace("1 messages", "1 message").replace("they will", "it will")
        if acked.never_read:
            text += f"\nnote: {acked.never_read} of them had never been read."
    data = {"acked": acked.acked, "never_read": acked.never_read, "up_to": arguments.up_to}
    return ToolAnswer(text=text, data=data)


@contextmanager
def _broker_in_words(*, nothing: str) -> Iterator[None]:
    """Bound the wait for the broker, and turn what it says into a sentence (SURF-4, SURF-6)."""
    try:
        with trio.fail_after(ANSWER_SECONDS):
            yield
    except MessageRefused as exc:
        raise ToolRefused(str(exc)) from exc
    except TurnOver as exc:
        raise ToolRefused(
            f"the turn this call belongs to is over, so nothing was {nothing}: stop here, the next turn goes on."
        ) from exc
    except (BrokerUnavailable, BrokerClosed) as exc:
        if isinstance(exc, BrokerUnavailable) and exc.may_be_done:
            raise ToolRefused(
                f"the message broker went away before it answered, so nobody knows whether something was {nothing}: "
                "try the very same call again later; within one turn that does nothing twice."
            ) from exc
        raise ToolRefused(
            f"the message broker is not available right now, so nothing was {nothing}: try the same call again later."
        ) from exc
    except trio.TooSlowError as exc:
        raise ToolRefused(
            f"the message broker did not answer within {ANSWER_SECONDS:.0f} seconds, so nothing was {nothing}: "
            "try the same call again later."
        ) from exc


SEND = Tool(
    name="send",
    title="Send a message",
    description=(
        "Send a message to another agent by its name, or to `operator`, the person who runs this system. It is stored "
        "before this returns, and the recipient reads it when it next looks at its inbox, so do not wait here for an "
        "answer: it arrives as a message of its own. Use in_reply_to to continue a conversation. Repeating the very "
        "same call in one turn is harmless: it makes no second message."
    ),
    input_type=SendArguments,
    handler=_send,
    idempotent=True,
)

RECV = Tool(
    name="recv",
    title="Read the inbox",
    description=(
        "Read the oldest unread messages of your inbox. Never waits. Each message begins with a line "
        "`[msg #<id>] from <sender> · <time> · thread #<n>`, followed by its text; the answer ends with how many are "
        "left. A message marked as redelivered may already have been dealt with in an earlier turn that did not end "
        "well: check before doing it twice. A message from `graceful-stop` means that you are about to be stopped: "
        "save what you need to your state folder and end your turn."
    ),
    input_type=RecvArguments,
    handler=_recv,
)

ACK_UNTIL = Tool(
    name="ack_until",
    title="Mark messages as handled",
    description=(
        "Mark every message in your inbox with an id up to and including up_to as handled, read or not, so that none "
        "of them is delivered again. Messages you read in a turn that ends well are marked by themselves: use this "
        "when many old messages were redelivered that you have already dealt with."
    ),
    input_type=AckArguments,
    handler=_ack_until,
    idempotent=True,
)
