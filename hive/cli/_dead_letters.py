"""``hivectl dead-letters``: what nobody could finish, and what becomes of it (MSG-6).

Owns the command line and nothing behind it.
"""

from __future__ import annotations

from pathlib import Path

import click

from ._ask import as_json_option, call, message_id_type, print_answer
from ._text import on_terminal

__all__ = ["dead_letters"]

_limit_option = click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="The newest so many."
)
_before_option = click.option("--before", type=message_id_type, metavar="ID", help="Only older ones than this.")


@click.group("dead-letters", invoke_without_command=True)
@_limit_option
@_before_option
@as_json_option
@click.pass_context
def dead_letters(ctx: click.Context, limit: int, before: int | None, *, as_json: bool) -> None:
    """Show messages that were handed out too often without a good end, and requeue or drop them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, limit=limit, before=before, as_json=as_json)


@dead_letters.command("list")
@_limit_option
@_before_option
@as_json_option
@click.pass_obj
def list_(state: Path | None, limit: int, before: int | None, *, as_json: bool) -> None:
    """Show the dead letters of all inboxes, the newest last."""
    found = call(state, lambda client: client.dead_letters(limit=limit, before_id=before))

    def show() -> None:
        from ._render import print_dead_letters  # rich, which only tables need

        print_dead_letters(found)

    print_answer(found, as_json, show)


@dead_letters.command()
@click.argument("message_id", metavar="ID", type=message_id_type)
@as_json_option
@click.pass_obj
def requeue(state: Path | None, message_id: int, *, as_json: bool) -> None:
    """Put message ID back into its inbox as if it had never been handed out."""
    message = call(state, lambda client: client.requeue_dead_letter(message_id))
    shown = f"#{message.id} is unread again for {on_terminal(message.recipient)}"
    print_answer(message, as_json, lambda: click.echo(shown))


@dead_letters.command()
@click.argument("message_id", metavar="ID", type=message_id_type)
@as_json_option
@click.pass_obj
def drop(state: Path | None, message_id: int, *, as_json: bool) -> None:
    """Put message ID aside for good; it stays in its thread, marked as dropped."""
    message = call(state, lambda client: client.drop_dead_letter(message_id))
    shown = f"#{message.id} to {on_terminal(message.recipient)} is dropped; hivectl thread {message.id} still shows it"
    print_answer(message, as_json, lambda: click.echo(shown))
