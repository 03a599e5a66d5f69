"""The other ends of a mailbox's socket, as bad as they get: raw peers, a relay that cuts, a server that says little."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from waiting import eventually

from hive_broker._lines import LineReader


class Peer:
    """A raw connection to a served mailbox."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._reader = LineReader(stream, limit_bytes=2 << 20)

    async def say(self, *lines: bytes | dict[str, Any]) -> None:
        for line in lines:
            raw = line if isinstance(line, bytes) else json.dumps(line).encode()
            await self.stream.send_all(raw + b"\n")

    async def hear(self) -> Any:
        with trio.fail_after(5):
            line = await self._reader.next_line()
        return None if line is None else json.loads(line)

    async def wait_cut(self) -> None:
        """Return once the server has closed, without reading what it said."""
        poll = select.poll()
        poll.register(self.stream.socket, select.POLLHUP)
        await eventually(lambda: poll.poll(0))

    async def attach(self, name: str = "ruth", *, client: str = "a" * 32, **changed: Any) -> Any:
        params = {"name": name, "client": client, "runs_turns": True, "has_turn": False, **changed}
        await self.say({"version": 1, "id": 1, "method": "attach", "params": params})
        return await self.hear()


def ask(request_id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"version": 1, "id": request_id, "method": method, "params": params}


@asynccontextmanager
async def peers() -> AsyncIterator[Callable[[Path], Awaitable[Peer]]]:
    """Makes raw connections, and closes them when the block ends."""
    opened: list[Peer] = []

    async def connect(path: Path) -> Peer:
        opened.append(Peer(await trio.open_unix_socket(str(path))))
        return opened[-1]

    try:
        yield connect
    finally:
        for peer in opened:
            await trio.aclose_forcefully(peer.stream)


async def listen(path: Path, handle: Callable[[trio.SocketStream], Awaitable[object]], nursery: trio.Nursery) -> None:
    """Serve connections at ``path`` with ``handle`` until the nursery is cancelled."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))  # trio's would use a thread, which an autojump clock does not wait for
    sock.listen(64)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    await nursery.start(partial(trio.serve_listeners, handle, [listener]))


class Relay:
    """Stands between a client and a server, and cuts the first connection on which ``cuts`` says so of an answer."""

    def __init__(self, target: Path, cuts: Callable[[dict[str, Any]], bool]) -> None:
        self._target = target
        self._cuts = cuts
        self.cut = 0
        self.asked: list[dict[str, Any]] = []

    async def handle(self, client: trio.SocketStream) -> None:
        try:
            server = await trio.open_unix_socket(str(self._target))
        except OSError:
            return
        async with server, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_requests, client, server, nursery.cancel_scope)
            reader = LineReader(server, limit_bytes=2 << 20)
            try:
                while (line := await reader.next_line()) is not None:
                    if not self.cut and self._cuts(json.loads(line)):
                        self.cut += 1
                        break
                    await client.send_all(line + b"\n")
            except trio.BrokenResourceError:
                pass
            nursery.cancel_scope.cancel()

    async def _pass_requests(
        self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        reader = LineReader(client, limit_bytes=2 << 20)
        try:
            while (line := await reader.next_line()) is not None:
                self.asked.append(json.loads(line))
                await server.send_all(line + b"\n")
        except trio.BrokenResourceError:
            pass
        scope.cancel()
