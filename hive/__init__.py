"""A hive: broker, agents and doors in one Trio nursery tree, embeddable with ``open_hive``."""

from __future__ import annotations

from ._config import AgentSettings, HiveConfig, RuntimeConfig, RuntimeKind, Sandbox
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
from ._hive import AgentHappened, Hive, HiveEvent, open_hive
from ._hostsock import HostClient, open_host_client
from ._paths import HivePaths

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
