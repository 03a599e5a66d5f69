"""One documented shape for what leaves a block that holds nurseries (EMBED-1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

__all__ = ["one_error"]


@contextmanager
def one_error() -> Iterator[None]:
    """Let a single error out of its exception groups; several leave as the group they came in.

    Cancellations beside an error are dropped: they are how the rest of the tree was ended because of it.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        errors = [exc for exc in _leaves(group) if not isinstance(exc, trio.Cancelled)]
        if len(errors) != 1:
            raise
        error = errors[0]
        # The group would be its context: it only repeats the error and the way it took.
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
            del error, errors


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for exc in group.exceptions:
        if isinstance(exc, BaseExceptionGroup):
            yield from _leaves(exc)
        else:
            yield exc
