"""The claim on an agent's harness folder (TURN-4)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hive_agent import AgentRunning, own_harness

HOLD = (
    "import sys\n"
    "from pathlib import Path\n"
    "from hive_agent import own_harness\n"
    "with own_harness(Path(sys.argv[1]), name='ruth'):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


@pytest.mark.slow
def test_a_second_process_is_refused_by_pid_and_the_claim_dies_with_the_first(tmp_path: Path) -> None:
    """TURN-4: known as "a second hive-agent ends the turn of the first, and is only then refused"."""
    harness = tmp_path / "harness"
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(harness)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with first:
        assert first.stdout.readline() == "held\n"
        words = f"ruth is run by another process already \\(pid {first.pid}\\)"
        with pytest.raises(AgentRunning, match=words), own_harness(harness, name="ruth"):
            raise AssertionError("two at once")
        first.kill()
    with own_harness(harness, name="ruth"):
        assert (harness / "pid").read_text() == f"{os.getpid()}\n"


def test_one_process_does_not_run_an_agent_twice_either(tmp_path: Path) -> None:
    """TURN-4."""
    mine = own_harness(tmp_path, name="ruth")
    with mine, pytest.raises(AgentRunning, match=str(os.getpid())), own_harness(tmp_path, name="ruth"):
        raise AssertionError("two at once")
    with own_harness(tmp_path, name="ruth"):
        pass


def test_children_do_not_inherit_the_claim(tmp_path: Path) -> None:
    """TURN-4: a runtime that outlives its harness must not keep the next one out."""
    with own_harness(tmp_path, name="ruth"):
        child = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        with own_harness(tmp_path, name="ruth"):
            pass
    finally:
        child.kill()
        child.wait()
