"""Every id of the contract: what it is about, and why it has no test here where it has none (CONF-1).

Owns the list and the rule that it is honest in both directions. Pure; knows no test.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Set

import attrs

__all__ = ["MANIFEST", "Entry", "NotYet", "dishonesties"]


@attrs.frozen
class NotYet:
    """Why an id has no test here, and since when that is so."""

    since: datetime.date
    reason: str


@attrs.frozen(kw_only=True)
class Entry:
    """One id of the contract.

    Attributes:
        title: what it is about.
        not_yet: None exactly when the suite has a test for it.
    """

    title: str
    not_yet: NotYet | None = None


_FIRST_VERSION = datetime.date(2026, 12, 1)


def _tested(title: str) -> Entry:
    return Entry(title=title)


def _later(title: str, reason: str) -> Entry:
    return Entry(title=title, not_yet=NotYet(_FIRST_VERSION, reason))


_INSIDE = "cannot be seen from the built-in MCP surface; the tests beside the code hold it"
_UNBUILT = "not on the surface this version of the suite tries; its tests come with it"
_CLI = "needs the real Claude CLI; the end-to-end tests hold it"
_HOST_DOORS = "needs the operator's doors, which the suite does not drive yet"

MANIFEST: Mapping[str, Entry] = {
    "SURF-1": _tested("one URL for each agent, which stays"),
    "SURF-2": _tested("both protocol eras at that URL"),
    "SURF-3": _tested("plain text that fits, data for who asks"),
    "SURF-4": _tested("a restart loses no client"),
    "SURF-5": _tested("identity is the connection"),
    "SURF-6": _tested("a failure is one sentence"),
    "SURF-7": _later("the runtime's MCP configuration", _CLI),
    "MSG-1": _tested("send stores before it returns"),
    "MSG-2": _tested("allowed recipients"),
    "MSG-3": _tested("what send refuses"),
    "MSG-4": _tested("recv pops in order and says what is left"),
    "MSG-5": _tested("at least once, never again once acked"),
    "MSG-6": _tested("dead letters"),
    "MSG-7": _tested("ack_until"),
    "MSG-8": _tested("pings have no id"),
    "MSG-9": _tested("the same send twice in a turn is one message"),
    "MSG-10": _tested("loop guard"),
    "MSG-11": _tested("threads"),
    "INB-1": _later("loose ends", _UNBUILT),
    "INB-2": _later("cancelling a loose end", _UNBUILT),
    "INB-3": _later("reminders", _UNBUILT),
    "META-1": _later("facts about an agent", _UNBUILT),
    "SELF-1": _tested("the status line"),
    "SELF-2": _later("compaction asked for by the agent", _UNBUILT),
    "SELF-3": _later("todos marked as done", _UNBUILT),
    "SYS-1": _later("events of the hive as mail", _UNBUILT),
    "SYS-2": _later("who is told of them", _UNBUILT),
    "SYS-3": _later("lifecycle is no agent's mail", _UNBUILT),
    "PERM-1": _later("tool groups", _UNBUILT),
    "PERM-2": _later("groups set by the operator", _UNBUILT),
    "PERM-3": _later("the runtime's own tools", _CLI),
    "PERM-4": _later("one list for harness and subagents", _UNBUILT),
    "PERM-5": _later("capabilities", _UNBUILT),
    "TURN-1": _later("the turn's states", _INSIDE),
    "TURN-2": _later("waking without polling", _INSIDE),
    "TURN-3": _later("one process, one session", _CLI),
    "TURN-4": _later("never two runtimes of one agent", _CLI),
    "TURN-5": _later("outcomes and their rules", _INSIDE),
    "TURN-6": _later("watchdogs", _INSIDE),
    "TURN-7": _later("statistics of a turn", _INSIDE),
    "TURN-8": _later("budgets", _UNBUILT),
    "TURN-9": _later("pause", _UNBUILT),
    "STOP-1": _tested("the fenced inbox"),
    "STOP-2": _later("the grace of a running turn", _INSIDE),
    "STOP-3": _later("the order of the end", _INSIDE),
    "COMP-1": _later("compaction past the watermark", _UNBUILT),
    "COMP-2": _later("a prompt that is too long", _UNBUILT),
    "COMP-3": _later("compaction by the operator", _UNBUILT),
    "WAKE-1": _later("the todo socket", _UNBUILT),
    "WAKE-2": _later("the wake socket", _UNBUILT),
    "BUS-1": _later("the event log", _INSIDE),
    "BUS-2": _later("the agent's state over HTTP", _UNBUILT),
    "BUS-3": _later("history and stream of events", _UNBUILT),
    "BUS-4": _later("commands over HTTP", _UNBUILT),
    "ENV-1": _later("the envelope around a tool", _INSIDE),
    "BASH-1": _later("shell tasks", _UNBUILT),
    "BASH-2": _later("their completion", _UNBUILT),
    "SUB-1": _later("subagents", _UNBUILT),
    "SUB-2": _later("what a subagent gets", _UNBUILT),
    "EXT-1": _later("extra MCP servers", _UNBUILT),
    "SCREEN-1": _later("the screen", _UNBUILT),
    "SCHED-1": _later("schedules", _UNBUILT),
    "APPR-1": _later("the queue of approvals", _UNBUILT),
    "APPR-2": _later("an agent's configuration as proposals", _UNBUILT),
    "HOST-1": _later("the admin socket", _HOST_DOORS),
    "HOST-2": _later("hivectl", _HOST_DOORS),
    "HOST-3": _later("choom", _UNBUILT),
    "HOST-4": _later("isolation", _UNBUILT),
    "HOST-5": _later("crash watch", _HOST_DOORS),
    "HOST-6": _later("the container's entry point", _UNBUILT),
    "DASH-1": _later("the dashboard", _UNBUILT),
    "DASH-2": _later("its login", _UNBUILT),
    "PAGE-1": _later("the agent's page", _UNBUILT),
    "SWARM-1": _later("notices to the swarm", _UNBUILT),
    "SWARM-2": _later("mail between hives", _UNBUILT),
    "MATRIX-1": _later("Matrix", _UNBUILT),
    "FORGE-1": _later("forge notifications", _UNBUILT),
    "EMBED-1": _later("a hive inside a program", "is an interface of one implementation, not of the contract's doors"),
    "CONF-1": _later("this suite", "it cannot judge itself: its own tests plant faults; the official suite needs Node"),
    "REL-1": _later(
        "kill -9 at any instant", "the suite kills between calls only; the broker's tests kill within them"
    ),
    "REL-2": _later("one hive on one state", _HOST_DOORS),
    "REL-3": _later("bad disks and clocks", _INSIDE),
    "REL-4": _tested("no peer ends or swells anything"),
    "REL-5": _tested("ids are never reused"),
    "SEC-1": _later("loopback only", "SURF-1 holds it for this door; other doors are not driven yet"),
    "SEC-2": _later("credentials out of reach", _UNBUILT),
    "SEC-3": _later("egress", _UNBUILT),
    "SEC-4": _later("names and paths from agents", _INSIDE),
    "SEC-5": _later("no secrets in logs", _INSIDE),
}
"""In the contract's order."""


def dishonesties(manifest: Mapping[str, Entry], marked: Set[str]) -> list[str]:
    """What is wrong between the manifest and the ids on tests, a sentence each; nothing when they agree.

    Args:
        manifest: id to entry.
        marked: ids of all tests of the whole suite.
    """
    wrong = [f"{id_} is marked on a test but is no id of the contract: correct it" for id_ in marked - manifest.keys()]
    for id_, entry in manifest.items():
        if entry.not_yet is None and id_ not in marked:
            wrong.append(f"{id_} has neither a test nor a reason why not yet: write one of them")
        if entry.not_yet is not None and id_ in marked:
            wrong.append(f"{id_} has a test and still a reason why not yet: remove the reason")
    return sorted(wrong)
