"""Which CLI it is, asked of it with nothing at stake.

Owns one start with ``--version`` only: an empty home, none of our environment, and the switches that keep it off the
network. Blocks; knows no turn. ``hive doctor`` asks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from hive_agent._errors import RuntimeUnavailable

from ._claude import TRAFFIC_SWITCHES

__all__ = ["claude_version"]

_ANSWER_SECONDS = 20.0
"""It answers in a third of a second; a loaded machine may take long to read 200 MB for the first time."""

_SHOWN_CHARACTERS = 200
"""Of a line that may be anything."""


def claude_version(path: str) -> str:
    """Give what the CLI at ``path`` (from ``find_claude``) says of its version, in one line.

    Raises:
        RuntimeUnavailable: it cannot be started, fails, says nothing, or does not end.
    """
    with tempfile.TemporaryDirectory(prefix="hive-claude-") as home:
        environment = {"HOME": home, "PATH": os.environ.get("PATH", os.defpath), **TRAFFIC_SWITCHES}
        try:
            child = subprocess.Popen(
                [path, "--version"],
                cwd=home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as exc:
            raise RuntimeUnavailable(
                f"the Claude CLI {path} cannot be started ({exc.strerror}): install it again, or correct `command`"
            ) from exc
        with child:
            try:
                said, _ = child.communicate(timeout=_ANSWER_SECONDS)
            except subprocess.TimeoutExpired as exc:
                raise RuntimeUnavailable(
                    f"the Claude CLI {path} did not say its version within {_ANSWER_SECONDS:.0f} s: "
                    "try it by hand, and install it again if it hangs"
                ) from exc
            finally:
                if child.returncode is None:
                    os.killpg(child.pid, signal.SIGKILL)
    line = next(iter(said.decode(errors="replace").split("\n")), "").strip()[:_SHOWN_CHARACTERS]
    if child.returncode != 0 or not line:
        raise RuntimeUnavailable(
            f"the Claude CLI {path} must say its version, and ended with code {child.returncode} saying {line!r}: "
            f"try {Path(path).name} --version by hand, and install it again"
        )
    return line
