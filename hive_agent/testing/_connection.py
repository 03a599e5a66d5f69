"""One HTTP/1.1 connection of the scripted model: h11 on a trio stream.

Owns framing, the limits on what a client may send, and the ways a connection ends. Knows no endpoint and no rule.
Called by ``_server``, by one task a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar, final

import attrs
import h11
import trio

from hive_agent.testing._reply import Fail, fail

__all__ = ["Connection", "PeerGone", "Request"]

_MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""The API's own limit on a request."""

_MAX_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers; also what a client may send ahead while its request is being answered."""

_READ_BYTES: Final = 64 * 1024

_LINGER_SECONDS: Final = 1.0
"""How long a refused client may go on sending: closing at once would reset the connection under the refusal."""

_T = TypeVar("_T")


class PeerGone(Exception):
    """The client went away, or can no longer be talked to."""


@attrs.frozen(kw_only=True)
class Request:
    """One request, or what was wrong with it.

    Attributes:
        method: in capitals, ``""`` when it could not be read.
        path: without the query.
        headers: names in lower case.
        body: complete.
        refusal: the answer, when it cannot be taken.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = attrs.field(repr=False)
    refusal: Fail | None = None


@final
class Connection:
    """A client's connection, one request after the other."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._eof = False
        self._method = ""

    async def next_request(self) -> Request | None:
        """The next request; None when there can be no other.

        Raises:
            PeerGone: the client went away in the middle of one.
        """
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            await self._linger()
            return None
        self._method = ""
        try:
            head = await self._next_event()
            if not isinstance(head, h11.Request):
                return None
            return await self._read(head)
        except h11.RemoteProtocolError as exc:
            if self._eof:
                raise PeerGone from exc
            status = max(exc.error_status_hint, 400)
            return Request(
                method=self._method,
                path="",
                headers={},
                body=b"",
                refusal=fail(status, f"a request must be HTTP/1.1: {exc}"),
            )

    async def _read(self, head: h11.Request) -> Request:
        self._method = head.method.decode()
        path = head.target.decode("ascii", "replace").partition("?")[0]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        body = bytearray()
        too_large = int(headers.get("content-length", "0")) > _MAX_BODY_BYTES
        while not too_large and isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            too_large = len(body) > _MAX_BODY_BYTES
        return Request(
            method=self._method,
            path=path,
            headers=headers,
            body=b"" if too_large else bytes(body),
            refusal=fail(413, f"a request body can hold {_MAX_BODY_BYTES} bytes at most") if too_large else None,
        )

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._receive())
        return event

    async def _receive(self) -> bytes:
        try:
            data = await self._stream.receive_some(_READ_BYTES)
        except trio.BrokenResourceError as exc:
            raise PeerGone from exc
        self._eof = not data
        return bytes(data)

    async def _linger(self) -> None:
        try:
            await self._stream.send_eof()
            with trio.move_on_after(_LINGER_SECONDS):
                while await self._stream.receive_some(_READ_BYTES):
                    pass
        except trio.BrokenResourceError as exc:
            raise PeerGone from exc

    async def while_connected(self, wait: Callable[[], Awaitable[_T]]) -> _T:
        """What ``wait`` returns; it is cancelled when the client goes away.

        Raises:
            PeerGone: the client closed its side, or sent more than it may while it waits.
        """
        values: list[_T] = []
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await self._wait_gone()
                values.clear()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            values.append(await wait())
            nursery.cancel_scope.cancel()
        if not values:
            raise PeerGone
        return values[0]

    async def _wait_gone(self) -> None:
        try:
            while len(self._http.trailing_data[0]) <= _MAX_HEAD_BYTES and (data := await self._receive()):
                self._http.receive_data(data)
        except PeerGone:
            return

    async def send_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send one complete response.

        Raises:
            PeerGone: the client does not take it.
        """
        lines = {**headers, "content-length": str(len(body))}
        if self._http.their_state is not h11.DONE:
            lines["connection"] = "close"
        await self._send(h11.Response(status_code=status, headers=list(lines.items())))
        if self._method != "HEAD":
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of a response whose end is not known yet."""
        await self._send(h11.Response(status_code=status, headers=list(headers.items())))

    async def send(self, data: bytes) -> None:
        """Send a piece of the response that was started."""
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        """End the response that was started."""
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        try:
            await self._stream.send_all(data or b"")
        except trio.BrokenResourceError as exc:
            raise PeerGone from exc
