"""What every mailbox does, whatever is behind it: one suite over all implementations.

The functions take ``mailboxes``, a fixture that gives a ``Mailboxes`` with the agents of ``AGENTS``. A module that
runs the suite imports all names of this one.
"""

import json
from collections.abc import Collection
from typing import Protocol

import pytest
import trio
import trio.testing

from hive_agent._ports import Mailbox
from hive_broker import MAX_BODY_BYTES, RECV_CAP, Acked, InboxSummary, MessageRefused, Sent, TurnClosed, TurnOver

AGENTS = ("iris", "ruth", "otto")


class Mailboxes(Protocol):
    """What an implementation has to offer for the suite to run over it."""

    async def set_agents(self, names: Collection[str]) -> None:
        """Make these the agents."""

    def mailbox(self, name: str, *, allowed_recipients: Collection[str] = ()) -> Mailbox:
        """One agent's door, or the operator's."""

    async def deliver(self, sender: str, to: str, body: str) -> Sent:
        """Store a message of a label."""


def ids(received):
    return [delivery.message.id for delivery in received.deliveries]


async def test_what_is_sent_is_received_as_it_was(mailboxes):
    """MSG-1, MSG-4: id, sender, recipient, body and thread come out as they went in."""
    body = "line one\nline two \N{GREEK SMALL LETTER LAMDA} \U0001f41d"
    sent = await mailboxes.mailbox("iris").send(to="ruth", body=body)
    received = await mailboxes.mailbox("ruth").recv()
    (delivery,) = received.deliveries
    message = delivery.message
    assert (message.id, message.sender, message.recipient, message.body) == (sent.id, "iris", "ruth", body)
    assert (message.thread_id, message.in_reply_to) == (sent.id, None)
    assert (message.acked_at, message.dead_at) == (None, None)
    assert (delivery.attempt, delivery.redelivered, received.remaining) == (1, False, 0)
    assert not sent.duplicate


async def test_recv_of_an_empty_inbox_answers_at_once_with_nothing(mailboxes):
    """MSG-4: recv never blocks."""
    received = await mailboxes.mailbox("ruth").recv(limit=RECV_CAP)
    assert (received.deliveries, received.remaining) == ((), 0)


async def test_recv_pops_the_oldest_first_and_says_how_many_are_left(mailboxes):
    """MSG-4."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    sent = [(await iris.send(to="ruth", body=f"{n}")).id for n in range(8)]
    first = await ruth.recv(limit=5)
    second = await ruth.recv(limit=2)
    assert (ids(first), first.remaining) == (sent[:5], 3)
    assert (ids(second), second.remaining) == (sent[5:7], 1)


@pytest.mark.parametrize("limit", [0, -1, RECV_CAP + 1])
async def test_recv_takes_a_limit_of_its_range_only(mailboxes, limit):
    """MSG-4: clamping is for the caller, who can say so."""
    with pytest.raises(ValueError, match="limit must be 1 to 5"):
        await mailboxes.mailbox("ruth").recv(limit=limit)


async def test_a_turn_that_ends_well_acks_what_it_popped_and_nothing_else(mailboxes):
    """MSG-5."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    sent = [(await iris.send(to="ruth", body=f"{n}")).id for n in range(3)]
    turn = await ruth.open_turn(cause="mail")
    assert ids(await ruth.recv(limit=2, turn_id=turn.id)) == sent[:2]
    closed = await ruth.close_turn(turn.id, acked=True, record={"outcome": "done"})
    assert closed == TurnClosed(acked=tuple(sent[:2]), returned=(), dead=())
    assert ids(await ruth.recv(limit=5)) == sent[2:]


async def test_a_turn_that_fails_returns_its_rows_marked_and_before_newer_ones(mailboxes):
    """MSG-5, failure 1: at least once, oldest first, with the number of the attempt."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    old = (await iris.send(to="ruth", body="old")).id
    turn = await ruth.open_turn(cause="mail")
    await ruth.recv(turn_id=turn.id)
    new = (await iris.send(to="ruth", body="new")).id
    closed = await ruth.close_turn(turn.id, acked=False, record={})
    assert closed == TurnClosed(acked=(), returned=(old,), dead=())
    again = await ruth.recv(limit=5)
    assert ids(again) == [old, new]
    assert [(d.attempt, d.redelivered) for d in again.deliveries] == [(2, True), (1, False)]


async def test_mail_that_comes_during_a_turn_is_neither_acked_nor_lost_by_its_end(mailboxes):
    """MSG-5, failures 4 and 10: only what was popped is the turn's."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    turn = await ruth.open_turn(cause="operator")
    late = await iris.send(to="ruth", body="late")
    closed = await ruth.close_turn(turn.id, acked=True, record={})
    assert closed == TurnClosed(acked=(), returned=(), dead=())
    await ruth.wait_unread()
    assert ids(await ruth.recv()) == [late.id]


