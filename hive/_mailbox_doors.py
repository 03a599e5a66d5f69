"""One socket for each agent's mailbox (WAKE-2): for what wakes it, and for an agent that runs outside of the hive.

Owns which sockets there are and when: they outlast the agents, which need them to the last, and close before the
broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from tricycle import open_service_nursery

import hive_broker

from ._config import HiveConfig, Runs

__all__ = ["open_mailbox_doors"]


@asynccontextmanager
async def open_mailbox_doors(
    config: HiveConfig, *, broker: hive_broker.Broker, attached: Callable[[str, int | None], object]
) -> AsyncIterator[None]:
    """Serve every agent's mailbox until the block is left; then all of it ends at once.

    Args:
        config: the hive.
        broker: where mail is.
        attached: told the name of an agent that runs outside and the pid of its hive-agent when that comes, None when
            it is gone.

    Raises:
        hive_broker.MailboxSocketUnusable: a socket cannot be at its path.
    """
    outside = [name for name, settings in config.agents.items() if settings.runs is Runs.OUTSIDE]
    await broker.end_held_turns(keep=outside)
    async with open_service_nursery() as doors:
        for name, settings in config.agents.items():
            serve = partial(
                hive_broker.serve_mailbox,
                config.paths.broker_sock(name),
                broker.mailbox(name, allowed_recipients=settings.allowed_recipients),
                runs_turns=settings.runs is Runs.OUTSIDE,
                attached=partial(attached, name),
            )
            await doors.start(serve)
        try:
            yield
        finally:
            doors.cancel_scope.cancel()
