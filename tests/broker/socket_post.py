"""Mailboxes behind sockets, offered as a broker offers them: for the contract suite and what else needs several."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

import hive_broker
from hive_broker import Broker, SocketMailbox, open_mailbox_client, serve_mailbox


class SocketPost:
    """A broker, and one served socket with its client for each name and what it may write to."""

    def __init__(self, broker: Broker, folder: Path, nursery: trio.Nursery) -> None:
        self.broker = broker
        self._folder = folder
        self._nursery = nursery
        self._open: dict[tuple[str, frozenset[str]], SocketMailbox] = {}
        self.opening = trio.Lock()

    async def set_agents(self, names: Collection[str]) -> None:
        await self.broker.set_agents(names)

    async def deliver(self, sender: str, to: str, body: str) -> hive_broker.Sent:
        return await self.broker.deliver(sender, to, body)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.broker, verb)  # what the hive and the operator may do is not asked over sockets

    def mailbox(self, name: str, *, allowed_recipients: Collection[str] = ()) -> Any:
        return _Later(self, name, frozenset(allowed_recipients))

    async def opened(self, name: str, allowed: frozenset[str]) -> SocketMailbox:
        key = (name, allowed)
        if key not in self._open:
            path = self._folder / f"{len(self._open)}.sock"
            mailbox = self.broker.mailbox(name, allowed_recipients=allowed)
            await self._nursery.start(partial(serve_mailbox, path, mailbox, runs_turns=True))
            self._open[key] = await self._nursery.start(_hold_client, path, name)
        return self._open[key]


class _Later:
    """A mailbox whose socket is served when it is first asked for something: opening takes its time."""

    def __init__(self, post: SocketPost, name: str, allowed: frozenset[str]) -> None:
        self._post = post
        self._name = name
        self._allowed = allowed

    def __getattr__(self, method: str) -> Any:
        async def call(*args: object, **params: object) -> object:
            with trio.CancelScope(shield=True):
                async with self._post.opening:
                    mailbox = await self._post.opened(self._name, self._allowed)
            return await getattr(mailbox, method)(*args, **params)

        return call


async def _hold_client(path: Path, name: str, *, task_status: trio.TaskStatus[SocketMailbox]) -> None:
    async with open_mailbox_client(path, name=name, runs_turns=True) as mailbox:
        task_status.started(mailbox)
        await trio.sleep_forever()


@asynccontextmanager
async def open_socket_post(folder: Path, *, manager: str = "ruth") -> AsyncIterator[SocketPost]:
    async with (
        hive_broker.open_broker(folder / "broker.sqlite", owner="sockets", manager=manager) as broker,
        trio.open_nursery() as nursery,
    ):
        yield SocketPost(broker, folder, nursery)
        nursery.cancel_scope.cancel()
