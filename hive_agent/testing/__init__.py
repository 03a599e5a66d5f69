"""Tools to test agents with: a scripted model for the real Claude CLI, and a mailbox and a runtime in memory.

`ScriptedModel` answers by rules and `open_scripted_model` serves it as the Anthropic Messages API on loopback, so that
a runtime runs end to end without an account. See docs/scripted-model.md.
"""

from hive_agent.testing._claude import claude_command, claude_test_environment
from hive_agent.testing._mailbox import MemoryMailbox, MemoryPost
from hive_agent.testing._model import Answer, ReplyFunction, Rule, ScriptedModel, ScriptFailed, Text
from hive_agent.testing._reply import (
    Reply,
    Step,
    Usage,
    call,
    cut,
    delay,
    fail,
    half,
    prompt_too_long,
    say,
    stall,
)
from hive_agent.testing._request import BadRequest, ModelRequest, ToolResult
from hive_agent.testing._runtime import MemoryRuntime, MemoryTurn
from hive_agent.testing._server import ServedModel, open_scripted_model

__all__ = [
    "Answer",
    "BadRequest",
    "MemoryMailbox",
    "MemoryPost",
    "MemoryRuntime",
    "MemoryTurn",
    "ModelRequest",
    "Reply",
    "ReplyFunction",
    "Rule",
    "ScriptFailed",
    "ScriptedModel",
    "ServedModel",
    "Step",
    "Text",
    "ToolResult",
    "Usage",
    "call",
    "claude_command",
    "claude_test_environment",
    "cut",
    "delay",
    "fail",
    "half",
    "open_scripted_model",
    "prompt_too_long",
    "say",
    "stall",
]
