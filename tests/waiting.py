"""Waiting for what another process does: there is no event to wait for, so this looks again and again, bounded."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import trio


async def eventually(condition: Callable[[], Any], *, seconds: float = 10.0) -> None:
    """Return once ``condition()``, sync or async, holds."""
    with trio.fail_after(seconds):
        while True:
            holds = condition()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            await trio.sleep(0.02)
