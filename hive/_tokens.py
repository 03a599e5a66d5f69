"""Secrets, one a file, made once and readable only by us (SURF-5, SEC-5)."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

__all__ = ["agent_token"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def agent_token(path: Path) -> str:
    """Give the token kept in ``path``, making it when there is none that can be used.

    A token outlives restarts, so that a client that has it needs no new one (SURF-4).

    Raises:
        OSError: it can be neither read nor made.
    """
    try:
        kept = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        kept = ""
    if _TOKEN.match(kept):
        return kept
    token = secrets.token_urlsafe(32)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")
    fresh.replace(path)
    return token
