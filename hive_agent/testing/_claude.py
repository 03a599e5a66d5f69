"""The real Claude CLI in a test: where it is, and an environment it can do no harm in.

Owns the refusals that keep a test off the network and out of a person's own settings. Starts nothing itself.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
from ipaddress import ip_address
from pathlib import Path
from typing import Final

__all__ = ["claude_command", "claude_test_environment"]

_BASE_URL: Final = re.compile(r"http://(?P<host>[0-9.]+|\[[0-9a-fA-F:]+\]|localhost)(?P<port>:[0-9]{1,5})?/?")
"""Strict on purpose: parsers disagree on user names and backslashes in a URL, and one reading may be a foreign host."""

_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}
"""Without any one of these the CLI looks up its vendor's hosts."""


def claude_command() -> str:
    """The path of the Claude CLI: the one in the package ``claude_agent_sdk``, else ``claude`` on the PATH.

    Raises:
        FileNotFoundError: there is neither; the sentence says what to install.
    """
    spec = importlib.util.find_spec("claude_agent_sdk")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder) / "_bundled" / "claude"
        if os.access(bundled, os.X_OK):
            return str(bundled)
    if found := shutil.which("claude"):
        return found
    raise FileNotFoundError("the claude CLI is not installed: pip install 'hyperhive[claude]', or put claude on PATH")


def claude_test_environment(home: Path, base_url: str) -> dict[str, str]:
    """The whole environment for a CLI that talks to nothing but ``base_url``; nothing is inherited but PATH.

    Args:
        home: an existing folder of its own, where the CLI keeps settings and sessions.
        base_url: `ServedModel.base_url`, or another ``http`` URL of this host's loopback.

    Raises:
        ValueError: ``base_url`` is not loopback, or ``home`` is the user's own or no folder.
    """
    if not _is_loopback(base_url):
        raise ValueError(
            f"base_url must be http on a loopback address, got {base_url!r}: "
            "pass the base_url of a served model, a test must not reach a real API"
        )
    if not home.is_absolute() or not home.is_dir():
        raise ValueError(f"home must be an existing folder with an absolute path, got {str(home)!r}: make one first")
    if home.resolve() in _own_homes():
        raise ValueError(f"home must not be the user's own, got {str(home)!r}: pass a temporary folder")
    return {
        **_QUIET,
        "ANTHROPIC_API_KEY": "sk-ant-scripted-model",
        "ANTHROPIC_BASE_URL": base_url,
        "CLAUDE_CODE_TMPDIR": str(home),  # else it leaves sockets and probes of killed runs in /tmp
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": os.environ.get("PATH", os.defpath),
    }


def _is_loopback(base_url: str) -> bool:
    match = _BASE_URL.fullmatch(base_url)
    if match is None:
        return False
    host = match["host"].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _own_homes() -> set[Path]:
    homes = set()
    if inherited := os.environ.get("HOME"):
        homes.add(Path(inherited).resolve())
    try:
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    except KeyError:
        return homes
    return homes
