"""An agent's status line, kept as a plain file in its state folder (SELF-1)."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import final

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
        if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text):
            raise ValueError("a status is one line of printable text: take out line breaks and control characters")
        if not text:
            self._path.unlink(missing_ok=True)
            return
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(self._path)

    def read(self) -> tuple[str, float] | None:
        """Give the line and the unix seconds it was set at; None when there is none."""
        try:
            with self._path.open("rb") as file:
                text = file.read(4 * MAX_STATUS_CHARACTERS + 1).decode("utf-8", "replace")
            set_at = self._path.stat().st_mtime
        except OSError:
            return None
        # The agent can write the file itself: whatever it wrote, one bounded line is shown.
        line = text.partition("\n")[0].strip()[:MAX_STATUS_CHARACTERS]
        return (line, set_at) if line else None
