"""The hive's admin socket: one JSON object a line (HOST-1).

Offers ``serve_host_socket`` to the hive, ``open_host_client`` to ``hivectl`` and to anyone's scripts, and the
``HiveControl`` port between the socket and what it controls.
"""

from __future__ import annotations

from ._client import HostClient, open_host_client
from ._control import (
    AgentDetail,
    AgentStatusRow,
    AgentStatusStream,
    DeadLetters,
    HiveControl,
    HiveStatus,
    Inbox,
    Thread,
)
from ._feed import AgentStatusFeed
from ._server import serve_host_socket
from ._wire import to_json

__all__ = [
    "AgentDetail",
    "AgentStatusFeed",
    "AgentStatusRow",
    "AgentStatusStream",
    "DeadLetters",
    "HiveControl",
    "HiveStatus",
    "HostClient",
    "Inbox",
    "Thread",
    "open_host_client",
    "serve_host_socket",
    "to_json",
]
