"""The client of a mailbox's socket: what its caller is promised while the other end comes and goes (SURF-4)."""

import json
from collections import Counter
from functools import partial

import pytest
import trio
import trio.testing
from socket_peers import Peer, listen

from hive_broker import (
    BrokerClosed,
    BrokerUnavailable,
    MailboxSocketRefused,
    MailboxSocketUnusable,
    MessageRefused,
    open_mailbox_client,
)

ANSWERS = {
    "attach": None,
    "send": {"id": 7},
    "recv": {"deliveries": [], "remaining": 0},
    "summary": {"unread": 0, "redelivered": 0, "senders": [], "oldest_sent_at": None},
    "open_turn": {"id": 3, "agent": "ruth", "opened_at": 1.0},
    "close_turn": {"acked": [], "returned": [], "dead": []},
}


class Server:
    """A broker's end without a broker: answers what it is not told to keep quiet about."""

    def __init__(self):
        self.asked = []
        self.quiet = set()
        self.heard = {}
        self.connections = 0
        self.hangs_up = False

    def when_heard(self, method):
        return self.heard.setdefault(method, trio.Event())

    async def handle(self, stream):
        self.connections += 1
        peer = Peer(stream)
        while not self.hangs_up and (request := await self._next(peer)) is not None:
            self.asked.append(request)
            self.when_heard(request["method"]).set()
            if request["method"] not in self.quiet:
                await peer.say({"version": 1, "id": request["id"], "ok": True, "result": ANSWERS[request["method"]]})

    async def _next(self, peer):
        try:
            line = await peer._reader.next_line()
        except trio.BrokenResourceError:
            return None
        return None if line is None else json.loads(line)

    def methods(self):
        return [request["method"] for request in self.asked]


@pytest.fixture
async def server(tmp_path, nursery):
    made = Server()
    await listen(tmp_path / "mcp.sock", made.handle, nursery)
    return made


@pytest.fixture
async def mailbox(tmp_path):
    async with open_mailbox_client(tmp_path / "mcp.sock", name="ruth", runs_turns=True) as opened:
        yield opened


async def test_a_call_made_while_nobody_is_there_is_answered_when_somebody_comes(
    tmp_path, mailbox, nursery, autojump_clock
):
    """SURF-4."""
    server = Server()

    async def come_later():
        await trio.sleep(30)
        await listen(tmp_path / "mcp.sock", server.handle, nursery)

    nursery.start_soon(come_later)
    assert (await mailbox.send(to="iris", body="x")).id == 7
    assert server.methods() == ["attach", "send"]


async def test_a_call_that_nobody_takes_says_so_within_a_minute_and_did_nothing(mailbox, autojump_clock):
    """SURF-4: in words, and before its caller gives up after 60 s."""
    with trio.fail_after(59), pytest.raises(BrokerUnavailable, match="nothing was done: try again") as caught:
        await mailbox.send(to="iris", body="x")
    assert not caught.value.may_be_done


async def test_a_call_that_was_heard_and_not_answered_says_that_it_may_be_done(server, mailbox, autojump_clock):
    """SURF-4: honest about what nobody knows."""
    server.quiet = {"send"}
    with trio.fail_after(59), pytest.raises(BrokerUnavailable, match="may be done, or not") as caught:
        await mailbox.send(to="iris", body="x")
    assert caught.value.may_be_done


async def test_looking_that_was_heard_and_not_answered_did_nothing(server, mailbox, autojump_clock):
    """SURF-4."""
    server.quiet = {"summary"}
    with pytest.raises(BrokerUnavailable) as caught:
        await mailbox.summary()
    assert not caught.value.may_be_done


async def test_the_wait_for_mail_outlasts_any_absence(mailbox, autojump_clock):
    """TURN-2: an idle agent waits, and asks nobody to try again."""
    with trio.move_on_after(5_000) as scope:
        await mailbox.wait_unread()
    assert scope.cancelled_caught


