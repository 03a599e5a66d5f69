"""A hive in memory behind a real admin socket: what tests put in place of the real one.

As a program (``python fake_hive.py STATE_DIR``) it publishes itself as a hive does, serves until it is shut down, and
exits.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
import trio

from hive._errors import RequestRefused
from hive._hostsock import (
    AgentDetail,
    AgentStatusFeed,
    AgentStatusRow,
    AgentStatusStream,
    HiveStatus,
    Inbox,
    Thread,
    serve_host_socket,
)
from hive_broker import OPERATOR, Acked, Message, MessageRefused, Sent

STARTED_AT = 1_790_000_000.0


class FakeHive:
    """Implements ``HiveControl``; ``asked`` lists what was done to agents, in order."""

    def __init__(self, *names: str) -> None:
        self.agents = {name: AgentDetail(name=name, running=True, turn_state="idle") for name in names}
        self.messages: list[Message] = []
        self.warnings: tuple[str, ...] = ()
        self.asked: list[tuple[object, ...]] = []
        self.feed = AgentStatusFeed()
        self.stopping = trio.Event()

    async def list_agents(self) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return tuple(self.agents)

    async def agent_status(self) -> tuple[AgentStatusRow, ...]:
        await trio.lowlevel.checkpoint()
        return tuple(row_of(detail) for detail in self.agents.values())

    def subscribe_agent_status(self) -> AbstractContextManager[AgentStatusStream]:
        return self.feed.subscribe()

    async def hive_status(self) -> HiveStatus:
        await trio.lowlevel.checkpoint()
        return HiveStatus(
            hive="fake",
            pid=os.getpid(),
            started_at=STARTED_AT,
            operator_unread=len(self._of(OPERATOR, unread_only=True)),
            agents=tuple(self.agents.values()),
            warnings=self.warnings,
        )

    async def start(self, names: tuple[str, ...]) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(("start", names))

    async def stop(self, names: tuple[str, ...], *, graceful: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(("stop", names, graceful))

    async def restart(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(("restart", name))

    async def send(self, *, to: str, body: str, in_reply_to: int | None) -> Sent:
        await trio.lowlevel.checkpoint()
        if to not in self.agents:
            raise MessageRefused(f"no agent is called {to!r}: known are {', '.join(self.agents)}")
        return Sent(id=self.put(OPERATOR, to, body, in_reply_to=in_reply_to))

    async def inbox(self, *, agent: str | None, limit: int, unread_only: bool) -> Inbox:
        await trio.lowlevel.checkpoint()
        owner = agent or OPERATOR
        rows = self._of(owner, unread_only=unread_only)[-limit:]
        return Inbox(owner=owner, unread=len(self._of(owner, unread_only=True)), messages=tuple(rows))

    async def ack(self, up_to: int) -> Acked:
        await trio.lowlevel.checkpoint()
        rows = [row for row in self._of(OPERATOR, unread_only=True) if row.id <= up_to]
        self.messages = [row for row in self.messages if row not in rows]
        return Acked(acked=len(rows), never_read=len(rows))

    async def thread(self, message_id: int) -> Thread:
        await trio.lowlevel.checkpoint()
        chain = [row.thread_id for row in self.messages if row.id == message_id]
        if not chain:
            raise RequestRefused(f"there is no message #{message_id}: see the inbox for the numbers")
        return Thread(id=chain[0], messages=tuple(row for row in self.messages if row.thread_id == chain[0]))

    async def shutdown(self, *, graceful: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(("shutdown", graceful))
        self.stopping.set()

    def put(self, sender: str, recipient: str, body: str, *, in_reply_to: int | None = None) -> int:
        """Store a message as if it had been sent."""
        number = len(self.messages) + 1
        threads = {row.id: row.thread_id for row in self.messages}
        self.messages.append(
            Message(
                id=number,
                sender=sender,
                recipient=recipient,
                body=body,
                in_reply_to=in_reply_to,
                thread_id=threads.get(in_reply_to or 0, number),
                sent_at=STARTED_AT + number,
            )
        )
        return number

    def _of(self, owner: str, *, unread_only: bool) -> list[Message]:
        return [row for row in self.messages if row.recipient == owner and not (unread_only and row.acked_at)]


@attrs.frozen
class Served:
    """A fake hive whose admin socket answers at ``path``."""

    hive: FakeHive
    path: Path


def row_of(detail: AgentDetail) -> AgentStatusRow:
    """The part of ``detail`` that desktop clients get."""
    return AgentStatusRow(name=detail.name, running=detail.running, failed=detail.failed)


def publish(state_dir: Path) -> Path:
    """Write the hive.json that ``hivectl`` looks for; give the socket it names."""
    host_sock = state_dir / "run" / "host.sock"
    host_sock.parent.mkdir(parents=True, exist_ok=True)
    host_sock.with_name("hive.json").write_text(
        json.dumps({"version": 1, "pid": os.getpid(), "host_sock": str(host_sock)})
    )
    return host_sock


async def _main(state_dir: Path) -> None:
    hive = FakeHive("ruth", "iris")
    host_sock = publish(state_dir)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_host_socket, host_sock, hive)
        print("ready", flush=True)
        await hive.stopping.wait()
        host_sock.with_name("hive.json").unlink()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_main, Path(sys.argv[1]))
