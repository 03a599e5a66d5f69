"""What ``hivectl`` shows a person: at 80 columns, and in a pipe without colour or cuts.

Owns layout only. All text of the hive's goes through ``on_terminal`` and is never markup.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hive._hostsock import AgentDetail, DeadLetters, HiveStatus, Inbox, Thread
from hive_broker import OPERATOR, Message

from ._text import age, on_terminal

__all__ = ["print_dead_letters", "print_inbox", "print_status", "print_thread"]

_NO_TERMINAL_COLUMNS = 1_000_000  # a pipe has no edge: one row stays one line, also the longest message's
_INDENT = "  "


def _console() -> Console:
    width = None if sys.stdout.isatty() else _NO_TERMINAL_COLUMNS
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def _text(text: str, style: str = "") -> Text:
    return Text(on_terminal(text), style=style, overflow="fold")


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def print_status(status: HiveStatus) -> None:
    """The hive in a line, its agents in a table, and below it whatever needs words."""
    console, now = _console(), time.time()
    up = age(now - status.started_at)
    line = _text(status.hive, "bold")
    line.append(f"  up {up}, pid {status.pid}, {_plural(status.operator_unread, 'unread message')} for you", "not bold")
    console.print(line)
    console.print(_agents_table(status.agents, now))
    for agent in status.agents:
        if agent.note is not None:
            console.print(_text(f"{agent.name}: {agent.note}", "yellow"))
    for warning in status.warnings:
        console.print(_text(f"warning: {warning}", "yellow"))


def _agents_table(agents: Sequence[AgentDetail], now: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("agent", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("unread", justify="right", no_wrap=True)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("last turn", overflow="fold")
    table.add_column("model", overflow="fold")
    table.add_column("status", overflow="fold")
    for agent in agents:
        table.add_row(
            _text(agent.name),
            _state(agent, now),
            str(agent.unread),
            str(agent.turns),
            _text(agent.last_outcome or ""),
            _text(agent.active_model or ""),
            _text(agent.status_text or ""),
        )
    return table


def _state(agent: AgentDetail, now: float) -> Text:
    if agent.failed:
        return Text("failed", "bold red")
    if not agent.running:
        return Text("stopped", "dim")
    if agent.needs_login:
        return Text("needs login", "bold yellow")
    if agent.paused:
        return Text("paused", "yellow")
    since = "" if agent.turn_state_since is None else f" {age(now - agent.turn_state_since)}"
    state = agent.turn_state or "running"
    return _text(f"{state}{since}", "" if state == "idle" else "green")


def print_inbox(inbox: Inbox) -> None:
    """An inbox, newest last, and how much of it is unread."""
    console = _console()
    yours = inbox.owner == OPERATOR
    _print_messages(console, inbox.messages, inbox.left_out, mark_unread=True)
    whose = "for you" if yours else f"for {on_terminal(inbox.owner)}"
    if not inbox.messages:
        console.print(f"no messages {whose}" if inbox.unread == 0 else f"no messages shown {whose}")
        return
    last = max(message.id for message in inbox.messages)
    hint = f"; when you have read them: hivectl ack {last}" if yours and inbox.unread else ""
    console.print(f"{inbox.unread} unread {whose}{hint}", style="dim")


def print_thread(thread: Thread) -> None:
    """A chain of replies, oldest first."""
    _print_messages(_console(), thread.messages, thread.left_out, mark_unread=False)


def print_dead_letters(found: DeadLetters) -> None:
    """Dead letters, newest last, and what can be done with one."""
    console = _console()
    if not found.messages:
        console.print("no dead letters")
        return
    _print_messages(console, found.messages, found.left_out, mark_unread=False)
    last = found.messages[-1].id
    hint = f"hivectl dead-letters requeue {last} hands it out again, hivectl dead-letters drop {last} puts it aside"
    console.print(hint, style="dim")


def _print_messages(console: Console, messages: Sequence[Message], left_out: int, *, mark_unread: bool) -> None:
    if left_out:
        console.print(f"({_plural(left_out, 'older message')} left out: too long for one answer)", style="dim")
    now = time.time()
    for message in messages:
        console.print(_heading(message, now, mark_unread=mark_unread))
        body = Text(on_terminal(message.body, lines=True), overflow="fold")
        for line in body.wrap(console, console.width - len(_INDENT)):
            console.print(_INDENT + line.plain.rstrip())
        console.print()


def _heading(message: Message, now: float, *, mark_unread: bool) -> Text:
    unread = mark_unread and message.acked_at is None and message.dead_at is None
    heading = Text("* " if unread else "", "bold yellow", overflow="fold")
    heading.append(f"#{message.id}", "bold")
    heading.append(f"  {on_terminal(message.sender)} -> {on_terminal(message.recipient)}", "cyan")
    heading.append(f"  {age(now - message.sent_at)} ago" if now - message.sent_at >= 1 else "  now", "dim")
    if message.in_reply_to is not None:
        heading.append(f"  answers #{message.in_reply_to}", "dim")
    if message.dropped_at is not None:
        heading.append("  dropped", "dim")
    if message.dead_at is not None:
        heading.append(f"  dead letter after {_plural(message.attempts, 'attempt')}", "bold red")
    return heading