async def test_rows_in_flight_are_not_popped_twice(mailboxes):
    """MSG-5."""
    await mailboxes.mailbox("iris").send(to="ruth", body="once")
    ruth = mailboxes.mailbox("ruth")
    assert len(ids(await ruth.recv())) == 1
    assert ids(await mailboxes.mailbox("ruth").recv()) == []


async def test_turns_that_fail_over_something_else_make_no_dead_letter(mailboxes):
    """MSG-6: a night of rate limits is not the message's fault; it is still marked as redelivered."""
    ruth, iris = mailboxes.mailbox("ruth"), mailboxes.mailbox("iris")
    await iris.send(to="ruth", body="patience")
    for attempt in range(1, 12):
        turn = await ruth.open_turn(cause="mail")
        (delivery,) = (await ruth.recv(turn_id=turn.id)).deliveries
        assert delivery.attempt == attempt
        closed = await ruth.close_turn(turn.id, acked=False, record={}, blameless=True)
        assert closed.dead == ()
    assert (await ruth.summary()).redelivered == 1


async def test_after_five_failed_turns_a_row_is_dead_and_its_sender_is_told_once(mailboxes):
    """MSG-6, failure 8: kept, not handed out again, and no silence for the sender."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    sent = await iris.send(to="ruth", body="poison")
    for attempt in range(1, 6):
        turn = await ruth.open_turn(cause="mail")
        (delivery,) = (await ruth.recv(turn_id=turn.id)).deliveries
        assert delivery.attempt == attempt
        closed = await ruth.close_turn(turn.id, acked=False, record={})
    assert closed == TurnClosed(acked=(), returned=(), dead=(sent.id,))
    assert ids(await ruth.recv()) == []
    (notice,) = (await iris.recv(limit=5)).deliveries
    said = json.loads(notice.message.body)
    assert (notice.message.sender, notice.message.in_reply_to) == ("system", sent.id)
    assert (said["event"], said["id"], said["to"], said["attempts"]) == ("dead_letter", sent.id, "ruth", 5)
    assert await ruth.ack_until(sent.id) == Acked(acked=0, never_read=0)


async def test_ack_until_stamps_read_and_unread_rows_up_to_an_id_of_the_caller_only(mailboxes):
    """MSG-7."""
    iris, ruth, otto = (mailboxes.mailbox(name) for name in AGENTS)
    first = await iris.send(to="ruth", body="1")
    theirs = await iris.send(to="otto", body="not ruth's")
    second = await iris.send(to="ruth", body="2")
    third = await iris.send(to="ruth", body="3")
    await ruth.recv()
    assert first.id < theirs.id < second.id
    assert await ruth.ack_until(second.id) == Acked(acked=2, never_read=1)
    assert await ruth.ack_until(second.id) == Acked(acked=0, never_read=0)
    assert ids(await ruth.recv(limit=5)) == [third.id]
    assert ids(await otto.recv()) == [theirs.id]


@pytest.mark.parametrize("up_to", [-1, 0, 2**63, 10**30])
async def test_ack_until_takes_any_number(mailboxes, up_to):
    """MSG-7, MSG-8: nothing to ack at id 0 and below, everything at a number above all ids."""
    await mailboxes.mailbox("iris").send(to="ruth", body="1")
    assert (await mailboxes.mailbox("ruth").ack_until(up_to)).acked == (1 if up_to > 0 else 0)


async def test_a_row_acked_in_flight_stays_acked_when_its_turn_fails(mailboxes):
    """MSG-7: acked rows never come back."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    first = await iris.send(to="ruth", body="1")
    second = await iris.send(to="ruth", body="2")
    turn = await ruth.open_turn(cause="mail")
    await ruth.recv(limit=2, turn_id=turn.id)
    await ruth.ack_until(first.id)
    closed = await ruth.close_turn(turn.id, acked=False, record={})
    assert closed == TurnClosed(acked=(), returned=(second.id,), dead=())