async def test_all_who_wait_for_mail_wait_as_one(server, mailbox, nursery):
    """REL-4: cancelled waits do not pile up at the other end."""
    server.quiet = {"wait_unread"}
    for _ in range(20):
        nursery.start_soon(mailbox.wait_unread)
        with trio.CancelScope() as scope:
            scope.cancel()
            await mailbox.wait_unread()
    with trio.fail_after(5):
        await server.when_heard("wait_unread").wait()
    await mailbox.summary()
    assert Counter(server.methods())["wait_unread"] == 1
    nursery.cancel_scope.cancel()


async def test_tries_to_connect_are_few(tmp_path, nursery, mailbox, autojump_clock):
    """SURF-4: never hot, also not against one that lets in and hangs up."""
    server = Server()
    server.hangs_up = True
    await listen(tmp_path / "mcp.sock", server.handle, nursery)
    with trio.move_on_after(60):
        await mailbox.wait_unread()
    assert 25 < server.connections < 45


async def test_a_caller_cancelled_before_its_line_is_written_did_nothing(tmp_path, mailbox, nursery, autojump_clock):
    """EMBED-1: Cancelled means that nothing happened, and nothing does later."""
    with trio.move_on_after(5) as scope:
        await mailbox.send(to="iris", body="never")
    assert scope.cancelled_caught
    server = Server()
    await listen(tmp_path / "mcp.sock", server.handle, nursery)
    await mailbox.summary()
    assert server.methods() == ["attach", "summary"]


async def test_a_caller_cancelled_later_gets_its_answer(tmp_path, nursery, autojump_clock):
    """EMBED-1: also from a broker that was away for a moment."""
    server = Server()
    server.quiet = {"send"}
    path = tmp_path / "mcp.sock"
    await listen(path, server.handle, nursery)
    async with open_mailbox_client(path, name="ruth", runs_turns=True) as mailbox:
        with trio.CancelScope() as scope:

            async def cancel_and_answer():
                await server.when_heard("send").wait()
                scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                server.quiet = set()
                mailbox._link.reconnect()

            nursery.start_soon(cancel_and_answer)
            sent = await mailbox.send(to="iris", body="x")
        assert sent.id == 7
    assert server.methods() == ["attach", "send", "attach", "send"]
    assert server.asked[1]["id"] == server.asked[3]["id"]


async def test_a_caller_cancelled_later_waits_five_seconds_and_no_longer(server, mailbox, autojump_clock):
    """STOP-2: a stop is not held up by a broker that is gone."""
    server.quiet = {"send"}
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(mailbox.send, to="iris", body="x"))
            await server.when_heard("send").wait()
            cancelled_at = trio.current_time()
            scope.cancel()
    assert scope.cancelled_caught
    assert trio.current_time() - cancelled_at == pytest.approx(5)
    assert not mailbox._link._calls


async def test_rows_that_nobody_saw_are_not_acked_by_the_end_of_their_turn(server, mailbox, autojump_clock):
    """MSG-5: a recv that was given up may have popped something."""
    turn = await mailbox.open_turn(cause="mail")
    server.quiet = {"recv"}
    with pytest.raises(BrokerUnavailable):
        await mailbox.recv(turn_id=turn.id)
    await mailbox.close_turn(turn.id, acked=True, record={})
    assert server.asked[-1]["params"]["acked"] is False
    await mailbox.open_turn(cause="mail")
    await mailbox.close_turn(4, acked=True, record={})
    assert server.asked[-1]["params"]["acked"] is True


async def test_a_turn_that_may_be_open_is_ended_by_attaching_anew(server, mailbox, autojump_clock):
    """TURN-4: one that nobody knows of would keep all others from being opened."""
    server.quiet = {"open_turn"}
    with pytest.raises(BrokerUnavailable):
        await mailbox.open_turn(cause="mail")
    server.quiet = set()
    await mailbox.open_turn(cause="mail")
    assert server.methods() == ["attach", "open_turn", "attach", "open_turn"]
    assert [request["params"].get("has_turn") for request in server.asked] == [False, None, False, None]


