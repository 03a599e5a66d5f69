"""What the operator does with messages that nobody could finish (MSG-6)."""

import pytest
import trio
import trio.testing

from hive_broker import InboxCounts, MessagesAcked, MessagesReturned, RequestRefused, open_broker


@pytest.fixture
async def broker(path):
    """A broker in which one failed delivery is one too many."""
    async with open_broker(path, owner="test", max_deliveries=1) as opened:
        await opened.set_agents(["iris", "ruth"])
        yield opened


async def kill(broker, *bodies):
    """Have messages to ruth become dead letters; give their ids."""
    ruth = broker.mailbox("ruth")
    sent = [(await broker.mailbox("operator").send(to="ruth", body=body)).id for body in bodies]
    turn = await ruth.open_turn(cause="mail")
    await ruth.recv(limit=len(bodies), turn_id=turn.id)
    closed = await ruth.close_turn(turn.id, acked=False, record={})
    assert closed.dead == tuple(sent)
    return sent


async def test_a_requeued_letter_is_new_again(broker):
    """MSG-6: unread, with no attempt behind it, first in its inbox, and its recipient wakes."""
    first, second = await kill(broker, "1", "2")
    ruth = broker.mailbox("ruth")
    await broker.mailbox("iris").send(to="ruth", body="3")
    await ruth.recv()
    with trio.fail_after(5), broker.watch() as events:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ruth.wait_unread)
            await trio.testing.wait_all_tasks_blocked()
            message = await broker.requeue_dead_letter(second)
        assert await events.receive() == MessagesReturned(agent="ruth", ids=(second,))
    assert (message.id, message.attempts, message.dead_at, message.body) == (second, 0, None, "2")
    assert [letter.id for letter in await broker.dead_letters()] == [first]
    (delivery,) = (await ruth.recv(limit=5)).deliveries
    assert (delivery.message.id, delivery.attempt) == (second, 1)


async def test_a_requeued_letter_can_die_again(broker):
    """MSG-6: its attempts are counted anew."""
    (letter,) = await kill(broker, "1")
    ruth = broker.mailbox("ruth")
    for _ in range(2):
        await broker.requeue_dead_letter(letter)
        turn = await ruth.open_turn(cause="mail")
        await ruth.recv(turn_id=turn.id)
        assert (await ruth.close_turn(turn.id, acked=False, record={})).dead == (letter,)
    assert [message.id for message in await broker.dead_letters()] == [letter]


async def test_a_dropped_letter_is_kept_with_a_mark(broker):
    """MSG-6: never handed out, never a dead letter again, still to be seen."""
    (letter,) = await kill(broker, "1")
    with broker.watch() as events:
        message = await broker.drop_dead_letter(letter)
        assert events.receive_nowait() == MessagesAcked(agent="ruth", ids=(letter,))
    assert message.dropped_at is not None
    assert (message.acked_at, message.dead_at) == (message.dropped_at, None)
    assert await broker.dead_letters() == ()
    assert (await broker.counts())["ruth"] == InboxCounts()
    assert (await broker.mailbox("ruth").recv()).deliveries == ()
    thread = await broker.thread(letter)
    assert thread[0] == message
    assert (await broker.inbox("ruth"))[0] == message


async def test_only_a_dead_letter_can_be_requeued_or_dropped(broker):
    """MSG-6: the refusal says what the message is, and nothing changes."""
    ruth = broker.mailbox("ruth")
    (letter,) = await kill(broker, "1")
    await broker.drop_dead_letter(letter)
    handled = (await broker.mailbox("iris").send(to="ruth", body="2")).id
    await ruth.ack_until(handled)
    unread = (await broker.mailbox("iris").send(to="ruth", body="3")).id
    before = await broker.history()
    for verb in (broker.requeue_dead_letter, broker.drop_dead_letter):
        for message_id, sentence in (
            (letter, "is no dead letter, it is dropped already"),
            (handled, "is no dead letter, it is handled"),
            (unread, "is no dead letter, it is still in its inbox"),
            (unread + 1, f"there is no message #{unread + 1}"),
            (0, "there is no message #0"),
            (2**80, "there is no message"),
        ):
            with pytest.raises(RequestRefused, match=sentence):
                await verb(message_id)
    assert await broker.history() == before


async def test_a_letter_to_an_agent_that_left_can_be_dropped_only(broker):
    """MSG-6, MSG-3: nobody would ever pop it."""
    (letter,) = await kill(broker, "1")
    await broker.set_agents(["iris"])
    with pytest.raises(RequestRefused, match="ruth is no agent of this hive any more"):
        await broker.requeue_dead_letter(letter)
    assert (await broker.drop_dead_letter(letter)).dropped_at is not None


async def test_a_letter_to_the_operator_can_be_requeued(broker):
    """MSG-6: the operator's client is a reader like any other."""
    operator = broker.mailbox("operator")
    sent = await broker.mailbox("iris").send(to="operator", body="1")
    turn = await operator.open_turn(cause="look")
    await operator.recv(turn_id=turn.id)
    await operator.close_turn(turn.id, acked=False, record={})
    await broker.requeue_dead_letter(sent.id)
    assert (await operator.summary()).unread >= 1
