"""A new hive's files, from nothing (``hive init``).

Owns the text of the first hive.toml and of the first agents' roles. Overwrites nothing; what it writes, it could load.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

import hive_broker

from ._config_file import parse_config
from ._errors import ConfigInvalid, InitRefused

__all__ = ["NewHive", "init_hive"]

_CONFIG = """\
# A hive: agents that work by themselves and write to each other and to you.
# Start it with `hive up`. Every key that is set in a comment shows its default.

[hive]
name = "{name}"
state_dir = "hive-state"      # everything durable; relative paths are relative to this file
manager = "ruth"              # the agent that is told when another one crashes
# runtime_dir = "/run/user/1000/hive"   # for the socket, when the path of state_dir is too long for one
# mcp_port = 0                # the agents' listener on 127.0.0.1; 0 picks a free port once and keeps it
# pair_messages_per_hour = 120      # between two agents, before a runaway exchange is stopped; you are told
# sender_messages_per_hour = 600    # of one agent
# hive_messages_per_hour = 3000     # of all agents together

[runtime]                     # for every agent; [agents.<name>] may set any of these for itself
kind = "claude"
# command = "claude"          # the executable; unset takes the one that came with the installation
# model = "…"                 # unset leaves it to the runtime
# effort = "…"                # likewise
# grace_seconds = 30          # how long a running turn may go on once you asked for a stop
# turn_silence_seconds = 600  # a turn that says nothing for so long is ended
# turn_total_seconds = 3600   # a turn is ended after so long, whatever it does
# post_result_seconds = 20    # how long the process may stay after its result
# env = {{ ANTHROPIC_BASE_URL = "https://…" }}   # for the child process; merged name by name

[defaults]                    # likewise
# allowed_recipients = []     # whom an agent may write to beside you; empty: everybody
# sandbox = "auto"            # the best this version can do, which is none yet; "none" says that you know

[agents.ruth]

[agents.iris]
# allowed_recipients = ["ruth"]
"""

_ROLES: Mapping[str, str] = {
    "ruth": """\
You are ruth, the manager of this hive.

The operator tells you what is wanted. Break it into pieces that can be finished and checked on their own, give each to
a colleague with `send`, and say in the message what done looks like. iris is your colleague. Keep short notes in your
state folder about what is open and with whom, so that you can go on after a restart.

When a piece comes back, check it against what was asked. Report to `operator` when something is done, and when you need
a decision that is not yours; answer in the thread of the message you are answering (`in_reply_to`). Do not report that
nothing happened, and do not thank colleagues by message: every message starts somebody's turn.
""",
    "iris": """\
You are iris. You do the work that ruth or the operator sends you.

Read the whole message, do it, check it yourself, and answer its sender once, in its thread (`in_reply_to`): what you
did, how you checked it, what is left. If the task is unclear or cannot be done as asked, say so at once and ask one
precise question. Keep notes in your state folder if the work takes more than one turn.
""",
}


@attrs.frozen(kw_only=True)
class NewHive:
    """What ``init_hive`` made.

    Attributes:
        config: the hive.toml.
        prompts: the agents' roles, by name.
    """

    config: Path
    prompts: Mapping[str, Path]


def init_hive(folder: Path) -> NewHive:
    """Write a hive.toml with two agents into ``folder``, and their roles into its state folder (0700, files 0600).

    Raises:
        InitRefused: something is there already, or cannot be written; nothing was changed.
    """
    folder = folder.absolute()
    name = folder.name
    text = _CONFIG.format(name=name if hive_broker.is_agent_name(name) else "hive")
    try:
        paths = parse_config(text, base=folder).paths
    except ConfigInvalid as exc:
        raise InitRefused(f"a hive cannot be in {folder}: {'; '.join(exc.problems)}") from exc
    new = NewHive(config=folder / "hive.toml", prompts={agent: paths.agent_prompt(agent) for agent in _ROLES})
    files = {new.config: text, paths.state_dir / ".gitignore": "*\n"}
    files |= {new.prompts[agent]: role for agent, role in _ROLES.items()}
    there = [str(path) for path in files if os.path.lexists(path)]
    if there:
        raise InitRefused(f"a hive is there already: {', '.join(there)}; use it, or choose another folder")
    _write(files, folder)
    return new


def _write(files: Mapping[Path, str], folder: Path) -> None:
    made: list[Path] = []
    try:
        _make_folders(folder, 0o777, made)
        for path, text in files.items():
            _make_folders(path.parent, 0o700, made)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            made.append(path)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as exc:
        for path in reversed(made):
            path.rmdir() if path.is_dir() else path.unlink()
        why = f"{exc.strerror}: {exc.filename}"
        raise InitRefused(f"a hive cannot be made in {folder}: {why}; what was made is removed again") from exc


def _make_folders(folder: Path, mode: int, made: list[Path]) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent, mode, made)
    folder.mkdir(mode=mode)
    made.append(folder)
