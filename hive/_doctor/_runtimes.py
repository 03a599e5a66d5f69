"""The processes of the agents' runtimes, and the program they are.

Owns what counts as left behind. Starts the CLI with ``--version`` and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import hive_agent
from hive._config import HiveConfig
from hive._paths import HivePaths

from ._findings import Finding

__all__ = ["check_claude", "check_runtimes"]


def check_runtimes(paths: HivePaths, owner: tuple[str, int] | None) -> Finding:
    """Whether runtimes run that no hive stands behind (TURN-4)."""
    home = paths.agents_dir.resolve()
    running = {
        Path(harness).parent.name: pids
        for harness, pids in hive_agent.find_runtimes().items()
        if Path(harness).is_relative_to(home)
    }
    shown = ", ".join(f"{agent} ({' '.join(map(str, pids))})" for agent, pids in sorted(running.items()))
    if owner is not None or not running:
        return Finding.ok("runtimes", f"running: {shown}" if running else "none is running")
    pids = " ".join(str(pid) for found in running.values() for pid in found)
    return Finding.failed(
        "runtimes", f"running without a hive: {shown}; the next hive up ends them, or end them yourself: kill {pids}"
    )


def check_claude(config: HiveConfig | None) -> Finding:
    """Whether there is a CLI to run turns with, for every agent."""
    commands = {None} if config is None else {settings.runtime.command for settings in config.agents.values()}
    found: list[str] = []
    wrong: list[Finding] = []
    for command in sorted(commands, key=str):
        try:
            path = hive_agent.find_claude(command)
            found.append(f"{hive_agent.claude_version(path)}, {path}")
        except hive_agent.RuntimeUnavailable as exc:
            wrong.append(Finding.failed("claude", str(exc)))
    return Finding.worst("claude", wrong, otherwise="; ".join(found))
