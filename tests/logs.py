"""What the product logged during a block, as data."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Keeper(logging.Handler):
    def __init__(self, lines: list[dict[str, Any]]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        line = {"event": record.words, "log_level": record.levelname.lower(), **record.fields}
        if record.exc_info:
            line["exc_info"] = record.exc_info
        self._lines.append(line)


@contextmanager
def captured_logs() -> Iterator[list[dict[str, Any]]]:
    """Every line of ``hive``, ``hive_agent`` and ``hive_broker`` while the block lasts, oldest first."""
    lines: list[dict[str, Any]] = []
    keeper = _Keeper(lines)
    loggers = [logging.getLogger(name) for name in ("hive", "hive_agent", "hive_broker")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(keeper)
        logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(keeper)
            logger.setLevel(level)
