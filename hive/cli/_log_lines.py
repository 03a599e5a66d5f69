"""The log of a program of ours on stderr, readable by people.

Owns what of an error is shown, and that no log line ever costs more than itself.
"""

from __future__ import annotations

import copy
import logging
import sys
from typing import final

from typing_extensions import override

import hive_agent
import hive_broker
from hive._errors import HiveError

from ._outlet import Outlet

__all__ = ["set_up_logging"]

_FAULTS_OF_THE_WORLD = (OSError, HiveError, hive_agent.AgentError, hive_broker.BrokerError)
"""Their sentence says all there is; any other error is a bug of somebody's, and its traceback is what finds it."""


def set_up_logging(*, verbose: bool) -> None:
    """Show log lines on stderr: what is wrong, or with ``verbose`` all that is done and where an error came from."""
    handler = _Handler(Outlet(sys.stderr, gap=lambda lines: f"… {lines} lines of the log are lost\n"))
    handler.setFormatter(_Formatter(verbose=verbose))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    for stranger in ("mcp", "hypercorn"):
        # Their information is about each request; ours says the same once.
        logging.getLogger(stranger).setLevel(logging.WARNING)


@final
class _Handler(logging.Handler):
    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self._outlet = outlet

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as exc:  # noqa: BLE001 - a stranger's line with arguments that do not fit it
            text = f"a log line of {record.name} ({record.pathname}:{record.lineno}) cannot be put into words: {exc!r}"
        self._outlet.put(f"{text}\n")


@final
class _Formatter(logging.Formatter):
    def __init__(self, *, verbose: bool) -> None:
        super().__init__("%(asctime)s  %(levelname)s: %(message)s", datefmt="%H:%M:%S")
        self._verbose = verbose

    @override
    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or self._verbose or not _is_of_the_world(error) or _promises_more(record):
            return super().format(record)
        # A copy: other handlers show what they like.
        bare = copy.copy(record)
        bare.exc_info = bare.exc_text = None
        text, reason = super().format(bare), _sentence(error)
        return text if reason in text or repr(reason)[1:-1] in text else f"{text}: {reason}"


def _is_of_the_world(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(_FAULTS_OF_THE_WORLD)[1] is None
    return isinstance(error, _FAULTS_OF_THE_WORLD)


def _promises_more(record: logging.LogRecord) -> bool:
    """Whether somebody was told that the log has more under an id (SURF-6)."""
    return "error_id" in getattr(record, "fields", {}) or "error id" in record.getMessage()


def _sentence(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
