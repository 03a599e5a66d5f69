"""What can go wrong at an agent, by whose fault it is.

Owns the exception types and nothing else. Messages are lower case, say what must hold, what came, and what to do;
they never carry a message's body or a token.
"""

from __future__ import annotations

from typing import final

__all__ = [
    "AgentError",
    "AgentMisuse",
    "AgentRunning",
    "EventLogUnavailable",
    "ListenerUnavailable",
    "RuntimeUnavailable",
    "SettingsInvalid",
    "ToolRefused",
]


class AgentError(Exception):
    """Base of every error an agent raises on purpose; never raised itself.

    Raises:
        TypeError: when made directly: raise one of the leaves.
    """

    def __new__(cls, *args: object) -> AgentError:
        if cls is AgentError:
            raise TypeError("AgentError is a base: raise one of its leaves")
        return super().__new__(cls, *args)


@final
class AgentMisuse(AgentError):
    """The embedding program broke a rule of the API; nothing was changed."""


@final
class EventLogUnavailable(AgentError):
    """The event log cannot be read now: disk, lock, or a newer version's file. ``__cause__`` says which (BUS-1)."""


@final
class AgentRunning(AgentError):
    """Another process runs this agent; it was left alone, and so was everything of the agent (TURN-4)."""


@final
class ListenerUnavailable(AgentError):
    """The operating system did not let the listener open its port. ``__cause__`` is its word on it (SURF-1)."""


@final
class ToolRefused(AgentError):
    """A tool does not do what it was asked, and the sentence tells the model why and what to do (SURF-6)."""


@final
class SettingsInvalid(AgentError):
    """What ``hive-agent`` was told cannot be used; a line for everything that is wrong with it."""


@final
class RuntimeUnavailable(AgentError):
    """There is nothing to run a turn with; the sentence names the extra to install and the setting to change."""
