"""From one schema to the next: all of it or nothing, with the rows kept."""

import apsw
import pytest

from hive_broker import BrokerError, _migrate, open_broker


@pytest.fixture
def schema(monkeypatch):
    """The schema files as a list that a test may add to."""
    steps = _migrate._steps()
    monkeypatch.setattr(_migrate, "_steps", lambda: list(steps))
    return steps


async def test_an_older_database_gets_the_new_steps_only_and_keeps_its_rows(path, schema):
    """REL-3: an update of hyperhive loses no mail."""
    async with open_broker(path, owner="before") as broker:
        await broker.set_agents(["iris"])
        await broker.mailbox("iris").send(to="iris", body="kept")
    schema.append("CREATE TABLE later (x INTEGER) STRICT; INSERT INTO later VALUES (1);")
    for _ in range(2):
        async with open_broker(path, owner="after") as broker:
            assert [message.body for message in await broker.history()] == ["kept"]
            found = await broker._engine.look(
                lambda db: (db.pragma("user_version"), db.execute("SELECT x FROM later").get)
            )
            assert found == (len(schema), 1)


async def test_a_step_that_fails_leaves_the_database_as_it_was(path, schema):
    """REL-3: also what the step had done before it failed."""
    async with open_broker(path, owner="before"):
        pass
    version = len(schema)
    schema.append("CREATE TABLE half (x INTEGER) STRICT; CREATE TABLE half (x INTEGER) STRICT;")
    with pytest.raises(apsw.SQLError, match="half already exists"):
        async with open_broker(path, owner="after"):
            raise AssertionError("must not open")
    schema.pop()
    async with open_broker(path, owner="before again") as broker:
        tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'half'"
        found = await broker._engine.look(lambda db: (db.pragma("user_version"), db.execute(tables).get))
        assert found == (version, 0)


def test_the_base_of_errors_is_no_error_itself():
    """REL-3: whoever raises says whose fault it was."""
    with pytest.raises(TypeError, match="raise one of its leaves"):
        BrokerError("something")
