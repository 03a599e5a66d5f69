"""The state folder: room, modes, and what does not belong there.

Owns which files are nobody else's business (SEC-5) and how little room is too little.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import hive_broker
from hive._config import HiveConfig
from hive._paths import HivePaths

from ._findings import Finding, listed

__all__ = ["check_agents", "check_disk", "check_permissions"]

_TOO_LITTLE_BYTES = 100 * 1000 * 1000
"""Under this a hive is about to stop: a log, an event log and a session of an agent take as much in an hour."""

_LITTLE_BYTES = 1000 * 1000 * 1000
"""Under this somebody should clean up."""


def check_agents(paths: HivePaths, config: HiveConfig | None) -> Finding:
    """Whether every folder below ``agents`` is that of an agent."""
    if not paths.agents_dir.is_dir():
        return Finding.ok("agents", "none has a folder yet")
    entries = sorted(paths.agents_dir.iterdir())
    strange = [path for path in entries if not _is_agent_folder(path)]
    gone = [
        path.name for path in entries if path not in strange and config is not None and path.name not in config.agents
    ]
    wrong = []
    if strange:
        wrong.append(Finding.warning("agents", f"{listed(strange)}: no folder of an agent; move it away"))
    if gone:
        wrong.append(
            Finding.warning(
                "agents", f"folders of agents that are not in hive.toml: {', '.join(gone)}; add them, or move them away"
            )
        )
    names = ", ".join(path.name for path in entries)
    return Finding.worst("agents", wrong, otherwise=names or "none has a folder yet")


def _is_agent_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and hive_broker.is_agent_name(path.name)


def check_permissions(paths: HivePaths) -> Finding:
    """Whether nobody else can read mail, tokens and what the harness keeps, and all of it is one user's."""
    if not paths.state_dir.is_dir():
        return Finding.ok("permissions", f"{paths.state_dir} is not there yet: hive up makes it")
    owner = paths.state_dir.stat().st_uid
    private = dict(_looked_at(path for path in _private(paths) if not path.is_symlink()))
    foreign = [path for path, found in private.items() if found.st_uid != owner]
    open_to_others = [path for path, found in private.items() if found.st_mode & 0o077]
    wrong = []
    if open_to_others:
        wrong.append(Finding.failed("permissions", f"open to other users: {listed(open_to_others)}; chmod go= them"))
    if foreign:
        wrong.append(
            Finding.failed("permissions", f"of another user than {paths.state_dir}: {listed(foreign)}; chown them")
        )
    return Finding.worst("permissions", wrong, otherwise=f"{len(private)} files and folders, private")


def _looked_at(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """What is there, with what the system says of it; a running hive makes files and takes them away meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path, path.stat()


def _private(paths: HivePaths) -> Iterator[Path]:
    """What must have no bit for group and others: folders 0700, files 0600."""
    yield paths.state_dir
    for folder in (paths.broker_db.parent, paths.backups_dir, paths.tokens_dir):
        if folder.is_dir():
            yield folder
            yield from (path for path in folder.iterdir() if path.is_file())
    if paths.hive_json.exists():
        yield paths.hive_json
    if paths.agents_dir.is_dir():
        for agent in filter(_is_agent_folder, paths.agents_dir.iterdir()):
            for folder in (paths.agent_state_dir(agent.name), paths.agent_config_dir(agent.name)):
                if folder.is_dir():
                    yield folder
            harness = paths.agent_harness_dir(agent.name)
            if harness.is_dir():
                yield harness
                yield from (path for path in harness.iterdir() if path.is_file())


def check_disk(paths: HivePaths, database_bytes: int) -> Finding:
    """Whether there is room to go on, and for one more backup."""
    folder = paths.state_dir
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    shown = f"{free / 1e9:.1f} GB free for {paths.state_dir}"
    if free < _TOO_LITTLE_BYTES:
        return Finding.failed("disk", f"{shown}: free some before mail cannot be stored any more")
    if free < max(_LITTLE_BYTES, 2 * database_bytes):
        return Finding.warning("disk", f"{shown}: little for a database of {database_bytes / 1e9:.1f} GB; free some")
    return Finding.ok("disk", shown)
