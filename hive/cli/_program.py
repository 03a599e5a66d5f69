"""How one of our programs is called by whoever reads our words.

Owns the choice between its name and its path: not everybody has activated the environment it is installed in.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

__all__ = ["program", "shown_path"]


def program(name: str) -> str:
    """``name`` where it is on PATH, else the path of the one beside the program that runs."""
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.exists() else shlex.quote(str(beside))


def shown_path(path: Path) -> str:
    """``path`` as it can be typed here: relative where it is below the current folder."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
