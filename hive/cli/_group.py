"""What ``hive`` and ``hivectl`` have in common: how errors leave them.

Owns the exit codes (0 done, 1 refused or failed, 2 usage, 3 no hive running). Knows no command.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn, final

import click
from typing_extensions import override

from hive._errors import HiveError, HiveNotRunning

from ._streams import OutputLost, prepare_streams
from ._text import on_terminal

__all__ = ["CommandGroup", "completion_help", "fail", "run_group"]

_FAILED = 1
_NO_HIVE = 3


@final
class CommandGroup(click.Group):
    """A group whose commands may raise our errors: their sentences go to stderr, without a traceback."""

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HiveError as exc:
            fail(ctx, exc, code=_NO_HIVE if isinstance(exc, HiveNotRunning) else _FAILED)


def fail(ctx: click.Context, exc: Exception, *, code: int = _FAILED) -> NoReturn:
    """Leave the program with the sentences of ``exc`` on stderr, and no traceback."""
    for sentence in str(exc).splitlines():
        click.echo(f"{ctx.find_root().info_name}: {on_terminal(sentence)}", err=True)
    ctx.exit(code)


def run_group(group: click.Group, name: str) -> NoReturn:
    """Run ``group`` as a program.

    A character the terminal cannot show is escaped, not fatal. An answer that cannot be written is an error, said in
    one sentence; to a reader that has gone, nothing is said.
    """
    prepare_streams()
    try:
        try:
            group.main(prog_name=name)
        except SystemExit:
            sys.stdout.flush()
            raise
    except OutputLost as exc:
        if not isinstance(exc.__cause__, BrokenPipeError):
            click.echo(f"{name}: {exc}; what was asked may have been done", err=True)
        sys.exit(_FAILED)


def completion_help(program: str) -> str:
    """How to have a shell complete ``program``, for the end of its help."""
    variable = f"_{program.upper()}_COMPLETE"
    return f'Completion: eval "$({variable}=bash_source {program})" in ~/.bashrc; zsh_source and fish_source likewise.'
