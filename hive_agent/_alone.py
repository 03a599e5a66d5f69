"""One agent in a process of its own: its mailbox behind a socket, its tools on its own listener (HOST-6).

Owns the composition, signals, and what is kept so that its tools' URL and token stay the same. What an agent is, is
``_agent``'s business; the same runs inline in a hive.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from hive_broker import OPERATOR, BrokerError, get_logger, open_mailbox_client

from ._agent import Agent, run_agent
from ._alone_settings import AloneSettings
from ._errors import ListenerUnavailable
from ._mcp import Listener, open_listener
from ._ports import Mailbox
from ._runner import AgentNotice

__all__ = ["run_alone"]

_log = get_logger("hive_agent.alone")

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")


async def run_alone(settings: AloneSettings) -> None:
    """Run one agent until SIGTERM or SIGINT; a second one cuts a running turn off (STOP-2, STOP-3).

    Raises:
        AgentError, BrokerError, OSError: in a group: it cannot run, or not any longer, and the sentence says why.
    """
    config = settings.agent
    running: list[Agent] = []
    starting = trio.CancelScope()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heed_signals, signals, running, starting)
            with starting:
                config.harness_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                async with (
                    open_mailbox_client(settings.broker_socket, name=config.name, runs_turns=True) as mailbox,
                    _open_kept_listener(settings) as listener,
                    trio.open_nursery() as agents,
                ):
                    run = partial(
                        run_agent,
                        config,
                        mailbox=mailbox,
                        listener=listener,
                        token=_kept_token(config.harness_dir / "mcp-token"),
                        notify=partial(_notify, agents, mailbox),
                    )
                    running.append(await agents.start(run))
                    _log.info("the agent waits for mail", agent=config.name, mcp=dict(running[0].urls))
            nursery.cancel_scope.cancel()


async def _heed_signals(signals: AsyncIterator[int], running: list[Agent], starting: trio.CancelScope) -> None:
    first = True
    async for number in signals:
        name = signal.Signals(number).name
        if not running:
            _log.warning("stopping before the agent has started", signal=name)
            starting.cancel()
        elif first:
            _log.warning("stopping: a running turn may finish; once more to cut it off", signal=name)
            running[0].loop.request_stop()
        else:
            _log.warning("cutting off the running turn", signal=name)
            running[0].loop.hasten()
        first = False


def _notify(nursery: trio.Nursery, mailbox: Mailbox, notice: AgentNotice) -> None:
    nursery.start_soon(_tell_operator, mailbox, notice.text)


async def _tell_operator(mailbox: Mailbox, text: str) -> None:
    try:
        await mailbox.send(to=OPERATOR, body=text)
    except BrokerError as exc:
        _log.error("a notice could not be delivered", notice=text, error=str(exc))


@asynccontextmanager
async def _open_kept_listener(settings: AloneSettings) -> AsyncIterator[Listener]:
    """The listener on the given port, or on the one that was picked once and kept (SURF-1)."""
    file = settings.agent.harness_dir / "mcp-port"
    kept = _kept_port(file)
    async with AsyncExitStack() as stack:
        try:
            listener = await stack.enter_async_context(open_listener(port=settings.port or kept))
        except ListenerUnavailable as exc:
            if settings.port or not kept:
                raise
            # Turns learn the URL anew each time, so moving beats not starting.
            _log.warning("the tools move to another port; clients that kept the URL must be told", error=str(exc))
            listener = await stack.enter_async_context(open_listener())
        if listener.port != kept:
            _keep(file, str(listener.port))
        yield listener


def _kept_port(path: Path) -> int:
    try:
        port = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0


def _kept_token(path: Path) -> str:
    """The token kept in ``path``, made when there is none that can be used: a client that has it needs no new one."""
    try:
        kept = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        kept = ""
    if _TOKEN.match(kept):
        return kept
    token = secrets.token_urlsafe(32)
    _keep(path, token)
    return token


def _keep(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
    fresh.replace(path)
