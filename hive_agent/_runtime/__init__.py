"""What runs an agent's model: the seam, and the Claude CLI behind it."""

from ._claude import ClaudeRuntime, find_claude
from ._port import McpServer, Run, RunLine, RunNote, RunReport, RunRequest, RunStarted, Runtime

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
    "find_claude",
]
