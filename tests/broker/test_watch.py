"""What a watcher sees: everything, after its commit and in its order, or a channel that ends."""

from contextlib import ExitStack

import attrs
import pytest
import trio
import trio.testing

import hive_broker
from hive_broker import MessagesAcked, MessagesDied, MessageSent, MessagesPopped, MessagesReturned, open_broker


def taken(events):
    """All that is buffered now."""
    found = []
    while True:
        try:
            found.append(events.receive_nowait())
        except trio.WouldBlock:
            return found


async def test_a_watcher_sees_a_message_through_its_life(broker):
    """MSG-1 to MSG-7."""
    iris, ruth = broker.mailbox("iris"), broker.mailbox("ruth")
    with broker.watch() as events:
        sent = await iris.send(to="ruth", body="x")
        turn = await ruth.open_turn(cause="mail")
        (first,) = (await ruth.recv(turn_id=turn.id)).deliveries
        await ruth.close_turn(turn.id, acked=False, record={})
        (second,) = (await ruth.recv()).deliveries
        await ruth.ack_until(sent.id)
        assert taken(events) == [
            MessageSent(message=attrs.evolve(first.message, attempts=0)),
            MessagesPopped(agent="ruth", turn_id=turn.id, messages=(first.message,)),
            MessagesReturned(agent="ruth", ids=(sent.id,)),
            MessagesPopped(agent="ruth", turn_id=None, messages=(second.message,)),
            MessagesAcked(agent="ruth", ids=(sent.id,)),
        ]


async def test_a_watcher_sees_a_death_and_the_notice_of_it(path):
    """MSG-6."""
    async with open_broker(path, owner="test", max_deliveries=1) as broker:
        await broker.set_agents(["iris", "ruth"])
        sent = await broker.mailbox("iris").send(to="ruth", body="x")
        turn = await broker.mailbox("ruth").open_turn(cause="mail")
        await broker.mailbox("ruth").recv(turn_id=turn.id)
        with broker.watch() as events:
            await broker.mailbox("ruth").close_turn(turn.id, acked=False, record={})
            died, told = taken(events)
    assert died == MessagesDied(agent="ruth", ids=(sent.id,))
    assert (told.message.sender, told.message.recipient) == ("system", "iris")


async def test_what_was_not_stored_is_not_seen(broker):
    """MSG-3, MSG-9: neither refusals nor repetitions nor empty pops."""
    iris = broker.mailbox("iris")
    turn = await iris.open_turn(cause="mail")
    await iris.send(to="ruth", body="x", turn_id=turn.id)
    with broker.watch() as events:
        with pytest.raises(hive_broker.MessageRefused):
            await iris.send(to="nobody", body="x")
        await iris.send(to="ruth", body="x", turn_id=turn.id)
        await iris.recv()
        await iris.ack_until(10)
        await iris.close_turn(turn.id, acked=True, record={})
        assert taken(events) == []


async def test_events_come_in_the_order_of_the_ids(broker):
    """MSG-1: commit order, however many send at once."""
    with broker.watch() as events:
        async with trio.open_nursery() as nursery:
            for name in ("iris", "otto", "operator"):
                for n in range(30):
                    nursery.start_soon(lambda name=name, n=n: broker.mailbox(name).send(to="ruth", body=f"{n}"))
        seen = [event.message.id for event in taken(events)]
    assert seen == sorted(seen)
    assert len(seen) == 90


async def test_an_event_is_true_when_it_is_seen(broker):
    """MSG-1, failure 3: whoever acts on it finds the row."""
    with broker.watch() as events, trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: broker.mailbox("iris").send(to="ruth", body="x"))
            event = await events.receive()
            assert await broker.thread(event.message.id) == (event.message,)


async def test_a_watcher_that_falls_behind_is_closed_and_delays_nobody(broker):
    """REL-4: it gets what was kept for it, then the end; others get everything."""
    iris = broker.mailbox("iris")
    seen = []

    async def read_all(events):
        async for event in events:
            seen.append(event)  # noqa: PERF401 -- an async comprehension that is cancelled would leave nothing

    with trio.fail_after(5), broker.watch() as slow, broker.watch() as quick:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all, quick)
            for _ in range(11):
                async with trio.open_nursery() as senders:
                    for n in range(100):
                        senders.start_soon(lambda n=n: iris.send(to="ruth", body=f"{n}"))
            kept = [event async for event in slow]
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert [event.message.id for event in kept] == list(range(1, 1025))
    assert [event.message.id for event in seen] == list(range(1, 1101))


async def test_a_watcher_that_left_is_forgotten(broker):
    """REL-4."""
    with broker.watch() as events:
        events.close()
        await broker.mailbox("iris").send(to="ruth", body="x")
        assert not broker._engine._watchers._channels
    with broker.watch():
        pass
    assert not broker._engine._watchers._channels


async def test_a_channel_ends_when_the_broker_closes(path):
    """STOP-3: after what it holds."""
    with trio.fail_after(5), ExitStack() as watching:
        async with open_broker(path, owner="test") as broker:
            await broker.set_agents(["iris"])
            events = watching.enter_context(broker.watch())
            sent = await broker.mailbox("iris").send(to="iris", body="x")
        assert [event.message.id async for event in events] == [sent.id]
