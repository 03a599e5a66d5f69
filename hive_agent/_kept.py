"""What makes an agent's tools answer at the same URL with the same token after every restart (SURF-1, SURF-4).

Owns the two small files they are kept in; the hive keeps one port for all its agents, a lone agent its own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from hive_broker import get_logger

from ._errors import ListenerUnavailable
from ._files import read_small_file, write_private
from ._mcp import Listener, open_listener

__all__ = ["kept_token", "open_kept_listener"]

_log = get_logger("hive_agent")

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_LIMIT_BYTES = 256


def kept_token(path: Path) -> str:
    """Give the bearer token kept in ``path``, making it (0600) when there is none that can be used (SURF-5).

    Raises:
        OSError: it can be neither read nor made.
    """
    kept = _read(path)
    if _TOKEN.match(kept):
        return kept
    token = secrets.token_urlsafe(32)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, token + "\n")
    return token


@asynccontextmanager
async def open_kept_listener(path: Path, *, port: int = 0) -> AsyncIterator[Listener]:
    """A listener on ``port``, or for 0 on the one that was picked once and kept in ``path``.

    A kept port that somebody took meanwhile is given up for another one, with a warning: turns learn the URL anew each
    time, so moving beats not starting. A port that was asked for is not.

    Raises:
        ListenerUnavailable: the port that was asked for, or any, cannot be opened.
    """
    kept = _kept_port(path)
    async with AsyncExitStack() as stack:
        try:
            listener = await stack.enter_async_context(open_listener(port=port or kept))
        except ListenerUnavailable as exc:
            if port or not kept:
                raise
            _log.warning("the tools move to another port; clients that kept the URL must be told", error=str(exc))
            listener = await stack.enter_async_context(open_listener())
        if listener.port != kept:
            try:
                write_private(path, f"{listener.port}\n")
            except OSError as exc:
                _log.warning("the port cannot be kept, so the tools' URLs change at the next start", error=str(exc))
        yield listener


def _kept_port(path: Path) -> int:
    try:
        port = int(_read(path))
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0


def _read(path: Path) -> str:
    try:
        return read_small_file(path, limit_bytes=_LIMIT_BYTES)[0].decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