async def test_the_same_send_again_in_its_turn_is_the_first_one(mailboxes):
    """MSG-9: a retry after a lost answer makes no second message."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    turn = await iris.open_turn(cause="mail")
    first = await iris.send(to="ruth", body="done", turn_id=turn.id)
    again = await iris.send(to="ruth", body="done", turn_id=turn.id)
    assert (again.id, again.duplicate) == (first.id, True)
    assert ids(await ruth.recv(limit=5)) == [first.id]


async def test_sends_that_differ_or_belong_to_no_turn_or_another_are_all_stored(mailboxes):
    """MSG-9: only the same recipient, body and in_reply_to, within one turn, is a repetition."""
    iris = mailboxes.mailbox("iris")
    asked = await mailboxes.mailbox("ruth").send(to="iris", body="well?")
    turn = await iris.open_turn(cause="mail")
    sent = [
        await iris.send(to="ruth", body="done", turn_id=turn.id),
        await iris.send(to="otto", body="done", turn_id=turn.id),
        await iris.send(to="ruth", body="done.", turn_id=turn.id),
        await iris.send(to="ruth", body="done", in_reply_to=asked.id, turn_id=turn.id),
        await iris.send(to="ruth", body="done"),
        await iris.send(to="ruth", body="done"),
    ]
    await iris.close_turn(turn.id, acked=True, record={})
    next_turn = await iris.open_turn(cause="mail")
    sent.append(await iris.send(to="ruth", body="done", turn_id=next_turn.id))
    assert len({each.id for each in sent}) == len(sent)
    assert not any(each.duplicate for each in sent)


async def test_a_reply_joins_the_thread_of_what_it_answers(mailboxes):
    """MSG-11."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    asked = await iris.send(to="ruth", body="when?")
    answered = await ruth.send(to="iris", body="now", in_reply_to=asked.id)
    await iris.send(to="ruth", body="good", in_reply_to=answered.id)
    first, last = (await ruth.recv(limit=5)).deliveries
    assert (first.message.thread_id, last.message.thread_id) == (asked.id, asked.id)
    assert last.message.in_reply_to == answered.id


@pytest.mark.parametrize("reply", [0, -1, 999, 2**63, 10**30])
async def test_a_reply_to_nothing_is_refused(mailboxes, reply):
    """MSG-3: in words, whatever the number."""
    with pytest.raises(MessageRefused, match="in_reply_to must be a message you sent or received"):
        await mailboxes.mailbox("iris").send(to="ruth", body="x", in_reply_to=reply)


async def test_a_reply_to_mail_between_others_is_refused_and_stores_nothing(mailboxes):
    """MSG-3: the sentence is the one for an id that is not there."""
    theirs = await mailboxes.mailbox("iris").send(to="ruth", body="secret")
    with pytest.raises(MessageRefused, match="in_reply_to must be a message you sent or received"):
        await mailboxes.mailbox("otto").send(to="ruth", body="and?", in_reply_to=theirs.id)
    assert ids(await mailboxes.mailbox("ruth").recv(limit=5)) == [theirs.id]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("", "body with something in it"),
        (" \n\t ", "body with something in it"),
        ("half \ud83d", "half a surrogate pair at 5"),
        ("a\0b", "NUL characters, got one at 1"),
        ("x" * (MAX_BODY_BYTES + 1), f"at most {MAX_BODY_BYTES} bytes in UTF-8, this one has {MAX_BODY_BYTES + 1}"),
        ("\N{GREEK SMALL LETTER LAMDA}" * (MAX_BODY_BYTES // 2 + 1), f"this one has {MAX_BODY_BYTES + 2}"),
    ],
    ids=["empty", "blank", "surrogate", "nul", "too long", "too long in bytes"],
)
async def test_a_body_that_cannot_be_stored_is_refused_in_words(mailboxes, body, sentence):
    """MSG-3."""
    with pytest.raises(MessageRefused, match=sentence):
        await mailboxes.mailbox("iris").send(to="ruth", body=body)
    assert (await mailboxes.mailbox("ruth").summary()).unread == 0


