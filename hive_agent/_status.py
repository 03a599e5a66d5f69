"""An agent's status line, kept as a plain file in its state folder, which is the agent's own (SELF-1)."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import final

from ._files import read_small_file

__all__ = ["MAX_STATUS_CHARACTERS", "StatusFile"]

MAX_STATUS_CHARACTERS = 200


@final
class StatusFile:
    """``<state>/hyperhive-status``: one line, or no file."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "hyperhive-status"

    def write(self, text: str) -> None:
        """Keep ``text``; ``""`` or blank clears it.

        Raises:
            ValueError: it is not one printable line of at most 200 characters; the old one stays.
            OSError: the file cannot be written.
        """
        text = text.strip()
        if len(text) > MAX_STATUS_CHARACTERS:
            raise ValueError(f"a status has at most {MAX_STATUS_CHARACTERS} characters, got {len(text)}: shorten it")
        if not all(map(_is_printable, text)):
            raise ValueError("a status is one line of printable text: take out line breaks and control characters")
        if not text:
            self._path.unlink(missing_ok=True)
            return
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        # Mode "x" follows no link: what it opens was not there before.
        with fresh.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
        fresh.replace(self._path)

    def read(self) -> tuple[str, float] | None:
        """Give the line and the unix seconds it was set at; None when there is none."""
        try:
            raw, set_at = read_small_file(self._path, limit_bytes=4 * MAX_STATUS_CHARACTERS + 1)
        except OSError:
            return None
        # The agent can write the file itself: whatever it wrote, one bounded line is shown.
        line = raw.decode("utf-8", "replace").strip().partition("\n")[0]
        shown = "".join(character if _is_printable(character) else " " for character in line).strip()
        return (shown[:MAX_STATUS_CHARACTERS], set_at) if shown else None


def _is_printable(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
