"""``run/hive.json``: what of a hive runs, and where it answers. Scripts and tests read it.

Owns the file's shape (version 1). It is written when everything in it answers and removed at a clean stop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from hive_broker import get_logger

from ._errors import HiveUnavailable
from ._paths import HivePaths

__all__ = ["AgentAddresses", "StateFile", "published", "unavailable"]

_log = get_logger("hive")


def _plain(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return dict(mapping)


@attrs.frozen(kw_only=True)
class AgentAddresses:
    """Where one agent answers.

    Attributes:
        mcp: server name to URL; none of an agent that runs outside of the hive.
        mcp_token_file: holds the bearer token of those URLs, None where there are none.
        todo_sock: None in this version.
        broker_sock: the socket of its mailbox (WAKE-2).
        web_url: None in this version.
        state_dir: the agent's own folder.
    """

    mcp: Mapping[str, str] = attrs.field(converter=_plain)
    mcp_token_file: str | None
    state_dir: str
    broker_sock: str
    todo_sock: str | None = None
    web_url: str | None = None


@attrs.frozen(kw_only=True)
class StateFile:
    """The whole file.

    Attributes:
        version: of this shape.
        pid: the hive's process.
        hive: its name.
        started_at: unix seconds.
        host_sock: the operator's socket.
        agents: by name, those that answer.
        web_url: None in this version.
        web_token_file: None in this version.
    """

    version: int = 1
    pid: int
    hive: str
    started_at: float
    host_sock: str
    agents: Mapping[str, AgentAddresses]
    web_url: str | None = None
    web_token_file: str | None = None


@contextmanager
def published(paths: HivePaths, current: Callable[[], StateFile]) -> Iterator[Callable[[], None]]:
    """Keep ``run/hive.json`` there, whole and private, for as long as the block lasts.

    Args:
        paths: of the hive.
        current: gives what the file must say.

    Raises:
        HiveUnavailable: it cannot be written at all. Later failures are logged, and cost nothing else.

    Yields:
        Call it when what the file must say has changed.
    """

    failed = False

    def refresh() -> None:
        nonlocal failed
        try:
            _write(paths.hive_json, current())
        except OSError as exc:
            # Who looks for addresses finds old ones for a while; that must not cost what runs (REL-3).
            if not failed:
                _log.warning("run/hive.json cannot be written; trying again at the next change", error=str(exc))
            failed = True
        else:
            failed = False

    try:
        _write(paths.hive_json, current())
    except OSError as exc:
        raise unavailable(paths.hive_json, exc) from exc
    try:
        yield refresh
    finally:
        try:
            paths.hive_json.unlink(missing_ok=True)
        except OSError as exc:
            _log.warning("run/hive.json of a hive that has ended stays behind", error=str(exc))


def unavailable(path: Path, exc: OSError) -> HiveUnavailable:
    """The error of a hive that cannot start because of one of its files."""
    return HiveUnavailable(
        f"{path} must be a file this user can write, got: {exc.strerror}; correct its owner and mode, or move it away"
    )


def _write(path: Path, state: StateFile) -> None:
    fresh = path.with_suffix(".new")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(attrs.asdict(state), indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)
