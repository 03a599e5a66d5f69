"""The outbox: what was stored is sent, though the other side is away for days, and a second copy can be told."""

import pytest

from hive_broker import RequestRefused, open_broker
from hive_broker._retention import HANDLED_SECONDS


async def test_notices_wait_in_their_order_through_restarts_until_they_are_sent(path):
    """SWARM-1."""
    async with open_broker(path, owner="first") as broker:
        first = await broker.add_notice("swarm.notices.hive.iris.start", {"event": "start"}, dedupe_id="1")
        second = await broker.add_notice("swarm.notices.hive.iris.stop", {"event": "stop"}, dedupe_id="2")
    async with open_broker(path, owner="second") as broker:
        unsent = await broker.unsent_notices()
        assert [(notice.id, notice.dedupe_id) for notice in unsent] == [(first.id, "1"), (second.id, "2")]
        assert unsent[0].body == {"event": "start"}
        assert await broker.unsent_notices(limit=1) == unsent[:1]
        assert await broker.mark_notices_sent([first.id, first.id, 999, 2**80]) == 1
        assert await broker.mark_notices_sent([first.id]) == 0
        assert await broker.unsent_notices() == unsent[1:]


async def test_the_same_notice_again_is_the_first_one_also_after_it_was_sent(broker):
    """SWARM-1: exactly once by its id."""
    first = await broker.add_notice("a.b", {"n": 1}, dedupe_id="same")
    again = await broker.add_notice("a.b", {"n": 2}, dedupe_id="same")
    assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)
    await broker.mark_notices_sent([first.id])
    assert (await broker.add_notice("a.b", {}, dedupe_id="same")).duplicate
    assert await broker.unsent_notices() == ()


async def test_only_what_was_sent_is_forgotten(path):
    """SWARM-1: away for a year loses nothing."""
    now = [1e9]
    async with open_broker(path, owner="first", clock=lambda: now[0]) as broker:
        sent = await broker.add_notice("a.sent", {}, dedupe_id="1")
        await broker.add_notice("a.unsent", {}, dedupe_id="2")
        await broker.mark_notices_sent([sent.id])
    now[0] += 12 * HANDLED_SECONDS
    async with open_broker(path, owner="second", clock=lambda: now[0]) as broker:
        later = await broker.add_notice("a.later", {}, dedupe_id="3")
        assert [notice.subject for notice in await broker.unsent_notices()] == ["a.unsent", "a.later"]
        assert later.id == 3


@pytest.mark.parametrize(
    "subject", ["", "a..b", ".a", "a b", "a.*", "a.>", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "a" * 256]
)
async def test_a_subject_that_cannot_be_sent_is_refused_in_words(broker, subject):
    """SWARM-1: before it blocks the outbox for ever."""
    with pytest.raises(RequestRefused, match="a notice's subject must be words"):
        await broker.add_notice(subject, {}, dedupe_id="1")


async def test_a_body_that_cannot_be_sent_is_refused(broker):
    """SWARM-1."""
    with pytest.raises(RequestRefused, match="a notice's body can have at most 262144 bytes"):
        await broker.add_notice("a.b", {"x": "y" * 262_144}, dedupe_id="1")
    with pytest.raises(ValueError, match="not JSON compliant"):
        await broker.add_notice("a.b", {"x": float("nan")}, dedupe_id="1")
    assert await broker.unsent_notices() == ()
