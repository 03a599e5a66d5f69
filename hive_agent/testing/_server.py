"""The scripted model on a loopback port, as the Anthropic Messages API.

Owns the listener, HTTP and the performance of a reply. Knows no rule: `ScriptedModel` chooses, this room sends.
One task a connection, and a second one only while a reply waits, to see the peer go away.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, final

import trio

from hive_agent.testing._connection import Connection, PeerGone, Request
from hive_agent.testing._frames import Envelope, block_frames, error_body, error_frame, first_frame, last_frames
from hive_agent.testing._model import ScriptedModel
from hive_agent.testing._reply import Call, Cut, Delay, Fail, Reply, Say, Stall, fail
from hive_agent.testing._request import BadRequest

__all__ = ["ServedModel", "open_scripted_model"]

_HOST: Final = "127.0.0.1"
"""A stand-in for a model has no business on a network (SEC-1)."""

_JSON: Final = {"content-type": "application/json"}
_EVENTS: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


@final
class ServedModel:
    """A scripted model that answers; made by `open_scripted_model`."""

    def __init__(self, model: ScriptedModel, port: int) -> None:
        self._model = model
        self._port = port
        self._active = 0
        self._change = trio.Event()

    @property
    def model(self) -> ScriptedModel:
        """The script and its record."""
        return self._model

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1."""
        return self._port

    @property
    def base_url(self) -> str:
        """What a client takes as ``ANTHROPIC_BASE_URL``."""
        return f"http://{_HOST}:{self._port}"

    @property
    def active_requests(self) -> int:
        """Requests that are being answered now, the stalled ones included."""
        return self._active

    async def wait_idle(self) -> None:
        """Return as soon as no request is being answered."""
        await trio.lowlevel.checkpoint()
        while self._active:
            await self._change.wait()

    async def serve_connection(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Answer one client's requests until either side ends the connection."""
        connection = Connection(stream)
        try:
            while request := await connection.next_request():
                self._count_active(1)
                try:
                    await self._answer(connection, request)
                finally:
                    self._count_active(-1)
        except PeerGone:
            return

    def _count_active(self, change: int) -> None:
        self._active += change
        self._change.set()
        self._change = trio.Event()

    async def _answer(self, connection: Connection, request: Request) -> None:
        if request.refusal is not None:
            self._model.note_stray(f"{request.method} {request.path}: {request.refusal.message}")
            await _send_error(connection, request.refusal)
        elif request.method == "POST" and request.path == "/v1/messages":
            await self._answer_step(connection, request)
        elif request.method == "POST" and request.path == "/v1/messages/count_tokens":
            await self._answer_count(connection, request)
        elif request.method in {"GET", "HEAD"} and request.path == "/":
            await connection.send_whole(200, {"content-type": "text/plain"}, b"a scripted model\n")
        else:
            self._model.note_stray(f"{request.method} {request.path}")
            known = "POST /v1/messages and POST /v1/messages/count_tokens"
            sentence = f"a scripted model answers {known}, got {request.method} {request.path}"
            await _send_error(connection, fail(404, sentence))

    async def _answer_count(self, connection: Connection, request: Request) -> None:
        try:
            tokens = self._model.count_tokens(path=request.path, headers=request.headers, raw=request.body)
        except BadRequest as exc:
            await self._refuse_body(connection, request, exc)
            return
        if isinstance(tokens, Fail):
            await _send_error(connection, tokens)
        else:
            await connection.send_whole(200, _JSON, json.dumps({"input_tokens": tokens}).encode())

    async def _answer_step(self, connection: Connection, request: Request) -> None:
        try:
            asked = self._model.record(path=request.path, headers=request.headers, raw=request.body)
        except BadRequest as exc:
            await self._refuse_body(connection, request, exc)
            return
        envelope, reply = await connection.while_connected(partial(self._model.answer, asked))
        perform = _stream if asked.stream else _send_message
        await perform(connection, envelope, reply)

    async def _refuse_body(self, connection: Connection, request: Request, exc: BadRequest) -> None:
        self._model.note_stray(f"{request.method} {request.path}: {exc}")
        await _send_error(connection, fail(400, str(exc)))


@asynccontextmanager
async def open_scripted_model(model: ScriptedModel, *, port: int = 0) -> AsyncIterator[ServedModel]:
    """Serve ``model`` on 127.0.0.1; it answers as soon as the block is entered.

    Leaving the block ends every connection at once, the stalled ones included. An error of the block leaves it as it
    is; so does cancellation.

    Args:
        model: the script; rules may be added while it is served.
        port: the TCP port, 0 for any that is free.

    Raises:
        OSError: the port is taken.
        ScriptFailed: the block ended well, and a function of the script had raised.
    """
    error: BaseException | None = None
    try:
        (listener,) = await trio.open_tcp_listeners(port, host=_HOST)
        async with listener, trio.open_nursery() as nursery:
            served = ServedModel(model, listener.socket.getsockname()[1])
            await nursery.start(trio.serve_listeners, served.serve_connection, [listener])
            yield served
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The tasks here end without errors, so what the nursery wrapped is the block's own error.
        if len(group.exceptions) > 1:
            raise
        error = group.exceptions[0]
    if error is not None:
        raise error
    if model.failure is not None:
        raise model.failure


async def _send_error(connection: Connection, error: Fail) -> None:
    await connection.send_whole(error.status, {**_JSON, **error.headers}, json.dumps(error_body(error)).encode())


async def _stream(connection: Connection, envelope: Envelope, reply: Reply) -> None:
    """Perform a reply as server-sent events; nothing is sent before the first step that has something to say."""
    started = False
    index = 0
    rest = b""

    async def send(frames: bytes) -> None:
        nonlocal started
        if not started:
            started = True
            await connection.start(200, {**_EVENTS, "request-id": envelope.request_id})
            frames = first_frame(envelope) + frames
        await connection.send(frames)

    for step in reply.steps:
        match step:
            case Say() | Call():
                first, second = block_frames(envelope, index, step)
                index += 1
                await send(rest + first if step.halved else rest + first + second)
                rest = second if step.halved else b""
            case Fail():
                if not started:
                    await _send_error(connection, step)
                    return
                await connection.send(error_frame(step))
                await connection.end()
                return
            case _:
                await _wait(connection, step)
    await send(rest + last_frames(envelope, reply))
    await connection.end()


async def _send_message(connection: Connection, envelope: Envelope, reply: Reply) -> None:
    """Perform a reply as one JSON message; its waits come before the first byte."""
    for step in reply.steps:
        match step:
            case Say() | Call():
                continue
            case Fail():
                await _send_error(connection, step)
                return
            case _:
                await _wait(connection, step)
    body = json.dumps(envelope.whole(reply)).encode()
    await connection.send_whole(200, {**_JSON, "request-id": envelope.request_id}, body)


async def _wait(connection: Connection, step: Stall | Delay | Cut) -> None:
    match step:
        case Cut():
            raise PeerGone
        case Delay(seconds=seconds):
            await connection.while_connected(partial(trio.sleep, seconds))
        case Stall(until=until):
            await connection.while_connected(trio.sleep_forever if until is None else until.wait)
