"""One agent in a process of its own: its mailbox behind a socket, its tools on its own listener (HOST-6).

Owns the composition, signals, and what is kept so that its tools' URL and token stay the same. What an agent is, is
``_agent``'s business; the same runs inline in a hive.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from functools import partial

import trio

from hive_broker import OPERATOR, BrokerError, get_logger, open_mailbox_client

from ._agent import Agent, run_agent
from ._alone_settings import AloneSettings
from ._harness import own_harness
from ._kept import kept_token, open_kept_listener
from ._ports import Mailbox
from ._runner import AgentNotice

__all__ = ["run_alone"]

_log = get_logger("hive_agent.alone")


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
            # The claim comes first: a second hive-agent must not take the first one's port or end its runtime.
            with starting, own_harness(config.harness_dir, name=config.name):
                async with (
                    open_mailbox_client(settings.broker_socket, name=config.name, runs_turns=True) as mailbox,
                    open_kept_listener(config.harness_dir / "mcp-port", port=settings.port) as listener,
                    trio.open_nursery() as agents,
                ):
                    run = partial(
                        run_agent,
                        config,
                        mailbox=mailbox,
                        listener=listener,
                        token=kept_token(config.harness_dir / "mcp-token"),
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
