"""From a typed request to the payload of its answer.

Owns which method of ``HiveControl`` a verb is, the check that the agents it names are managed, and what is said of
verbs this version has no answer for. Knows no socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

import attrs

from hive._errors import RequestRefused
from hive._structure import nearest

from ._control import DeadLetters, HiveControl, Inbox, Thread
from ._requests import (
    Ack,
    AgentStatus,
    Backup,
    DropDeadLetter,
    ListAgents,
    ListDeadLetters,
    LookIntoInbox,
    NotInThisVersion,
    Request,
    RequeueDeadLetter,
    Restart,
    Scope,
    Send,
    ShowThread,
    Shutdown,
    Start,
    Status,
    Stop,
    SubscribeAgentStatus,
    Urls,
)
from ._wire import messages_that_fit, to_json

__all__ = ["carry_out"]

Payload = Mapping[str, object]

_DONE: Payload = {}


async def carry_out(control: HiveControl, request: Request) -> Payload:
    """Do what ``request`` asks, and give the payload of the answer.

    Raises:
        RequestRefused: with the sentence for the operator.
    """
    match request:
        case ListAgents():
            return {"agents": list(await control.list_agents())}
        case AgentStatus():
            return {"agent_statuses": [to_json(row) for row in await control.agent_status()]}
        case SubscribeAgentStatus():
            return _DONE
        case Urls():
            return {"urls": {}}
        case Start() | Stop() | Restart():
            return await _move(control, request)
        case Status():
            return {"status": to_json(await control.hive_status())}
        case Send() | LookIntoInbox() | Ack() | ShowThread():
            return await _messages(control, request)
        case ListDeadLetters() | RequeueDeadLetter() | DropDeadLetter():
            return await _dead_letters(control, request)
        case Backup():
            path = None if request.path is None else Path(request.path)
            return {"backup": to_json(await control.backup(path))}
        case Shutdown():
            await control.shutdown(graceful=request.graceful)
            return _DONE
        case NotInThisVersion():
            raise RequestRefused(f"{request.verb} is not available in this version")
        case _:
            assert_never(request)


async def _move(control: HiveControl, request: Start | Stop | Restart) -> Payload:
    match request:
        case Start():
            await control.start(await _scoped(control, request.scope))
        case Stop():
            await control.stop(await _scoped(control, request.scope), graceful=request.graceful)
        case Restart():
            await _require_managed(control, request.name)
            await control.restart(request.name)
    return _DONE


async def _messages(control: HiveControl, request: Send | LookIntoInbox | Ack | ShowThread) -> Payload:
    match request:
        case Send():
            sent = await control.send(to=request.to, body=request.body, in_reply_to=request.in_reply_to)
            return {"sent": to_json(sent)}
        case LookIntoInbox():
            if request.agent is not None:
                await _require_managed(control, request.agent)
            inbox = await control.inbox(agent=request.agent, limit=request.limit, unread_only=request.unread)
            return {"inbox": _fitted(inbox)}
        case Ack():
            return {"acked": to_json(await control.ack(request.up_to))}
        case ShowThread():
            return {"thread": _fitted(await control.thread(request.id))}


async def _dead_letters(control: HiveControl, request: ListDeadLetters | RequeueDeadLetter | DropDeadLetter) -> Payload:
    match request:
        case ListDeadLetters():
            found = await control.dead_letters(limit=request.limit, before_id=request.before_id)
            return {"dead_letters": _fitted(found)}
        case RequeueDeadLetter():
            return {"message": to_json(await control.requeue_dead_letter(request.id))}
        case DropDeadLetter():
            return {"message": to_json(await control.drop_dead_letter(request.id))}


def _fitted(found: Inbox | Thread | DeadLetters) -> object:
    fits = messages_that_fit(found.messages)
    left_out = found.left_out + len(found.messages) - len(fits)
    return to_json(attrs.evolve(found, messages=fits, left_out=left_out))


async def _scoped(control: HiveControl, scope: Scope) -> tuple[str, ...]:
    if scope.agents:
        return await control.list_agents()
    await _require_managed(control, *scope.agent_names)
    return scope.agent_names


async def _require_managed(control: HiveControl, *names: str) -> None:
    managed = await control.list_agents()
    for name in names:
        if name not in managed:
            raise RequestRefused(f'agent "{name:.63}" is not managed by this hive; {nearest(name, managed)}')