async def test_the_largest_body_is_accepted(mailboxes):
    """MSG-3: the limit is inclusive."""
    body = "\N{GREEK SMALL LETTER LAMDA}" * (MAX_BODY_BYTES // 2)
    await mailboxes.mailbox("iris").send(to="ruth", body=body)
    assert (await mailboxes.mailbox("ruth").recv()).deliveries[0].message.body == body


@pytest.mark.parametrize(
    ("to", "sentence"),
    [
        ("irsi", "did you mean iris"),
        ("Otto", "did you mean otto"),
        ("somebody", "there are iris, operator, otto, ruth"),
        ("", "there is no agent ''"),
        ("system", "'system' is a reserved name"),
        ("graceful-stop", "'graceful-stop' is a reserved name"),
        ("../etc/passwd", "there is no agent '../etc/passwd'"),
        ("x\ud800", "there is no agent"),
        ("x" * 10_000, r"xxx\.\.\. to write to"),
    ],
)
async def test_an_unknown_recipient_is_refused_with_the_closest_names(mailboxes, to, sentence):
    """MSG-3."""
    with pytest.raises(MessageRefused, match=sentence):
        await mailboxes.mailbox("iris").send(to=to, body="hello?")


async def test_an_allow_list_limits_recipients_but_never_the_operator(mailboxes):
    """MSG-2: the refusal names who is allowed and stores nothing."""
    iris = mailboxes.mailbox("iris", allowed_recipients=["otto"])
    with pytest.raises(MessageRefused, match=r"you can write to operator, otto only, not to 'ruth'"):
        await iris.send(to="ruth", body="x")
    await iris.send(to="otto", body="x")
    await iris.send(to="operator", body="x")
    assert (await mailboxes.mailbox("ruth").summary()).unread == 0
    assert (await mailboxes.mailbox("operator").summary()).unread == 1


async def test_an_agent_may_write_to_itself_and_the_operator_to_agents(mailboxes):
    """MSG-1."""
    iris = mailboxes.mailbox("iris")
    await iris.send(to="iris", body="note to self")
    await mailboxes.mailbox("operator").send(to="iris", body="go on")
    assert (await iris.summary()).senders == (("iris", 1), ("operator", 1))


async def test_an_agent_that_left_takes_no_mail_sends_none_and_keeps_its_rows(mailboxes):
    """MSG-3."""
    iris, otto = mailboxes.mailbox("iris"), mailboxes.mailbox("otto")
    kept = await iris.send(to="otto", body="before")
    await mailboxes.set_agents(["iris", "ruth"])
    with pytest.raises(MessageRefused, match="otto is no agent of this hive any more"):
        await iris.send(to="otto", body="after")
    with pytest.raises(MessageRefused, match="only agents of this hive can send"):
        await otto.send(to="iris", body="from beyond")
    await mailboxes.set_agents(AGENTS)
    assert ids(await otto.recv(limit=5)) == [kept.id]


async def test_summary_shows_the_unread_and_pops_nothing(mailboxes):
    """TURN-3: what a wake prompt is made of."""
    iris, ruth, otto = (mailboxes.mailbox(name) for name in AGENTS)
    assert await ruth.summary() == InboxSummary(unread=0, redelivered=0, senders=(), oldest_sent_at=None)
    await otto.send(to="ruth", body="1")
    await iris.send(to="ruth", body="2")
    await iris.send(to="ruth", body="3")
    turn = await ruth.open_turn(cause="mail")
    (popped,) = (await ruth.recv(turn_id=turn.id)).deliveries
    await ruth.close_turn(turn.id, acked=False, record={})
    summary = await ruth.summary()
    assert (summary.unread, summary.redelivered, summary.senders) == (3, 1, (("otto", 1), ("iris", 2)))
    assert summary.oldest_sent_at == popped.message.sent_at
    assert await ruth.summary() == summary


async def test_wait_unread_returns_at_once_for_mail_that_is_already_there(mailboxes):
    """TURN-2, failure 9: a level, not a transition."""
    await mailboxes.mailbox("iris").send(to="ruth", body="x")
    ruth = mailboxes.mailbox("ruth")
    await ruth.wait_unread()
    await ruth.wait_unread()


async def test_wait_unread_wakes_everybody_who_waits_when_mail_comes(mailboxes):
    """TURN-2."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailboxes.mailbox("ruth").wait_unread)
        nursery.start_soon(mailboxes.mailbox("ruth").wait_unread)
        await trio.testing.wait_all_tasks_blocked()
        await mailboxes.mailbox("iris").send(to="ruth", body="x")


async def test_wait_unread_wakes_when_a_failed_turn_returns_rows(mailboxes):
    """TURN-2, MSG-5."""
    await mailboxes.mailbox("iris").send(to="ruth", body="x")
    ruth = mailboxes.mailbox("ruth")
    turn = await ruth.open_turn(cause="mail")
    await ruth.recv(turn_id=turn.id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ruth.wait_unread)
        await trio.testing.wait_all_tasks_blocked()
        await ruth.close_turn(turn.id, acked=False, record={})


async def test_mail_for_others_and_mail_that_is_handled_wake_nobody(mailboxes):
    """TURN-2, failure 11: a wake whose cause is gone starts nothing."""
    iris, ruth, _ = (mailboxes.mailbox(name) for name in AGENTS)
    handled = await iris.send(to="ruth", body="x")
    await ruth.ack_until(handled.id)
    woken = trio.Event()

    async def wait():
        await ruth.wait_unread()
        woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await iris.send(to="otto", body="x")
        await trio.testing.wait_all_tasks_blocked()
        assert not woken.is_set()
        nursery.cancel_scope.cancel()


async def test_an_agent_has_one_open_turn(mailboxes):
    """TURN-4."""
    ruth = mailboxes.mailbox("ruth")
    turn = await ruth.open_turn(cause="mail")
    assert turn.agent == "ruth"
    with pytest.raises(TurnOver, match=f"turn {turn.id} of ruth still is"):
        await ruth.open_turn(cause="mail")
    other = await mailboxes.mailbox("iris").open_turn(cause="mail")
    await ruth.close_turn(turn.id, acked=True, record={})
    later = await ruth.open_turn(cause="mail")
    assert len({turn.id, other.id, later.id}) == 3


async def test_closing_a_turn_again_changes_nothing(mailboxes):
    """MSG-5: a retry after a lost answer is safe."""
    ruth = mailboxes.mailbox("ruth")
    await mailboxes.mailbox("iris").send(to="ruth", body="x")
    turn = await ruth.open_turn(cause="mail")
    await ruth.recv(turn_id=turn.id)
    await ruth.close_turn(turn.id, acked=True, record={})
    nothing = TurnClosed(acked=(), returned=(), dead=())
    assert await ruth.close_turn(turn.id, acked=False, record={}) == nothing
    assert (await ruth.summary()).unread == 0


@pytest.mark.parametrize("which", ["closed", "another's", "never opened", "impossible"])
async def test_a_turn_that_is_not_open_for_the_caller_pops_and_sends_nothing(mailboxes, which):
    """MSG-5, TURN-4."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    await iris.send(to="ruth", body="x")
    mine, theirs = await ruth.open_turn(cause="mail"), await iris.open_turn(cause="mail")
    await ruth.close_turn(mine.id, acked=True, record={})
    turn_id = {"closed": mine.id, "another's": theirs.id, "never opened": 999, "impossible": 2**80}[which]
    with pytest.raises(TurnOver, match="is not an open turn of ruth"):
        await ruth.recv(turn_id=turn_id)
    with pytest.raises(TurnOver, match="is not an open turn of ruth"):
        await ruth.send(to="iris", body="x", turn_id=turn_id)
    if which != "closed":
        with pytest.raises(TurnOver, match="is no turn of ruth"):
            await ruth.close_turn(turn_id, acked=True, record={})
    assert ((await ruth.summary()).unread, (await iris.summary()).unread) == (1, 0)


async def test_a_label_can_wake_an_agent(mailboxes):
    """WAKE-2."""
    await mailboxes.deliver("ci pipeline", "ruth", "the build is red")
    (delivery,) = (await mailboxes.mailbox("ruth").recv()).deliveries
    assert (delivery.message.sender, delivery.message.body) == ("ci pipeline", "the build is red")


async def test_a_call_that_was_cancelled_before_it_began_did_nothing(mailboxes):
    """EMBED-1: Cancelled means that nothing happened."""
    iris, ruth = mailboxes.mailbox("iris"), mailboxes.mailbox("ruth")
    with trio.CancelScope() as scope:
        scope.cancel()
        await iris.send(to="ruth", body="never")
    assert scope.cancelled_caught
    assert (await ruth.summary()).unread == 0
