"""What every command of ``hivectl`` does: find the hive, ask it one thing, print the answer.

Owns the options they share. Trio is imported when a command runs, so that completion and ``--help`` are quick.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

import click
from typing_extensions import override

if TYPE_CHECKING:
    from hive._hostsock import HostClient

    from ._find import FoundHive

__all__ = ["as_json_option", "call", "find", "message_id_type", "print_answer"]

T = TypeVar("T")

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""Every command has it (HOST-2)."""


@final
class _MessageId(click.ParamType[int]):
    """A message's number, with or without the ``#`` that listings print before it."""

    name = "number"

    @override
    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).removeprefix("#")
        if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
            self.fail(f"{value!r} is no message's number, such as 4", param, ctx)
        return int(text)


message_id_type = _MessageId()
"""A message's number."""


def find(state: Path | None) -> FoundHive:
    """The hive that is meant."""
    from ._find import find_hive

    return find_hive(state, environ=os.environ, folder=Path())


def call(state: Path | None, ask: Callable[[HostClient], Awaitable[T]]) -> T:
    """What ``ask`` gives, of the hive that is meant."""
    import trio

    from hive._hostsock import open_host_client

    found = find(state)

    async def main() -> T:
        async with open_host_client(found.host_sock) as client:
            return await ask(client)

    return trio.run(main)


def print_answer(found: object, as_json: bool, show: Callable[[], None]) -> None:
    """The answer as JSON, or as ``show`` shows it to a person."""
    if not as_json:
        return show()
    from hive._hostsock import to_json

    json.dump(to_json(found), sys.stdout, indent=2)
    sys.stdout.write("\n")
    return None
