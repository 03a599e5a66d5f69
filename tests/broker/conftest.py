"""Brokers over real files, and every implementation of a mailbox under one name."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

import hive_broker
from hive_agent.testing import MemoryPost

pytest.register_assert_rewrite("mailbox_contract")

import mailbox_contract  # noqa: E402 -- its asserts explain themselves only when it is imported after that
from socket_post import open_socket_post  # noqa: E402

AGENTS = ("iris", "ruth", "otto")


@pytest.fixture
def path(tmp_path) -> Path:
    """Where a broker's database may be."""
    return tmp_path / "db" / "broker.sqlite"


@pytest.fixture
async def broker(path):
    """An open broker with three agents."""
    async with hive_broker.open_broker(path, owner="test") as opened:
        await opened.set_agents(AGENTS)
        yield opened


@asynccontextmanager
async def _in_process(tmp_path: Path) -> AsyncIterator[mailbox_contract.Mailboxes]:
    async with hive_broker.open_broker(tmp_path / "broker.sqlite", owner="contract") as opened:
        yield opened


@asynccontextmanager
async def _in_memory(_: Path) -> AsyncIterator[mailbox_contract.Mailboxes]:
    yield MemoryPost()


FACTORIES: dict[str, Callable[[Path], AbstractAsyncContextManager[mailbox_contract.Mailboxes]]] = {
    "in process": _in_process,
    "in memory": _in_memory,
    "over sockets": open_socket_post,
}
"""Every implementation of a mailbox, by name; the contract suite runs over each."""


@pytest.fixture(params=FACTORIES)
async def mailboxes(request, tmp_path):
    """One implementation of mailboxes, with the three agents of ``mailbox_contract``."""
    async with FACTORIES[request.param](tmp_path) as opened:
        await opened.set_agents(mailbox_contract.AGENTS)
        with trio.fail_after(5):
            yield opened
