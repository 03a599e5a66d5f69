"""The words the harness says to the model: who it is, and why it was woken.

Owns sentences only (TURN-3); every one of them is user interface for a model that has never seen a hive.
"""

from __future__ import annotations

from hive_broker import InboxSummary

__all__ = ["STOP_NOTICE", "system_prompt", "wake_prompt"]

STOP_NOTICE = (
    "This hive is stopping. Write what you must not lose to files in your working directory now, then end your turn. "
    "Your inbox is closed until the next start; no message is lost."
)
"""What ``recv`` says while the inbox is fenced (STOP-1)."""

_SENDERS_NAMED = 5

_SENDER_CHARACTERS = 63
"""As long as an agent's name may be. The label of a wake can be anything that a process in the agent's box wrote."""

_LOST_TURN_CHARACTERS = 400

_SYSTEM = """\
You are {name}, an agent in a hive: a group of agents on one machine that write messages to each other and to \
the operator, a person.

How you work:
- You are woken for a turn when there is something to do. Between turns you do not run.
- Read your inbox with mcp__hyperhive__recv until it says that nothing is left, and act on what you read.
- Nobody sees what you write in your reply. To tell anybody anything, use mcp__hyperhive__send with the name of an \
agent or "operator"; put the number of the message you answer into in_reply_to.
- A message you read counts as handled when your turn ends well. If a turn fails, its messages come back marked as \
redelivered: check what you have already done before doing it again.
- There is no waiting inside a turn. When you need an answer, end your turn: the answer will wake you.
- Do not answer a message that only thanks or confirms.
- Your working directory is yours and stays as it is between turns: keep notes there.
- mcp__hyperhive__set_status shows one line about what you are doing to the operator.
"""


def system_prompt(name: str, role: str | None) -> str:
    """What is added to the CLI's own system prompt.

    Args:
        name: the agent.
        role: what the operator wrote about this agent's work, or None.
    """
    text = _SYSTEM.format(name=name)
    return f"{text}\nYour role:\n{role.strip()}\n" if role and role.strip() else text


def wake_prompt(summary: InboxSummary, *, lost_turn: str | None = None) -> str:
    """What a turn begins with: who woke it, and how much there is to read.

    Args:
        summary: the inbox as it is now.
        lost_turn: how the last turn ended when it did not end well, in words.
    """
    lines = [_unread_line(summary)]
    if summary.redelivered:
        lines.append(
            f"{_count(summary.redelivered, 'of them was', 'of them were')} read in an earlier turn that did not end "
            "well, and may be half done."
        )
    if lost_turn:
        lines.append(f"Your last turn did not end well: {_one_line(lost_turn, _LOST_TURN_CHARACTERS).rstrip('.')}.")
    lines.append("Read your inbox with mcp__hyperhive__recv and act on what you find.")
    return "\n".join(lines)


def _unread_line(summary: InboxSummary) -> str:
    if not summary.unread:
        return "You have no unread messages."
    named = summary.senders[:_SENDERS_NAMED]
    shown = [_one_line(sender, _SENDER_CHARACTERS) + (f" ({count})" if count > 1 else "") for sender, count in named]
    if (more := len(summary.senders) - len(shown)) > 0:
        shown.append(f"{more} more")
    return f"You have {_count(summary.unread, 'unread message', 'unread messages')}, from {', '.join(shown)}."


def _one_line(text: str, limit_characters: int) -> str:
    # Others' words stand inside a sentence of ours: they must not look like more of our sentences.
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= limit_characters else line[: limit_characters - 1] + "…"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
