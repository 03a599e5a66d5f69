"""``hivectl``: the operator's side of a running hive.

Owns the command line: one call of the admin socket a command, then a table for people or JSON for scripts. Trio and
the renderers are imported when a command runs, so that completion and ``--help`` are quick.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import click

from ._ask import as_json_option, call, find, message_id_type, print_answer
from ._dead_letters import dead_letters
from ._group import CommandGroup, completion_help, run_group
from ._text import on_terminal, size

__all__ = ["hivectl", "hivectl_main"]


@click.group(cls=CommandGroup, epilog=completion_help("hivectl"))
@click.version_option(package_name="hyperhive", message="hivectl %(version)s")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="The hive's state folder.  [default: $HIVE_STATE_DIR, or the hive that runs in this folder]",
)
@click.pass_context
def hivectl(ctx: click.Context, state: Path | None) -> None:
    """Talk to a running hive. Exit codes: 0 done, 1 refused or failed, 2 usage, 3 no hive is running."""
    ctx.obj = state


@hivectl.command()
@as_json_option
@click.pass_obj
def status(state: Path | None, *, as_json: bool) -> None:
    """Show the hive and its agents."""
    found = call(state, lambda client: client.hive_status())
    print_answer(found, as_json, lambda: _render().print_status(found))


@hivectl.command()
@click.argument("to")
@click.argument("body")
@click.option("--reply-to", type=message_id_type, metavar="ID", help="The message this answers.")
@as_json_option
@click.pass_obj
def send(state: Path | None, to: str, body: str, reply_to: int | None, *, as_json: bool) -> None:
    """Send BODY to the agent TO; with - as BODY, what comes on stdin."""
    text = _stdin_text() if body == "-" else body
    sent = call(state, lambda client: client.send(to=to, body=text, in_reply_to=reply_to))
    print_answer(sent, as_json, lambda: click.echo(f"sent #{sent.id} to {on_terminal(to)}"))


@hivectl.command()
@click.option("--agent", metavar="NAME", help="Look into this agent's inbox; nothing is popped.")
@click.option("--unread", is_flag=True, help="Only what is unread.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="The newest so many.")
@as_json_option
@click.pass_obj
def inbox(state: Path | None, agent: str | None, limit: int, *, unread: bool, as_json: bool) -> None:
    """Show the messages to you, the newest last. They stay unread until you ack them."""
    found = call(state, lambda client: client.inbox(agent=agent, limit=limit, unread_only=unread))
    print_answer(found, as_json, lambda: _render().print_inbox(found))


@hivectl.command()
@click.argument("message_id", metavar="ID", type=message_id_type)
@as_json_option
@click.pass_obj
def thread(state: Path | None, message_id: int, *, as_json: bool) -> None:
    """Show the whole exchange that message ID is part of."""
    found = call(state, lambda client: client.thread(message_id))
    print_answer(found, as_json, lambda: _render().print_thread(found))


@hivectl.command()
@click.argument("up_to", metavar="ID", type=message_id_type)
@as_json_option
@click.pass_obj
def ack(state: Path | None, up_to: int, *, as_json: bool) -> None:
    """Mark your messages up to and with ID as read."""
    acked = call(state, lambda client: client.ack(up_to))
    number = f"{acked.acked} message{'' if acked.acked == 1 else 's'}"
    print_answer(acked, as_json, lambda: click.echo(f"acked {number} up to #{up_to}"))


@hivectl.command()
@click.argument("name")
@as_json_option
@click.pass_obj
def restart(state: Path | None, name: str, *, as_json: bool) -> None:
    """Stop the agent NAME and start it again, also one that has failed."""
    call(state, lambda client: client.restart(name))
    print_answer({"restarting": name}, as_json, lambda: click.echo(f"restarting {on_terminal(name)}"))


@hivectl.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@as_json_option
@click.pass_obj
def backup(state: Path | None, file: Path | None, *, as_json: bool) -> None:
    """Write a backup of all mail to FILE (default: into backups/ of the state folder), while the hive works on.

    `hive restore` puts one back.
    """
    made = call(state, lambda client: client.backup(None if file is None else file.absolute()))
    number = f"{made.messages} message{'' if made.messages == 1 else 's'}"
    shown = f"backed up {number} to {on_terminal(made.path)} ({size(made.size_bytes)})"
    print_answer(made, as_json, lambda: click.echo(shown))


hivectl.add_command(dead_letters)


@hivectl.command()
@click.option("--now", is_flag=True, help="Do not let running turns finish; their messages are delivered again.")
@as_json_option
@click.pass_obj
def stop(state: Path | None, *, now: bool, as_json: bool) -> None:
    """Stop the whole hive, and wait until it is gone."""
    import trio

    from ._stop import stop_hive

    found = find(state)
    stopped = trio.run(partial(stop_hive, found, graceful=not now, tell=partial(click.echo, err=True)))
    rest = f"; its process (pid {stopped.pid}) goes on" if stopped.process_goes_on else ""
    print_answer(stopped, as_json, lambda: click.echo(f"hive {on_terminal(stopped.hive)} has stopped{rest}"))


def _stdin_text() -> str:
    from hive_broker import MAX_BODY_BYTES

    if sys.stdin is None:
        raise click.UsageError("there is no stdin to read a message from; give it as BODY")
    if sys.stdin.isatty():
        click.echo("type the message; Ctrl-D on a line of its own ends it", err=True)
    raw = sys.stdin.buffer.read(MAX_BODY_BYTES + 2)
    if len(raw) > MAX_BODY_BYTES + 1:
        raise click.UsageError(f"a message must have at most {MAX_BODY_BYTES} bytes, stdin has more")
    try:
        return raw.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as exc:
        raise click.UsageError(f"a message must be UTF-8, byte {exc.start} of stdin is not") from None


def _render() -> ModuleType:
    from . import _render  # rich, which only tables need

    return _render


def hivectl_main() -> NoReturn:
    """The program ``hivectl``."""
    run_group(hivectl, "hivectl")
