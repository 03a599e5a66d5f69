"""How much agents may write in an hour, so that an exchange that runs in circles ends (MSG-10).

Owns the counting, the refusal, and who is told what and when. Runs inside the transaction of a send; imports apsw only.
``_store.send`` asks it, and stores the notices that come of it.

Three budgets, because one alone is evaded. The pair's counts both directions together and ends A→B→A; in A→B→C→A every
side is such a pair; a ring of many sides, or a swarm, meets the hive's. The sender's is for one agent that writes to
everybody. What goes to the operator counts for its pair only: whatever agents did to each other, the person can be
told. The operator's own messages and the hive's are not counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime

import apsw
import attrs

from ._errors import MessageRefused
from ._queries import rows_of
from ._types import OPERATOR

__all__ = ["LoopBudgets", "Notice", "Verdict", "admit"]

_WINDOW_MINUTES = 60
"""The hour slides by the minute, the running minute included."""

_WARN_FIFTHS = 4
"""Fifths of a budget after whose use its sender is warned."""


@attrs.frozen(kw_only=True)
class LoopBudgets:
    """Messages of agents in an hour, at most (MSG-10).

    Attributes:
        pair_messages_per_hour: between two of them, both directions together; also to the operator.
        sender_messages_per_hour: of one of them to agents.
        hive_messages_per_hour: of all of them to agents.

    Raises:
        ValueError: one is below 1.
    """

    pair_messages_per_hour: int = attrs.field(default=120, validator=attrs.validators.ge(1))
    sender_messages_per_hour: int = attrs.field(default=600, validator=attrs.validators.ge(1))
    hive_messages_per_hour: int = attrs.field(default=3000, validator=attrs.validators.ge(1))


@attrs.frozen
class Notice:
    """A message that ``system`` has to send with this transaction."""

    to: str
    body: str


@attrs.frozen(kw_only=True)
class Verdict:
    """Whether a message may be sent, and what has to be said on the occasion."""

    refusal: MessageRefused | None = None
    notices: tuple[Notice, ...] = ()


@attrs.frozen(kw_only=True)
class _Budget:
    """One budget that a message draws on.

    Attributes:
        name: of its key in the configuration.
        scope: whose it is, in the store.
        limit: messages an hour.
        did: "<who> did what", for a sentence with a number behind it.
    """

    name: str
    scope: str
    limit: int
    did: str


@attrs.frozen(kw_only=True)
class _Use:
    """What was drawn from a budget within the hour.

    Attributes:
        sends: messages.
        room_at: unix seconds at which the next one is possible; None when it is now.
    """

    budget: _Budget
    sends: int
    room_at: int | None


def admit(db: apsw.Connection, *, budgets: LoopBudgets, now: float, sender: str, to: str) -> Verdict:
    """Count a message of a mailbox, or refuse it; whoever is concerned is told once, until use has halved (MSG-10)."""
    if sender == OPERATOR:
        return Verdict()
    minute = math.floor(now / 60)
    _forget(db, minute)
    uses = [_use(db, budget, minute) for budget in _drawn_on(budgets, sender, to)]
    for use in uses:
        if use.sends * 2 < use.budget.limit:
            db.execute("DELETE FROM loop_guard_told WHERE scope = ?", (use.budget.scope,))
    full = [use for use in uses if use.room_at is not None]
    if full:
        return _refused(db, max(full, key=lambda use: use.room_at or 0), now=now, sender=sender)
    return Verdict(notices=tuple(_counted(db, uses, minute=minute, sender=sender)))


def _drawn_on(budgets: LoopBudgets, sender: str, to: str) -> Iterator[_Budget]:
    low, high = sorted((sender, to))
    if sender == to:
        did = f"{sender} sent itself"
    elif to == OPERATOR:
        did = f"{sender} sent the operator"
    else:
        did = f"{low} and {high} sent each other"
    yield _Budget(
        name="pair_messages_per_hour", scope=f"pair {low} {high}", limit=budgets.pair_messages_per_hour, did=did
    )
    if to == OPERATOR:
        return
    yield _Budget(
        name="sender_messages_per_hour",
        scope=f"sender {sender}",
        limit=budgets.sender_messages_per_hour,
        did=f"{sender} sent agents",
    )
    yield _Budget(
        name="hive_messages_per_hour",
        scope="hive",
        limit=budgets.hive_messages_per_hour,
        did="all agents of this hive together sent each other",
    )


def _forget(db: apsw.Connection, minute: int) -> None:
    """Let go of what is older than the hour, and of what a clock that has been set back left in the future."""
    db.execute("DELETE FROM loop_guard_use WHERE minute <= ?", (minute - _WINDOW_MINUTES,))
    db.execute("DELETE FROM loop_guard_use WHERE minute > ?", (minute + 1,))


def _use(db: apsw.Connection, budget: _Budget, minute: int) -> _Use:
    sql = "SELECT minute, sends FROM loop_guard_use WHERE scope = ? AND minute > ? ORDER BY minute DESC"
    sends, full_since = 0, None
    for at, number in rows_of(db, sql, (budget.scope, minute - _WINDOW_MINUTES)):
        sends += number
        if full_since is None and sends >= budget.limit:
            full_since = at
    # Once this minute is out of the hour, what came after it is less than the budget.
    room_at = None if full_since is None else (full_since + _WINDOW_MINUTES) * 60
    return _Use(budget=budget, sends=sends, room_at=room_at)


def _refused(db: apsw.Connection, use: _Use, *, now: float, sender: str) -> Verdict:
    room_at = use.room_at or 0
    minutes = max(1, math.ceil((room_at - now) / 60))
    at = datetime.fromtimestamp(room_at, UTC).strftime("%H:%M UTC")
    what = f"{use.budget.did} {use.sends} messages within an hour, and {use.budget.limit} is the most"
    when = f"the next one is possible in {minutes} min, at {at}"
    refusal = MessageRefused(
        f"{what}: {when}. This one was not stored. If the exchange runs in circles, end it; else wait, and say more in "
        "one message. The operator has been told"
    )
    texts = {
        sender: f"A message of yours was refused: {what}; {when}. End your turn if there is nothing else to do.",
        OPERATOR: (
            f"The loop guard stopped {sender}: {what}; {when}. See with hivectl inbox --agent NAME what they write; "
            f"if that much is wanted, raise {use.budget.name}. You are told again once use had fallen below half of it."
        ),
    }
    notices = tuple(
        _notice(use, stage="stopped", sends=use.sends, to=name, agent=sender, room_at=use.room_at, text=text)
        for name, text in texts.items()
        if _is_news(db, use.budget.scope, "stopped", name)
    )
    return Verdict(refusal=refusal, notices=notices)


def _counted(db: apsw.Connection, uses: list[_Use], *, minute: int, sender: str) -> Iterator[Notice]:
    for use in uses:
        budget, sends = use.budget, use.sends + 1
        db.execute(
            """INSERT INTO loop_guard_use (scope, minute, sends) VALUES (?, ?, 1)
               ON CONFLICT (scope, minute) DO UPDATE SET sends = sends + 1""",
            (budget.scope, minute),
        )
        if sends * 5 >= budget.limit * _WARN_FIFTHS and _is_news(db, budget.scope, "warning", sender):
            text = (
                f"The loop guard warns: {budget.did} {sends} messages within an hour, and {budget.limit} is the most; "
                "further ones will be refused. If an exchange runs in circles or only says thanks, end it."
            )
            yield _notice(use, stage="warning", sends=sends, to=sender, agent=sender, room_at=None, text=text)


def _is_news(db: apsw.Connection, scope: str, stage: str, name: str) -> bool:
    sql = "INSERT INTO loop_guard_told (scope, stage, name) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
    return bool(rows_of(db, sql, (scope, stage, name)))


def _notice(use: _Use, *, stage: str, sends: int, to: str, agent: str, room_at: int | None, text: str) -> Notice:
    event = {
        "event": "loop_guard",
        "stage": stage,
        "agent": agent,
        "budget": use.budget.name,
        "limit": use.budget.limit,
        "sent": sends,
        "next_at": room_at,
        "text": text,
    }
    return Notice(to=to, body=json.dumps({key: value for key, value in event.items() if value is not None}))
