"""A mailbox over a socket: for an agent that does not live in the broker's process (SURF-4).

Owns the mailbox's face and what is peculiar to it when answers can be lost. ``_link`` has the connection.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast, final

import tricycle
import trio

from ._client_records import SocketRecords
from ._link import Link
from ._rules import check_body
from ._set_aside import SetAside
from ._socket_file import check_socket_path
from ._types import Acked, InboxSummary, Received, Sent, TurnClosed, TurnLease

__all__ = ["SocketMailbox", "open_mailbox_client"]


@asynccontextmanager
async def open_mailbox_client(
    path: str | os.PathLike[str], *, name: str, runs_turns: bool = False
) -> AsyncIterator[SocketMailbox]:
    """A client of the mailbox that is served at ``path``, until the block is left.

    It connects by itself, and again whenever the connection breaks: the broker need not be there yet. It works while
    the block unwinds, cancelled or not. On leaving, calls that wait get ``BrokerClosed``; a turn that is open stays so,
    until the agent's next life ends it. What leaves the block is what its body raised, as it was.

    Args:
        path: of the socket.
        name: whose mailbox it must be.
        runs_turns: whether this client is the agent's life: it alone opens turns, and what an earlier life left open
            ends when it is let in (TURN-4).

    Raises:
        MailboxSocketUnusable: no socket can have this path.
    """
    check_socket_path(Path(path))
    link = Link(Path(path), name=name, runs_turns=runs_turns)
    body = SetAside()
    with trio.CancelScope() as closing:
        async with tricycle.open_service_nursery() as nursery:
            nursery.start_soon(link.keep)
            with body:
                yield SocketMailbox(link, name)
            closing.shield = True
            link.close()
            nursery.cancel_scope.cancel()
    body.raise_again()


@final
class SocketMailbox(SocketRecords):
    """The inbox and outbox of one agent, behind a socket; made by ``open_mailbox_client``.

    Every method does what ``BrokerMailbox``'s does, once, also when the connection breaks or the broker restarts in
    between: a request is asked again under the same number until it is answered. While the broker is away calls wait,
    for just under a minute; then they raise ``BrokerUnavailable``, whose ``may_be_done`` says whether the request had
    been on its way. ``MailboxSocketRefused`` means that this client is not let in (any more), for good.

    A caller that is cancelled before its request is on its way gets ``trio.Cancelled`` and nothing happened; later it
    gets its answer. Only when the broker is away just then and stays away for 5 s does it get ``trio.Cancelled``
    although the request may be done; that is logged. Rows which a request that was given up may have popped are not
    acked by the end of their turn: they come again (MSG-5).
    """

    def __init__(self, link: Link, name: str) -> None:
        super().__init__(link)
        self._name = name
        self._unseen: set[int] = set()

    @property
    def name(self) -> str:
        """Whose mailbox it is."""
        return self._name

    async def send(self, *, to: str, body: str, in_reply_to: int | None = None, turn_id: int | None = None) -> Sent:
        """See ``BrokerMailbox.send``."""
        check_body(body)
        answer = await self._link.ask("send", to=to, body=body, in_reply_to=in_reply_to, turn_id=turn_id)
        return cast("Sent", answer)

    async def recv(self, *, limit: int = 1, turn_id: int | None = None) -> Received:
        """See ``BrokerMailbox.recv``; of rows with much to say it may pop fewer, as many as one answer holds."""
        lost = None if turn_id is None else partial(self._unseen.add, turn_id)
        return cast("Received", await self._link.ask("recv", lost=lost, limit=limit, turn_id=turn_id))

    async def ack_until(self, up_to: int) -> Acked:
        """See ``BrokerMailbox.ack_until``."""
        return cast("Acked", await self._link.ask("ack_until", up_to=up_to))

    async def summary(self) -> InboxSummary:
        """See ``BrokerMailbox.summary``."""
        return cast("InboxSummary", await self._link.ask("summary"))

    async def wait_unread(self) -> None:
        """See ``BrokerMailbox.wait_unread``; waits however long the broker is away."""
        await self._link.wait("wait_unread")

    async def open_turn(self, *, cause: str) -> TurnLease:
        """See ``BrokerMailbox.open_turn``."""
        # One that may be open without anybody here knowing it would keep all others from being opened.
        return cast("TurnLease", await self._link.ask("open_turn", lost=self._link.reconnect, cause=cause))

    async def close_turn(
        self, turn_id: int, *, acked: bool, record: Mapping[str, object], blameless: bool = False
    ) -> TurnClosed:
        """See ``BrokerMailbox.close_turn``; a turn that may have popped what nobody saw returns its rows."""
        acked = acked and turn_id not in self._unseen
        closed = await self._link.ask(
            "close_turn", turn_id=turn_id, acked=acked, record=dict(record), blameless=blameless
        )
        self._unseen.discard(turn_id)
        return cast("TurnClosed", closed)
