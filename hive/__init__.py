"""A hive: broker, agents and doors in one Trio nursery tree, embeddable with ``open_hive``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._config import AgentSettings, HiveConfig, Runs, RuntimeConfig, RuntimeKind, Sandbox
from ._config_file import load_config, parse_config
from ._errors import (
    ConfigInvalid,
    HiveError,
    HiveNotRunning,
    HiveUnavailable,
    HiveUnintelligible,
    HiveVanished,
    InitRefused,
    RequestRefused,
    SocketPathTooLong,
    SocketUnusable,
)
from ._hostsock import HostClient, open_host_client
from ._paths import HivePaths

if TYPE_CHECKING:
    from ._hive import AgentHappened, Hive, HiveEvent, open_hive

__all__ = [
    "AgentHappened",
    "AgentSettings",
    "ConfigInvalid",
    "Hive",
    "HiveConfig",
    "HiveError",
    "HiveEvent",
    "HiveNotRunning",
    "HivePaths",
    "HiveUnavailable",
    "HiveUnintelligible",
    "HiveVanished",
    "HostClient",
    "InitRefused",
    "RequestRefused",
    "Runs",
    "RuntimeConfig",
    "RuntimeKind",
    "Sandbox",
    "SocketPathTooLong",
    "SocketUnusable",
    "load_config",
    "open_hive",
    "open_host_client",
    "parse_config",
]

_RUNNING = frozenset({"AgentHappened", "Hive", "HiveEvent", "open_hive"})


def __getattr__(name: str) -> object:
    # Running a hive takes half a second of imports (MCP, HTTP); asking one something must not pay for them.
    if name not in _RUNNING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _hive

    return getattr(_hive, name)
