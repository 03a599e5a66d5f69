"""The commands ``hive`` and ``hivectl``.

Importing this costs little: what a command needs beyond click is imported when it runs.
"""

from __future__ import annotations

from ._hive import hive_main
from ._hivectl import hivectl_main

__all__ = ["hive_main", "hivectl_main"]
