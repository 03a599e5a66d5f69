"""Todos at their bounds, and after a restart."""

import pytest

from hive_broker import RequestRefused, _todos, open_broker


async def test_todos_are_there_after_a_restart_in_the_order_of_their_subsystems(path):
    """WAKE-1."""
    async with open_broker(path, owner="first") as broker:
        iris = broker.mailbox("iris")
        for subsystem, key in (("matrix", "room"), ("bash", "2"), ("bash", "1")):
            await iris.upsert_todo(subsystem=subsystem, key=key, summary="x")
        before = await iris.todos()
    async with open_broker(path, owner="second") as broker:
        assert await broker.mailbox("iris").todos() == before
        assert [(todo.subsystem, todo.key) for todo in before] == [("bash", "2"), ("bash", "1"), ("matrix", "room")]


async def test_a_producer_that_runs_away_is_told(broker, monkeypatch):
    """REL-4: and what is open can still change."""
    monkeypatch.setattr(_todos, "_OPEN_CAP", 2)
    iris = broker.mailbox("iris")
    for key in ("1", "2"):
        await iris.upsert_todo(subsystem="s", key=key, summary="x")
    with pytest.raises(RequestRefused, match="can have 2 todos open"):
        await iris.upsert_todo(subsystem="s", key="3", summary="x")
    await iris.upsert_todo(subsystem="s", key="2", summary="y")
    await iris.clear_todo(subsystem="s", key="1")
    await iris.upsert_todo(subsystem="s", key="3", summary="x")
