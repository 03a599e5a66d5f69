"""What the operator and the hive see of messages, and what the hive itself may send."""

import pytest

from hive_broker import BrokerMailbox, InboxCounts, MessageRefused, open_broker
from hive_broker._flow import Done


def ids(messages):
    return [message.id for message in messages]


async def test_an_inbox_is_seen_newest_first_with_what_is_handled_and_pops_nothing(broker):
    """HOST-2, failure 1: read mail does not vanish from view."""
    iris, ruth = broker.mailbox("iris"), broker.mailbox("ruth")
    sent = [(await iris.send(to="ruth", body=f"{n}")).id for n in range(5)]
    await ruth.ack_until(sent[1])
    await ruth.recv()
    assert ids(await broker.inbox("ruth")) == sent[::-1]
    assert ids(await broker.inbox("ruth", unread_only=True)) == [sent[4], sent[3]]
    assert ids(await broker.inbox("ruth", limit=2)) == [sent[4], sent[3]]
    assert ids(await broker.inbox("ruth", limit=2, before_id=sent[3])) == [sent[2], sent[1]]
    acked = (await broker.inbox("ruth", before_id=sent[1]))[0]
    assert acked.acked_at is not None
    assert (await ruth.summary()).unread == 2


@pytest.mark.parametrize("name", ["nobody", "", "x\ud800", "system"])
async def test_the_inbox_of_nobody_is_empty(broker, name):
    """HOST-2."""
    assert await broker.inbox(name) == ()


async def test_a_thread_is_seen_whole_from_any_of_its_messages(broker):
    """MSG-11."""
    iris, ruth = broker.mailbox("iris"), broker.mailbox("ruth")
    first = await iris.send(to="ruth", body="1")
    await iris.send(to="ruth", body="another thread")
    second = await ruth.send(to="iris", body="2", in_reply_to=first.id)
    third = await ruth.send(to="operator", body="3", in_reply_to=second.id)
    fourth = await broker.mailbox("operator").send(to="iris", body="4", in_reply_to=third.id)
    chain = [first.id, second.id, third.id, fourth.id]
    assert [ids(await broker.thread(id_)) for id_ in chain] == [chain] * 4


@pytest.mark.parametrize("message_id", [-1, 0, 1, 2**80])
async def test_the_thread_of_no_message_is_empty(broker, message_id):
    """MSG-11."""
    assert await broker.thread(message_id) == ()


async def test_a_very_long_thread_is_seen_by_its_newest_thousand(broker):
    """MSG-11, REL-4."""
    iris = broker.mailbox("iris")
    first = await iris.send(to="iris", body="first")
    await broker._engine.change(
        lambda db: Done(
            db.execute(
                """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100)
                   INSERT INTO messages (sender, from_mailbox, recipient, body, thread_id, sent_at, in_reply_to)
                   SELECT 'iris', 1, 'iris', 'x', ?, 0, ? FROM n""",
                (first.id, first.id),
            ).get
        )
    )
    found = ids(await broker.thread(first.id))
    assert found == list(range(first.id + 101, first.id + 1101))


async def test_history_is_everybodys_newest_first(broker):
    """DASH-1."""
    sent = [(await broker.mailbox(name).send(to="ruth", body="x")).id for name in ("iris", "otto", "operator")]
    assert ids(await broker.history()) == sent[::-1]
    assert ids(await broker.history(limit=1)) == sent[2:]
    assert ids(await broker.history(before_id=sent[1])) == sent[:1]
    assert await broker.history(before_id=-(2**80)) == ()


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_a_size_within_reason(broker, limit):
    """REL-4."""
    with pytest.raises(ValueError, match="limit must be 1 to 1000"):
        await broker.history(limit=limit)
    with pytest.raises(ValueError, match="limit must be 1 to 1000"):
        await broker.inbox("ruth", limit=limit)
    with pytest.raises(ValueError, match="limit must be 1 to 1000"):
        await broker.dead_letters(limit=limit)


