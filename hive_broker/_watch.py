"""Hands the flow of messages to whoever watches, and waits for nobody.

Owns the watchers' channels. Knows no storage; ``_engine`` publishes after each commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

import trio

from ._flow import FlowEvent

__all__ = ["Watchers"]

_WATCHER_EVENTS = 1024
"""Events a watcher may be behind: several batches; one that is further behind is not reading."""


@final
class Watchers:
    """The channels that are open now."""

    def __init__(self) -> None:
        self._channels: set[trio.MemorySendChannel[FlowEvent]] = set()

    @contextmanager
    def watch(self) -> Iterator[trio.MemoryReceiveChannel[FlowEvent]]:
        """A channel that gets every event published inside the block; it ends where its reader fell behind."""
        send, receive = trio.open_memory_channel[FlowEvent](_WATCHER_EVENTS)
        self._channels.add(send)
        try:
            with receive:
                yield receive
        finally:
            self._drop(send)

    def publish(self, flow: Sequence[FlowEvent]) -> None:
        """Give all events to all watchers, and close those that have no room."""
        for channel in tuple(self._channels):
            try:
                for event in flow:
                    channel.send_nowait(event)
            except (trio.WouldBlock, trio.BrokenResourceError):
                self._drop(channel)

    def close(self) -> None:
        """End all channels after what they hold."""
        for channel in tuple(self._channels):
            self._drop(channel)

    def _drop(self, channel: trio.MemorySendChannel[FlowEvent]) -> None:
        self._channels.discard(channel)
        channel.close()
