"""``hive up --demo``: two agents and a scripted model, on the real Claude CLI, with no account.

Owns the script. The operator asks ruth, ruth asks iris, iris answers, ruth reports back; whatever the operator sends
afterwards goes the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

import hive_agent
import hive_broker
from hive_agent.testing import ModelRequest, Reply, ScriptedModel, call, open_scripted_model, say

from ._config import AgentSettings, HiveConfig, RuntimeConfig, Sandbox
from ._hive import AgentHappened, Hive
from ._up import Screen, hivectl_for, set_up_logging, up

__all__ = ["OPENING", "demo_config", "demo_model", "run_demo"]

OPENING = "Please ask iris for a haiku about queues, and send it to me."
"""The operator's first message."""

HAIKUS = (
    "One line, then the next.\nWhat was said waits to be read.\nNothing is forgotten.",
    "The box was switched off.\nIn the morning, still in line:\nevery word you sent.",
    "First in is first out.\nBetween two breaths of the disk\na promise is kept.",
)

_RECV, _SEND, _STATUS = "mcp__hyperhive__recv", "mcp__hyperhive__send", "mcp__hyperhive__set_status"
_ROW = re.compile(r"^\[msg #(?P<id>\d+)\] from (?P<sender>\S+).*\n(?P<body>(?:(?!^\[msg #).*\n?)*)", re.MULTILINE)

_END = re.compile(r"\n\n(?:no more unread messages\.|\d+ more unread: .*)\s*\Z")
"""What recv adds below the last message."""


@attrs.frozen
class _Row:
    id: int
    sender: str
    body: str


def demo_model() -> ScriptedModel:
    """The script of both agents."""
    model = ScriptedModel()
    model.when(tool_result=_RECV, system="You are ruth").reply(_ruth)
    model.when(tool_result=_RECV, system="You are iris").reply(_iris)
    model.when(tool_result=_SEND).reply(say("Done."))
    model.when(last_user="unread").reply(call(_RECV, max=5))
    model.otherwise(say("Nothing to do."))
    return model


def demo_config(state_dir: Path, base_url: str) -> HiveConfig:
    """The hive of the demo.

    Args:
        state_dir: its state folder.
        base_url: of the scripted model.
    """
    # Every way to a real account is closed, whatever is set where the demo is started.
    env = {
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "sk-ant-scripted-model",
        "ANTHROPIC_AUTH_TOKEN": "",
        "CLAUDE_CODE_OAUTH_TOKEN": "",
    }
    settings = AgentSettings(runtime=RuntimeConfig(env=env, grace_seconds=5), sandbox=Sandbox.NONE)
    return HiveConfig(name="demo", state_dir=state_dir, agents={"ruth": settings, "iris": settings})


def run_demo(state_dir: Path, *, verbose: bool, json_lines: bool) -> int:
    """Run the demo in the foreground until it is stopped; give the process's exit code.

    Args:
        state_dir: where it keeps its state; going on where an earlier demo ended is fine.
        verbose: log what the parts do.
        json_lines: print happenings as JSON objects.

    Raises:
        HiveError, hive_broker.BrokerError, hive_agent.AgentError: it cannot run.
    """
    set_up_logging(verbose=verbose)
    trio.run(_demo, state_dir, Screen(json_lines=json_lines))
    return 0


async def _demo(state_dir: Path, screen: Screen) -> None:
    async with open_scripted_model(demo_model()) as served:
        screen.say("a demo: the real Claude CLI, but a script answers instead of a model; no account is used\n")
        await up(demo_config(state_dir, served.base_url), screen, opening=partial(_open, screen))


async def _open(screen: Screen, hive: Hive) -> None:
    operator = hive.broker.mailbox(hive_broker.OPERATOR)
    reported = False
    with hive.watch() as happenings:
        sent = await operator.send(to="ruth", body=OPENING)
        async for event in happenings:
            match event:
                case hive_broker.MessageSent(message=message) if (
                    message.recipient == hive_broker.OPERATOR and message.thread_id == sent.id
                ):
                    # It is on the screen, so the operator has read it.
                    await operator.ack_until(message.id)
                    reported = True
                case AgentHappened(agent="ruth", event=happened) if (
                    reported and happened.kind is hive_agent.EventKind.TURN_END
                ):
                    break
                case _:
                    pass
    # The same event has woken the teller of the story: it speaks first.
    await trio.lowlevel.checkpoint()
    hivectl = hivectl_for(hive.config.state_dir)
    screen.say(
        "\nthat is the whole round: asked, passed on, answered, reported, and every message handled. Try\n"
        f"  {hivectl} send ruth 'Another one, please.'\n"
        f"  {hivectl} status\n"
        f"  {hivectl} inbox\n"
        "or press Ctrl-C to stop.\n"
    )


def _rows(request: ModelRequest) -> Sequence[_Row]:
    text = "\n".join(result.text for result in request.tool_results)
    return [_Row(int(row["id"]), row["sender"], _END.sub("", row["body"]).strip()) for row in _ROW.finditer(text)]


def _ruth(request: ModelRequest) -> Reply:
    rows = _rows(request)
    asked = [row for row in rows if row.sender == hive_broker.OPERATOR]
    answered = [row for row in rows if row.sender == "iris"]
    steps = [call(_SEND, to="iris", body=f"The operator writes: {row.body}", in_reply_to=row.id) for row in asked]
    steps += [
        call(_SEND, to=hive_broker.OPERATOR, body=f"iris writes:\n{row.body}", in_reply_to=row.id) for row in answered
    ]
    if not steps:
        return Reply(steps=[say("Nothing to do.")])
    waiting = "waiting for iris" if asked else "nothing left to do"
    return Reply(steps=[call(_STATUS, text=waiting), *steps])


def _iris(request: ModelRequest) -> Reply:
    steps = [
        call(_SEND, to=row.sender, body=HAIKUS[row.id // 3 % len(HAIKUS)], in_reply_to=row.id)
        for row in _rows(request)
        if row.sender == "ruth"
    ]
    return Reply(steps=steps or [say("Nothing to do.")])
