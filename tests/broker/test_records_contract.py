"""The contract of agents' records over every implementation there is."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

import hive_broker

pytest.register_assert_rewrite("records_contract")

import records_contract  # noqa: E402 -- its asserts explain themselves only when it is imported after that
from records_contract import *  # noqa: E402, F403 -- the suite is the names of that module


@asynccontextmanager
async def _in_process(tmp_path: Path) -> AsyncIterator[records_contract.Desk]:
    async with hive_broker.open_broker(tmp_path / "broker.sqlite", owner="contract", manager="ruth") as opened:
        await opened.set_agents(records_contract.AGENTS)
        yield opened


FACTORIES: dict[str, Callable[[Path], AbstractAsyncContextManager[records_contract.Desk]]] = {
    "in process": _in_process,
}
"""Every implementation, by name; the contract suite runs over each."""


@pytest.fixture(params=FACTORIES)
async def desk(request, tmp_path):
    """One implementation, with the three agents of ``records_contract``."""
    async with FACTORIES[request.param](tmp_path) as opened:
        with trio.fail_after(5):
            yield opened
