"""What one agent is told when it starts.

Owns the values; where they come from (hive.toml, environment) is the hive's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

__all__ = ["AgentConfig", "ClaudeSettings"]

SESSION_TITLE = "hive-session"
"""The one session every turn resumes (TURN-3); ``HIVE_SESSION_TITLE`` names another."""


@attrs.frozen(kw_only=True)
class ClaudeSettings:
    """How the Claude CLI is started.

    Attributes:
        command: path or name of the CLI; None looks for the one in the ``hyperhive[claude]`` extra, then on PATH.
        model: ``--model``; None leaves the CLI's default.
        effort: ``--effort``; None leaves the CLI's default.
        env: added to the built environment; kept out of every ``repr`` since it may hold keys.
    """

    command: str | None = None
    model: str | None = None
    effort: str | None = None
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class AgentConfig:
    """One agent.

    Attributes:
        name: checked by the caller with ``hive_broker.is_agent_name``.
        state_dir: the agent's own folder and working directory.
        harness_dir: ours: session record, event log, the CLI's HOME.
        config_dir: what the operator gives the agent: ``prompt.md`` is added to its system prompt.
        claude: the runtime.
        session_title: the one session (TURN-3).
        grace_seconds: how long a running turn may go on after a stop was requested (STOP-2).
        turn_silence_seconds: a turn that prints nothing for so long is stalled (TURN-6).
        turn_total_seconds: no turn is longer than this.
        post_result_seconds: how long a process may live on after its result.
        rate_limit_sleep_seconds: the pause after a rate limit that names no time.
    """

    name: str
    state_dir: Path
    harness_dir: Path
    config_dir: Path
    claude: ClaudeSettings = attrs.field(factory=ClaudeSettings)
    session_title: str = SESSION_TITLE
    grace_seconds: float = 30.0
    turn_silence_seconds: float = 600.0
    turn_total_seconds: float = 3600.0
    post_result_seconds: float = 20.0
    rate_limit_sleep_seconds: float = 300.0
