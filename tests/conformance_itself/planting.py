"""How a fault is planted into this repository's agents, and which ids of the contract each must cost.

``--subject <module>:open_<name>`` opens an agent with one fault; the modules of mutants register theirs here.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import pytest

from conformance._own import open_own_subject

MUTANTS: list["Mutant"] = []
"""All of them, once their modules are imported."""


@attrs.frozen
class Mutant:
    """One fault.

    Attributes:
        name: what it does wrong.
        subject: for ``--subject``.
        ids: whose tests must fail with it.
    """

    name: str
    subject: str
    ids: tuple[str, ...]


class Box:
    """A mailbox that passes everything on; a mutant overrides what it spoils.

    Attributes:
        inner: the sound one.
        others: those of all agents, this one included.
    """

    def __init__(self, inner: Any, boxes: list["Box"]) -> None:
        self.inner = inner
        self.others = boxes
        boxes.append(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def spoils(*ids: str) -> Callable[[type[Box]], type[Box]]:
    """Make a mutant of a mailbox class."""

    def register(kind: type[Box]) -> type[Box]:
        def open_mutant() -> AbstractAsyncContextManager[Any]:
            boxes: list[Box] = []
            return open_own_subject(wrap=lambda mailbox: kind(mailbox, boxes))

        _register(kind, ids, open_mutant)
        return kind

    return register


def replaces(*ids: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], None]:
    """Make a mutant of a function that replaces pieces for as long as the subject is open."""

    def register(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
        @asynccontextmanager
        async def open_mutant():
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                async with open_own_subject() as subject:
                    yield subject

        _register(plant, ids, open_mutant)

    return register


def _register(fault: Any, ids: tuple[str, ...], open_mutant: Callable[[], Any]) -> None:
    opener = f"open_{fault.__name__}"
    setattr(sys.modules[fault.__module__], opener, open_mutant)
    MUTANTS.append(Mutant(fault.__name__, f"{fault.__module__}:{opener}", ids))
