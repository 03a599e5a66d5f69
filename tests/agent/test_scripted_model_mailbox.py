"""What the post office in memory does beside the contract that every mailbox keeps."""

import pytest
import trio

from hive_agent.testing import MemoryPost
from hive_broker import MessageRefused, TurnClosed


async def test_a_row_popped_outside_a_turn_comes_back_after_its_lease(autojump_clock):
    """MSG-5: the lease runs by trio's clock, and who waits is woken by its end."""
    post = MemoryPost(["iris"], lease_seconds=600)
    iris = post.mailbox("iris")
    post.put(to="iris", body="x")
    await iris.recv()
    assert (await iris.summary()).unread == 0
    started = trio.current_time()
    await iris.wait_unread()
    assert trio.current_time() - started == pytest.approx(600)
    (again,) = (await iris.recv()).deliveries
    assert again.attempt == 2


async def test_a_row_whose_lease_ended_five_times_is_a_dead_letter(autojump_clock):
    """MSG-6: outside a turn as well."""
    post = MemoryPost(["iris"], lease_seconds=1)
    message = post.put(to="iris", body="x", sender="a label")
    for _ in range(5):
        await post.mailbox("iris").recv()
        await trio.sleep(1)
    (dead,) = post.messages("iris")
    assert (dead.id, dead.attempts, dead.acked_at) == (message.id, 5, None)
    assert dead.dead_at is not None
    assert post.messages("operator") == ()


async def test_an_ack_ends_a_lease(autojump_clock):
    """MSG-7: acked rows never come back."""
    post = MemoryPost(["iris"], lease_seconds=1)
    iris = post.mailbox("iris")
    message = post.put(to="iris", body="x")
    await iris.recv()
    await iris.ack_until(message.id)
    await trio.sleep(10)
    assert (await iris.summary()).unread == 0


async def test_a_test_can_look_at_everything_that_was_sent_and_recorded():
    """TURN-7: dates come from the clock that was given, records are kept as they were."""
    post = MemoryPost(["iris"], wall_clock=lambda: 17.0)
    iris = post.mailbox("iris")
    await iris.send(to="operator", body="hello")
    turn = await iris.open_turn(cause="mail")
    await iris.close_turn(turn.id, acked=True, record={"outcome": "done"})
    assert [(message.body, message.sent_at) for message in post.messages("operator")] == [("hello", 17.0)]
    assert post.records == ({"outcome": "done"},)


async def test_two_runs_give_the_same_ids():
    """EMBED-1: nothing in memory is random."""
    for _ in range(2):
        post = MemoryPost(["iris"])
        assert post.put(to="iris", body="x", sender="system").id == 1
        assert (await post.mailbox("iris").open_turn(cause="mail")).id == 1
        assert await post.mailbox("iris").close_turn(1, acked=False, record={}) == TurnClosed(
            acked=(), returned=(), dead=()
        )


@pytest.mark.parametrize("label", ["", " x", "two\nlines", "x" * 64, "operator", "hyperhive", "iris", "otto"])
async def test_a_label_that_could_be_somebody_else_is_refused(label):
    """WAKE-2: no label passes for an agent, not even for one that left."""
    post = MemoryPost(["iris", "otto"])
    await post.set_agents(["iris"])
    with pytest.raises(MessageRefused, match="a label must"):
        await post.deliver(label, "iris", "x")


@pytest.mark.parametrize("name", ["system", "", "Iris", "-x", "x" * 64])
async def test_names_nobody_can_have_get_no_mailbox(name):
    """SEC-4: names are checked before they mean anything."""
    post = MemoryPost()
    with pytest.raises(ValueError, match="an agent's name must be"):
        post.mailbox(name)
    with pytest.raises(ValueError, match="an agent's name must be"):
        await post.set_agents([name])
    with pytest.raises(ValueError, match="an agent's name must be"):
        MemoryPost([name])
