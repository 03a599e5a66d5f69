"""A bounded record of requests, and a way to wait for it to grow.

Owns the bounds. Called by ``_model``, which keeps one log for each kind of request.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

import trio

from hive_agent.testing._request import ModelRequest

__all__ = ["RequestLog"]

_KEEP_REQUESTS: Final = 10_000
"""A demo that runs for weeks forgets its first days."""

_KEEP_BYTES: Final = 64 * 1024 * 1024
"""Of bodies: a transcript comes again, longer, with each step."""


@final
class RequestLog:
    """The newest requests; the count goes on when the oldest are forgotten."""

    def __init__(self) -> None:
        self._requests: deque[ModelRequest] = deque()
        self._kept_bytes = 0
        self._total = 0
        self._news = trio.Event()

    @property
    def total(self) -> int:
        """How many were ever added."""
        return self._total

    def add(self, request: ModelRequest) -> None:
        """Remember one and forget what is over the bounds; the newest always stays."""
        self._total += 1
        self._requests.append(request)
        self._kept_bytes += len(request.raw)
        while len(self._requests) > 1 and (self._kept_bytes > _KEEP_BYTES or len(self._requests) > _KEEP_REQUESTS):
            self._kept_bytes -= len(self._requests.popleft().raw)
        self._news.set()
        self._news = trio.Event()

    def newest(self) -> tuple[ModelRequest, ...]:
        """What is remembered, oldest first."""
        return tuple(self._requests)

    async def wait_total(self, count: int) -> None:
        """Return as soon as ``count`` were added in all."""
        await trio.lowlevel.checkpoint()
        while self._total < count:
            await self._news.wait()
