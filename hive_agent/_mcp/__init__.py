"""The MCP door of an agent: an HTTP listener and the built-in tools behind it."""

from __future__ import annotations

from ._listener import Listener, Mount, open_listener

__all__ = ["Listener", "Mount", "open_listener"]
