"""An inbox page as the model reads it.

Owns the head line, the end line and how long messages are divided over several answers. Pure; pops nothing.
"""

from __future__ import annotations

import datetime
import re
from typing import final

import attrs

from hive_broker import RECV_CAP, Delivery

from ._clamp import TEXT_LIMIT, cut, width
from ._popped import Popped

__all__ = ["STOP_SENDER", "InboxPage", "Part", "popped_from", "stop_notice_text"]

STOP_SENDER = "graceful-stop"
"""Who tells an agent to flush its notes and end the turn (STOP-1)."""

_END_WIDTH = 600
"""Kept free for the lines after the last message."""

_LEAST_ROOM = 2_000
"""A message is popped only when at least this much of it can be shown in the same answer."""

_SENDER_WIDTH = 80
"""A wake's label can be any string (WAKE-2); a head line stays one line."""

_LOOKS_LIKE_A_HEAD = re.compile(rf"^(?=\[msg #|from {STOP_SENDER}\b)", re.MULTILINE)


def popped_from(delivery: Delivery) -> Popped:
    """A delivery with its text made ready to show.

    A line of a body that reads like a head line is quoted, so that no message can pretend to be another (SURF-5).
    """
    text = _LOOKS_LIKE_A_HEAD.sub("> ", delivery.message.body)
    return Popped(message=delivery.message, attempt=delivery.attempt, text=text)


def stop_notice_text(notice: str) -> str:
    """The one message a fenced inbox gives: id 0, so there is no marker and nothing to ack (MSG-8, STOP-1)."""
    return f"from {STOP_SENDER}\n{notice}"


@attrs.frozen(kw_only=True)
class Part:
    """What one answer shows of one row: its text from ``popped.seen`` up to ``seen``."""

    popped: Popped
    shown: str
    seen: int

    @property
    def is_cut(self) -> bool:
        """Whether the row goes on in the next answer."""
        return self.seen < len(self.popped.text)


@final
class InboxPage:
    """One answer of ``recv``, filled row by row (MSG-4).

    Attributes:
        parts: what it shows so far.
        unread: rows left to pop, once known.
    """

    def __init__(self, wanted: int) -> None:
        self.parts: list[Part] = []
        self.unread: int | None = None
        self._wanted = wanted
        self._rows = min(wanted, RECV_CAP)
        self._room = TEXT_LIMIT - _END_WIDTH

    @property
    def has_room(self) -> bool:
        """Whether another row can be popped and be certain to be shown."""
        if self.parts and self.parts[-1].is_cut:
            return False
        return len(self.parts) < self._rows and self._room >= _LEAST_ROOM

    def add(self, popped: Popped) -> None:
        """Show as much of a row as fits."""
        room = self._room - width(_head(popped)) - _END_WIDTH // 4
        shown = cut(popped.text[popped.seen :], room)
        part = Part(popped=popped, shown=shown, seen=popped.seen + len(shown))
        self.parts.append(part)
        self._room -= width(_part_text(part)) + 2

    def text(self, *, outside_turn: bool, trouble: str | None) -> str:
        """The page in words."""
        blocks = [_part_text(part) for part in self.parts]
        blocks.append("\n".join(self._end_lines(outside_turn=outside_turn, trouble=trouble)))
        return "\n\n".join(blocks)

    def data(self) -> dict[str, object]:
        """The page as JSON."""
        return {"messages": [_part_data(part) for part in self.parts], "unread": self.unread}

    def _end_lines(self, *, outside_turn: bool, trouble: str | None) -> list[str]:
        lines = []
        if self._wanted > RECV_CAP:
            lines.append(f"max was {self._wanted}: one recv gives at most {RECV_CAP}.")
        if outside_turn and self.parts:
            highest = max(part.popped.message.id for part in self.parts)
            lines.append(
                "you are calling from outside a turn: unless you call ack_until, these messages come back to the "
                f"inbox later (the highest id here is {highest})."
            )
        if trouble is not None:
            lines.append(f"the next message could not be read: {trouble}")
        elif self.parts and self.parts[-1].is_cut:
            lines.append(f"call recv again for the rest of #{self.parts[-1].popped.message.id}.")
        if self.unread:
            lines.append(f"{self.unread} more unread: call recv again to read on.")
        elif self.unread == 0:
            lines.append("no more unread messages." if self.parts else "no unread messages.")
        return lines


def _part_text(part: Part) -> str:
    text = f"{_head(part.popped)}\n{part.shown}"
    if part.is_cut:
        left = len(part.popped.text) - part.seen
        text += f"\n[cut here: {left:,} more characters of #{part.popped.message.id} come with the next recv]"
    return text


def _head(popped: Popped) -> str:
    message = popped.message
    sender = " ".join(message.sender.split())
    if len(sender) > _SENDER_WIDTH:
        sender = sender[: _SENDER_WIDTH - 1] + "…"
    pieces = [f"from {sender}", _utc(message.sent_at), f"thread #{message.thread_id}"]
    if message.id > 0:
        pieces[0] = f"[msg #{message.id}] {pieces[0]}"
    if popped.attempt > 1:
        pieces.append(f"redelivered (attempt {popped.attempt})")
    if message.in_reply_to is not None:
        pieces.append(f"in reply to #{message.in_reply_to}")
    if popped.seen > 0:
        pieces.append(f"continued from character {popped.seen + 1:,} of {len(popped.text):,}")
    return " · ".join(pieces)


def _utc(unix_seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _part_data(part: Part) -> dict[str, object]:
    message = part.popped.message
    return {
        "id": message.id,
        "from": message.sender,
        "sent_at": message.sent_at,
        "thread_id": message.thread_id,
        "in_reply_to": message.in_reply_to,
        "attempt": part.popped.attempt,
        "body": part.shown,
        "begins_at": part.popped.seen,
        "characters_left": len(part.popped.text) - part.seen,
    }
