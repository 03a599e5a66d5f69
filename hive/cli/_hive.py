"""``hive``: make a hive, and run it in the foreground.

Owns the command line and nothing behind it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import click

from ._group import CommandGroup, completion_help, fail, run_group
from ._program import program, shown_path
from ._text import on_terminal

__all__ = ["hive", "hive_main"]

_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


_config_option = click.option("--config", type=_FILE, help="The hive.toml.  [default: ./hive.toml]")
_state_option = click.option("--state", type=_FOLDER, help="The state folder, in place of a hive.toml.")


@click.group(cls=CommandGroup, epilog=completion_help("hive"))
@click.version_option(package_name="hyperhive", message="hive %(version)s")
def hive() -> None:
    """Run a hive of autonomous agents on this host; talk to it with hivectl."""


@hive.command()
@click.argument("folder", type=_FOLDER, default=Path())
def init(folder: Path) -> None:
    """Write a first hive.toml and its agents' roles into FOLDER (default: here)."""
    from hive._init import init_hive

    new = init_hive(folder)
    click.echo(f"Made {on_terminal(str(new.config))}, and two agents: {', '.join(new.prompts)}.")
    click.echo("Their roles are yours to write:")
    for prompt in new.prompts.values():
        click.echo(f"  {on_terminal(str(prompt))}")
    click.echo("Next:")
    if folder != Path():
        click.echo(f"  cd {on_terminal(shown_path(folder))}")
    click.echo("  export ANTHROPIC_API_KEY=…   or CLAUDE_CODE_OAUTH_TOKEN; agents need one to think")
    for words, purpose in (
        (f"{program('hive')} up", "in one terminal"),
        (f"{program('hivectl')} send ruth 'Hello'", "in another"),
        (f"{program('hivectl')} inbox", "to read what comes back"),
    ):
        click.echo(f"  {words:<28} {purpose}")


@hive.command()
@click.option("--config", type=_FILE, help="The hive.toml.  [default: ./hive.toml]")
@click.option("--demo", is_flag=True, help="Run a small hive on a scripted model: no account, no hive.toml.")
@click.option("--verbose", is_flag=True, help="Log more.")
@click.option("--json", "json_lines", is_flag=True, help="Log one JSON object a line.")
@click.pass_context
def up(ctx: click.Context, config: Path | None, *, demo: bool, verbose: bool, json_lines: bool) -> None:
    """Run the hive until Ctrl-C, SIGTERM or hivectl stop; a second signal hastens the stop."""
    if demo and config is not None:
        raise click.UsageError("--demo brings its own configuration; leave out --config or --demo")
    import hive_agent
    import hive_broker

    try:
        if demo:
            code = _run_demo(verbose=verbose, json_lines=json_lines)
        else:
            code = _run(config, verbose=verbose, json_lines=json_lines)
    except (hive_broker.BrokerError, hive_agent.AgentError) as exc:
        fail(ctx, exc)
    ctx.exit(code)


def _run_demo(*, verbose: bool, json_lines: bool) -> int:
    from hive._demo import run_demo

    return run_demo(Path("hive-demo").absolute(), verbose=verbose, json_lines=json_lines)


def _run(config: Path | None, *, verbose: bool, json_lines: bool) -> int:
    from hive._config_file import load_config
    from hive._up import run_up

    settings = load_config(config or Path("hive.toml"), environ=os.environ)
    return run_up(settings, verbose=verbose, json_lines=json_lines)


@hive.command()
@_config_option
@_state_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(ctx: click.Context, config: Path | None, state: Path | None, *, as_json: bool) -> None:
    """Look the hive over, running or not: what is well, what is not, and what to do. Changes nothing.

    Exits with 1 when something has failed.
    """
    from ._doctor import run_doctor

    ctx.exit(0 if run_doctor(config, state, as_json=as_json) else 1)


@hive.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_config_option
@_state_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def restore(ctx: click.Context, file: Path, config: Path | None, state: Path | None, *, as_json: bool) -> None:
    """Put the backup FILE (from hivectl backup) in the place of a stopped hive's mail.

    What is there now is kept beside it under another name.
    """
    import hive_broker

    from ._restore import run_restore

    try:
        run_restore(file, config, state, as_json=as_json)
    except hive_broker.BrokerError as exc:
        fail(ctx, exc)


def hive_main() -> NoReturn:
    """The program ``hive``."""
    run_group(hive, "hive")
