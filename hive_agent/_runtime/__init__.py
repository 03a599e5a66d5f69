"""What runs an agent's model: the seam, and the Claude CLI behind it."""

from ._claude import ClaudeRuntime, find_claude
from ._orphans import find_runtimes
from ._port import McpServer, Run, RunLine, RunNote, RunReport, RunRequest, RunStarted, Runtime
from ._version import claude_version

__all__ = [
    "ClaudeRuntime",
    "McpServer",
    "Run",
    "RunLine",
    "RunNote",
    "RunReport",
    "RunRequest",
    "RunStarted",
    "Runtime",
    "claude_version",
    "find_claude",
    "find_runtimes",
]
