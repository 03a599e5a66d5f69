"""Small files in folders that an agent can write to.

Whatever lies there may be a link, a pipe or a gigabyte, put there on purpose; whoever opens it for the whole hive must
not follow, wait or swell (SEC-4).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["read_small_file", "write_private"]

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_small_file(path: Path, *, limit_bytes: int) -> tuple[bytes, float]:
    """Give the first ``limit_bytes`` of a regular file, and the unix seconds of its last change.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is no regular file.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it must be a regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit_bytes), found.st_mtime
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, from its first instant on, whole or not at all.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    fresh.replace(path)
