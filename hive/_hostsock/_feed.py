"""Changed agents' rows, one publisher to many subscribers.

Owns what a slow subscriber gets: the newest row of each agent that changed, so that its backlog never exceeds the
number of agents and nobody waits for it. Knows no socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import trio

from ._control import AgentStatusRow, AgentStatusStream

__all__ = ["AgentStatusFeed"]


@final
class AgentStatusFeed:
    """Where the hive publishes rows; a row equal to the agent's last one is not news."""

    def __init__(self) -> None:
        self._last: dict[str, AgentStatusRow] = {}
        self._subscribers: set[_Subscriber] = set()

    def publish(self, row: AgentStatusRow) -> None:
        """Tell every subscriber, without waiting for any."""
        if self._last.get(row.name) == row:
            return
        self._last[row.name] = row
        for subscriber in self._subscribers:
            subscriber.put(row)

    @contextmanager
    def subscribe(self) -> Iterator[AgentStatusStream]:
        """Rows that change from now on, until the block ends."""
        subscriber = _Subscriber()
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)


@final
class _Subscriber:
    def __init__(self) -> None:
        self._rows: dict[str, AgentStatusRow] = {}
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, row: AgentStatusRow) -> None:
        # Taken out first, so that an agent that changes all the time queues behind the others each time.
        self._rows.pop(row.name, None)
        self._rows[row.name] = row
        self._lot.unpark()

    async def next_row(self) -> AgentStatusRow:
        while not self._rows:
            await self._lot.park()
        return self._rows.pop(next(iter(self._rows)))
