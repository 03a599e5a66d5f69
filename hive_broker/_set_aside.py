"""Keeps what the body of a context manager raised out of the exception groups of the nursery around it (EMBED-1)."""

from __future__ import annotations

from types import TracebackType
from typing import final

__all__ = ["SetAside"]


@final
class SetAside:
    """Takes what a block raised, cancellation too, to raise it again where no nursery puts it into a group."""

    def __init__(self) -> None:
        self._raised: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: TracebackType | None) -> bool:
        self._raised = raised
        return True

    def raise_again(self) -> None:
        """Raise what was taken, if anything was."""
        raised, self._raised = self._raised, None
        if raised is None:
            return
        try:
            raise raised
        finally:
            del raised  # its traceback holds this frame
