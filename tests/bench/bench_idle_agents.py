"""A hundred idle agents: start-up, memory and CPU, against a hive of one agent in the same run.

Each hive runs in a process of its own, so that memory is that process's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import trio

from hive import AgentSettings, HiveConfig, RuntimeConfig, open_hive

from .figures import ratio, say

AGENTS = 100
IDLE_SECONDS = 5.0


def run() -> None:
    """Measure and print."""
    one, many = measure(1), measure(AGENTS)
    nothing = many["imports_mib"]
    extra = (many["rss_mib"] - one["rss_mib"]) / (AGENTS - 1)
    say("start of 1 agent", one["start_seconds"], "s")
    say(f"start of {AGENTS} agents, first life", many["start_seconds"], "s", goal="goal: under 1.5 s")
    say(f"start of {AGENTS} agents, second life", many["restart_seconds"], "s", goal="goal: under 1.5 s")
    ratio(f"start of {AGENTS} agents over start of 1", many["start_seconds"], one["start_seconds"])
    say("memory of a process that only imported hive", nothing, "MiB")
    say("memory with 1 agent", one["rss_mib"], "MiB")
    say(f"memory with {AGENTS} agents", many["rss_mib"], "MiB")
    say("each agent above the first", extra, "MiB", goal="goal: under 1 MiB")
    ratio(f"memory with {AGENTS} agents over imports alone", many["rss_mib"], nothing)
    say(f"CPU while {AGENTS} agents idle", many["idle_cpu_percent"], "% of one", goal="goal: not measurable")
    say(f"stop of {AGENTS} idle agents", many["stop_seconds"], "s", goal="goal: under 2 s")


def measure(agents: int) -> dict[str, float]:
    """Run one hive in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.bench_idle_agents", folder, str(agents)],
            capture_output=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


async def _measure_here(folder: Path, agents: int) -> dict[str, float]:
    process = psutil.Process()
    command = folder / "never-started"
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(0o700)
    settings = AgentSettings(runtime=RuntimeConfig(command=str(command)))
    names = ["ruth", *(f"agent-{number}" for number in range(agents - 1))]
    config = HiveConfig(state_dir=folder / "state", agents=dict.fromkeys(names, settings))
    figures = {"imports_mib": process.memory_info().rss / 2**20}
    began = time.perf_counter()
    async with open_hive(config):
        figures["start_seconds"] = time.perf_counter() - began
        await trio.sleep(1)
        before = process.cpu_times()
        await trio.sleep(IDLE_SECONDS)
        after = process.cpu_times()
        busy = (after.user + after.system) - (before.user + before.system)
        figures["idle_cpu_percent"] = 100 * busy / IDLE_SECONDS
        figures["rss_mib"] = process.memory_info().rss / 2**20
        began = time.perf_counter()
    figures["stop_seconds"] = time.perf_counter() - began
    began = time.perf_counter()
    async with open_hive(config):
        figures["restart_seconds"] = time.perf_counter() - began
    return figures


if __name__ == "__main__":
    import hive._hive  # noqa: F401 - what every hive has imported before it starts

    print(json.dumps(trio.run(_measure_here, Path(sys.argv[1]), int(sys.argv[2]))))
