"""Where this product's log lines go: structlog's bound fields on the standard library's loggers (ENV-1, EMBED-1).

Owns no configuration: an embedding program decides with ``logging`` what is shown, and sees nothing but warnings until
it does. The fields of a line stand in its text and, for handlers that want data, in the record's ``fields``.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog

__all__ = ["get_logger"]


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Give the logger of one room; ``name`` is that of a ``logging`` logger."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return logger


def _as_record(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """One line of the log as arguments of ``logging``: its words, its fields, its exception."""
    words = str(event.pop("event"))
    exc_info = event.pop("exc_info", None)
    fields = dict(event)
    shown = " ".join(f"{key}={value!r}" for key, value in fields.items())
    # A per cent sign in a field is no format: there are no arguments for it.
    text = f"{words}  {shown}" if shown else words
    return (text,), {"extra": {"fields": fields, "words": words}, "exc_info": exc_info}
