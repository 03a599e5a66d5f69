"""The rows one agent's tools have popped and not yet shown in full.

A popped row is in flight: if the turn ends well it is acked, so a row whose answer never reached the caller, or was too
long for one answer, must come first in the next one (MSG-5). Owns that memory; pops nothing, knows no text limit.
"""

from __future__ import annotations

from typing import final

import attrs
import trio

from hive_broker import Message

__all__ = ["Popped", "PoppedRows"]

OUTSIDE_SECONDS = 120.0
"""How long a row popped outside a turn is remembered: with the minute a pop may take, and the minute the next answer
may, that is far below the lease of ten after which the row is the inbox's again (MSG-5)."""


@attrs.frozen(kw_only=True)
class Popped:
    """A popped row and how much of it the caller has seen.

    Attributes:
        message: the row.
        attempt: 1 for its first delivery.
        text: its body as it is shown.
        seen: characters of ``text`` already shown; 0 when the caller has seen nothing of the row.
        popped_at: when it was popped, by trio's clock.
    """

    message: Message
    attempt: int
    text: str
    seen: int = 0
    popped_at: float = attrs.field(factory=trio.current_time)


@final
class PoppedRows:
    """What is waiting to be shown, oldest first: for the current turn, and apart from it for callers outside any turn.

    Attributes:
        lock: held by whoever pops and shows, so that two calls of one agent do not show the same part twice; and by
            whoever acks, so that nothing is remembered that was acked meanwhile.
    """

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self._waiting: dict[int | None, dict[int, Popped]] = {}

    def waiting(self, turn_id: int | None) -> tuple[Popped, ...]:
        """What a call of this turn has to show first."""
        return tuple(self._rows(turn_id).values())

    def add(self, turn_id: int | None, popped: Popped) -> None:
        """Remember a row the moment it was popped; one that comes again, here or in another turn, begins anew."""
        for rows in self._waiting.values():
            rows.pop(popped.message.id, None)
        self._rows(turn_id)[popped.message.id] = popped

    def mark_shown(self, turn_id: int | None, popped: Popped, *, seen: int) -> None:
        """The caller is being given the text up to ``seen``."""
        rows = self._rows(turn_id)
        if seen >= len(popped.text):
            rows.pop(popped.message.id, None)
        else:
            rows[popped.message.id] = attrs.evolve(popped, seen=seen)

    def forget(self, up_to: int) -> None:
        """Rows with id <= ``up_to`` are acked: done with, shown or not (MSG-7)."""
        for turn_id, rows in self._waiting.items():
            self._waiting[turn_id] = {id_: popped for id_, popped in rows.items() if id_ > up_to}

    def unshown(self, turn_id: int) -> tuple[int, ...]:
        """Ids of the rows this turn popped of which no caller was given anything."""
        return tuple(id_ for id_, popped in self._waiting.get(turn_id, {}).items() if popped.seen == 0)

    def _rows(self, turn_id: int | None) -> dict[int, Popped]:
        """This turn's rows; what an earlier turn left is the broker's again, as is what was popped outside long ago."""
        if turn_id is not None:
            self._waiting = {key: rows for key, rows in self._waiting.items() if key in (None, turn_id)}
        else:
            oldest = trio.current_time() - OUTSIDE_SECONDS
            outside = self._waiting.get(None, {})
            self._waiting[None] = {id_: popped for id_, popped in outside.items() if popped.popped_at > oldest}
        return self._waiting.setdefault(turn_id, {})
