"""Which session an agent's turns continue (TURN-3).

Owns one small file in the harness folder. The session itself belongs to the CLI; this only remembers that it was made,
and under which id, so that a lost or doubled title heals.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import final

import attrs

from hive_agent._files import read_small_file, write_private

__all__ = ["Session", "SessionFile"]

_LIMIT_BYTES = 4096
"""Three short fields; a longer file is not ours."""


@attrs.frozen(kw_only=True)
class Session:
    """A session that exists as far as we know.

    Attributes:
        title: the name it was made with.
        id: the CLI's id of it.
        by_id: resume by the id, since the title does not lead to it any more.
    """

    title: str
    id: str
    by_id: bool = False


@final
class SessionFile:
    """The remembered session of one agent."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, title: str) -> Session | None:
        """Give the session made under ``title``; None when there is none, or the file cannot be understood."""
        try:
            kept = json.loads(read_small_file(self._path, limit_bytes=_LIMIT_BYTES)[0])
        except (OSError, ValueError, RecursionError):
            # Without it a turn asks the CLI for the title, which is what it would do anyway.
            return None
        match kept:
            case {"title": str(kept_title), "id": str(id_), "by_id": bool(by_id)} if kept_title == title:
                return Session(title=title, id=id_, by_id=by_id)
            case _:
                return None

    def write(self, session: Session) -> None:
        """Remember a session; a crash leaves the old file or the new one."""
        write_private(self._path, json.dumps(attrs.asdict(session)))

    def forget(self) -> None:
        """Remember none: the next turn makes a new one."""
        self._path.unlink(missing_ok=True)
