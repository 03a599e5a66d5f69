"""The contract of agents' records, over sockets."""

import pytest
import trio

pytest.register_assert_rewrite("records_contract")

import records_contract  # noqa: E402 -- its asserts explain themselves only when it is imported after that
from records_contract import *  # noqa: E402, F403 -- the suite is the names of that module
from socket_post import open_socket_post  # noqa: E402


@pytest.fixture
async def desk(tmp_path):
    """Mailboxes behind sockets, and the broker's own verbs for what the operator decides."""
    async with open_socket_post(tmp_path) as opened:
        await opened.set_agents(records_contract.AGENTS)
        with trio.fail_after(5):
            yield opened