async def test_a_turn_is_spoken_for_while_it_is_open_or_may_be(server, mailbox, autojump_clock):
    """TURN-4: whoever comes back says whether it has one."""
    server.quiet = {"open_turn"}
    async with trio.open_nursery() as opening:
        opening.start_soon(partial(mailbox.open_turn, cause="mail"))
        await server.when_heard("open_turn").wait()
        server.quiet = set()
        mailbox._link.reconnect()
    mailbox._link.reconnect()
    await mailbox.close_turn(3, acked=True, record={})
    mailbox._link.reconnect()
    await mailbox.summary()
    attached = [request["params"]["has_turn"] for request in server.asked if request["method"] == "attach"]
    assert attached == [False, True, True, False]


async def test_what_is_answered_is_said_to_be_so(server, mailbox):
    """The other end keeps answers only until then."""
    for _ in range(3):
        await mailbox.send(to="iris", body="x")
    sends = [request for request in server.asked if request["method"] == "send"]
    assert [request["id"] - 1 - request["done"] for request in sends] == [0, 0, 0]


async def test_a_refusal_ends_the_client_in_words(tmp_path, nursery):
    """TURN-4: for calls that wait and for those that come."""
    refusal = {"version": 1, "id": 1, "ok": False, "kind": "MailboxSocketRefused", "error": "not you"}

    async def refuse(stream):
        peer = Peer(stream)
        request = json.loads(await peer._reader.next_line())
        await peer.say({**refusal, "id": request["id"]})

    await listen(tmp_path / "mcp.sock", refuse, nursery)
    async with open_mailbox_client(tmp_path / "mcp.sock", name="ruth") as mailbox:
        for call in (mailbox.wait_unread, mailbox.summary, partial(mailbox.send, to="iris", body="x")):
            with trio.fail_after(5), pytest.raises(MailboxSocketRefused, match="not you"):
                await call()


@pytest.mark.parametrize("line", [b"SSH-2.0-OpenSSH", b'{"version":2,"id":1,"ok":true}', b"x" * (2 << 20), b"[]"])
async def test_what_is_no_broker_is_refused_for_good(tmp_path, nursery, line):
    """REL-4: another program, or another version."""

    async def speak(stream):
        await stream.send_all(line + b"\n")
        await stream.receive_some()

    await listen(tmp_path / "mcp.sock", speak, nursery)
    async with open_mailbox_client(tmp_path / "mcp.sock", name="ruth") as mailbox:
        with trio.fail_after(5), pytest.raises(MailboxSocketRefused, match="does not answer as a broker does"):
            await mailbox.summary()


async def test_leaving_lets_go_of_whoever_waits(tmp_path, nursery):
    """EMBED-1."""
    ended = []

    async def expect_closed(call):
        with pytest.raises(BrokerClosed, match="open another one"):
            await call()
        ended.append(call)

    async with open_mailbox_client(tmp_path / "mcp.sock", name="ruth") as mailbox:
        nursery.start_soon(expect_closed, mailbox.wait_unread)
        nursery.start_soon(expect_closed, mailbox.summary)
        await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()
    assert len(ended) == 2
    await expect_closed(mailbox.summary)


async def test_what_the_body_raises_leaves_as_it_is(tmp_path):
    """EMBED-1."""
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with open_mailbox_client(tmp_path / "mcp.sock", name="ruth"):
            raise error
    assert caught.value is error


async def test_calls_that_wait_are_bounded(mailbox, nursery, autojump_clock):
    """REL-4."""
    for _ in range(256):
        nursery.start_soon(mailbox.summary)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(BrokerUnavailable, match="enough waits"):
        await mailbox.summary()
    nursery.cancel_scope.cancel()


async def test_what_no_line_can_carry_is_refused_before_it_is_sent(mailbox):
    """MSG-3, REL-4."""
    with pytest.raises(MessageRefused, match="say less"):
        await mailbox.send(to="x" * (2 << 20), body="x")
    with pytest.raises(MailboxSocketUnusable, match="at most 107 bytes"):
        async with open_mailbox_client("/" + "x" * 200, name="ruth"):
            raise AssertionError("must not open")