async def test_counts_tell_unread_in_flight_and_dead_of_every_inbox(path):
    """DASH-1: idle ones with zeros, and agents that left as long as something of theirs is open."""
    async with open_broker(path, owner="test", max_deliveries=1) as broker:
        await broker.set_agents(["iris", "ruth", "otto"])
        iris, ruth = broker.mailbox("iris"), broker.mailbox("ruth")
        for n in range(4):
            await iris.send(to="ruth", body=f"{n}")
        await iris.send(to="otto", body="x")
        turn = await ruth.open_turn(cause="mail")
        await ruth.recv(turn_id=turn.id)
        await ruth.close_turn(turn.id, acked=False, record={})
        await ruth.recv()
        await broker.set_agents(["iris", "ruth"])
        assert await broker.counts() == {
            "iris": InboxCounts(unread=1),
            "operator": InboxCounts(),
            "otto": InboxCounts(unread=1),
            "ruth": InboxCounts(unread=2, in_flight=1, dead=1),
        }


async def test_dead_letters_are_seen_newest_first(path):
    """MSG-6: kept, and shown to the operator."""
    async with open_broker(path, owner="test", max_deliveries=1) as broker:
        await broker.set_agents(["iris", "ruth"])
        ruth = broker.mailbox("ruth")
        sent = [(await broker.mailbox("iris").send(to="ruth", body=f"{n}")).id for n in range(3)]
        turn = await ruth.open_turn(cause="mail")
        await ruth.recv(limit=2, turn_id=turn.id)
        await ruth.close_turn(turn.id, acked=False, record={})
        assert ids(await broker.dead_letters()) == [sent[1], sent[0]]
        assert ids(await broker.dead_letters(limit=1)) == [sent[1]]
        (oldest,) = await broker.dead_letters(before_id=sent[1])
        assert (oldest.id, oldest.body) == (sent[0], "0")
        assert oldest.dead_at is not None


async def test_the_hive_itself_can_write_to_agents_and_the_operator(broker):
    """SYS-1."""
    await broker.deliver("system", "ruth", '{"event": "needs_update"}')
    await broker.deliver("ci", "operator", "x")
    assert [(m.sender, m.recipient) for m in await broker.history()] == [("ci", "operator"), ("system", "ruth")]


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ("", "1 to 63 printable ASCII"),
        (" ci", "no space at an end"),
        ("a\nb", "1 to 63 printable ASCII"),
        ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "1 to 63 printable ASCII"),
        ("x" * 64, "1 to 63 printable ASCII"),
        ("operator", "must not be a reserved name"),
        ("graceful-stop", "must not be a reserved name"),
        ("iris", "must not be an agent's name"),
    ],
)
async def test_a_label_is_nobodys_name(broker, label, sentence):
    """WAKE-2, failure 23: nobody writes as somebody else."""
    with pytest.raises(MessageRefused, match=sentence):
        await broker.deliver(label, "ruth", "x")
    assert await broker.history() == ()


@pytest.mark.parametrize(("to", "body"), [("nobody", "x"), ("system", "x"), ("ruth", " "), ("ruth", "a\0")])
async def test_a_wake_is_checked_like_any_message(broker, to, body):
    """WAKE-2, MSG-3."""
    with pytest.raises(MessageRefused):
        await broker.deliver("ci", to, body)
    assert await broker.history() == ()


async def test_an_agent_named_like_an_earlier_label_or_agent_is_not_its_heir(path):
    """WAKE-2, MSG-3, MSG-6: what a label wrote is not the agent's, neither to answer to nor to be told of."""
    async with open_broker(path, owner="test", max_deliveries=1) as broker:
        await broker.set_agents(["ruth"])
        sent = await broker.deliver("ci", "ruth", "red")
        await broker.set_agents(["ruth", "ci"])
        with pytest.raises(MessageRefused, match="in_reply_to"):
            await broker.mailbox("ci").send(to="ruth", body="and?", in_reply_to=sent.id)
        turn = await broker.mailbox("ruth").open_turn(cause="mail")
        await broker.mailbox("ruth").recv(turn_id=turn.id)
        await broker.mailbox("ruth").close_turn(turn.id, acked=False, record={})
        assert (await broker.mailbox("ci").summary()).unread == 0
        await broker.set_agents(["ruth"])
        with pytest.raises(MessageRefused, match="must not be an agent's name"):
            await broker.deliver("ci", "ruth", "red")


@pytest.mark.parametrize("name", ["system", "", "UPPER", "a/b", "-a", "x" * 64])
async def test_only_names_of_agents_make_agents_and_mailboxes(broker, name):
    """SEC-4."""
    with pytest.raises(ValueError, match="an agent's name must be"):
        broker.mailbox(name)
    with pytest.raises(ValueError, match="an agent's name must be"):
        await broker.set_agents(["iris", name])
    assert isinstance(broker.mailbox("operator"), BrokerMailbox)
