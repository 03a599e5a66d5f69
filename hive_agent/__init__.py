"""One agent: its turn loop, its runtime, its tools, its event log.

It sees a mailbox and a listener; it knows no other agent, no dashboard and no command line furniture.
"""

from __future__ import annotations

from ._agent import Agent, AgentSnapshot, run_agent
from ._config import AgentConfig, ClaudeSettings
from ._errors import (
    AgentError,
    AgentMisuse,
    AgentRunning,
    EventLogUnavailable,
    ListenerUnavailable,
    RuntimeUnavailable,
    ToolRefused,
)
from ._events import AgentEvent, EventKind, EventLog
from ._harness import own_harness
from ._kept import kept_token, open_kept_listener
from ._mcp import Listener, open_listener
from ._ports import Mailbox, ToolServices, WallClock
from ._runner import AgentNotice
from ._runtime import (
    ClaudeRuntime,
    McpServer,
    Run,
    RunLine,
    RunNote,
    RunReport,
    RunRequest,
    RunStarted,
    Runtime,
    claude_version,
    find_claude,
    find_runtimes,
)
from ._turn import Outcome, ParkReason, Signal, TurnState

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "AgentEvent",
    "AgentMisuse",
    "AgentNotice",
    "AgentRunning",
    "AgentSnapshot",
    "ClaudeRuntime",
    "ClaudeSettings",
    "EventKind",
    "EventLog",
    "EventLogUnavailable",
    "Listener",
    "ListenerUnavailable",
    "Mailbox",
    "McpServer",
    "Outcome",
    "ParkReason",
    "Run",
    "RunLine",
    "RunNote",
    "RunReport",
    "RunRequest",
    "RunStarted",
    "Runtime",
    "RuntimeUnavailable",
    "Signal",
    "ToolRefused",
    "ToolServices",
    "TurnState",
    "WallClock",
    "claude_version",
    "find_claude",
    "find_runtimes",
    "kept_token",
    "open_kept_listener",
    "open_listener",
    "own_harness",
    "run_agent",
]
