"""What the operator allows an agent, kept and told."""

import pytest

from hive_broker import RequestRefused, open_broker


async def test_what_is_set_is_there_for_the_hive_and_for_the_agent_after_a_restart(path):
    """PERM-2, PERM-5."""
    async with open_broker(path, owner="first") as broker:
        await broker.set_agents(["iris"])
        assert await broker.permissions_of("iris") is None
        await broker.set_permissions("iris", groups=["inbox"], capabilities=["gui"])
        put = await broker.set_permissions("iris", groups=["messaging", "web_tools"], capabilities=())
    async with open_broker(path, owner="second") as broker:
        assert put.groups == {"messaging", "web_tools"}
        assert put.capabilities == frozenset()
        assert await broker.permissions() == {"iris": put}
        assert await broker.permissions_of("iris") == put
        assert await broker.mailbox("iris").permissions() == put
        assert await broker.mailbox("ruth").permissions() is None


async def test_no_groups_at_all_is_something_that_can_be_set(broker):
    """PERM-1: it is not the same as nothing set."""
    put = await broker.set_permissions("iris", groups=())
    assert await broker.permissions_of("iris") == put
    assert put.groups == frozenset()


@pytest.mark.parametrize("word", ["", "Messaging", "a b", "a" * 41, "x\n"])
async def test_a_word_no_group_can_be_called_is_refused_and_changes_nothing(broker, word):
    """PERM-2."""
    for arguments in ({"groups": [word]}, {"groups": [], "capabilities": [word]}):
        with pytest.raises(RequestRefused, match="words of a-z, 0-9 and _"):
            await broker.set_permissions("iris", **arguments)
    assert await broker.permissions() == {}


async def test_permissions_are_for_names_an_agent_can_have(broker):
    """SEC-4."""
    with pytest.raises(ValueError, match="an agent's name must be"):
        await broker.set_permissions("../iris", groups=[])
