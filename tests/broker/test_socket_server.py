"""A served mailbox and its peers: who is let in, what each may cost, and its bad days."""

import os
import random
import socket
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from socket_peers import ask, peers
from waiting import eventually

from hive_broker import MailboxSocketUnusable, open_mailbox_client, serve_mailbox


@pytest.fixture
async def sock(broker, tmp_path, nursery):
    """The socket of ruth's mailbox."""
    path = tmp_path / "door" / "mcp.sock"
    await nursery.start(partial(serve_mailbox, path, broker.mailbox("ruth"), runs_turns=True))
    return path


@pytest.fixture
async def connect():
    """Makes raw connections, and closes them."""
    async with peers() as opened:
        yield opened


async def test_the_socket_and_its_folder_are_private_and_go_with_the_server(broker, tmp_path):
    """SEC-1."""
    path = tmp_path / "door" / "mcp.sock"
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_mailbox, path, broker.mailbox("ruth"), runs_turns=True))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        nursery.cancel_scope.cancel()
    assert not path.exists()


@pytest.mark.parametrize("what", ["too long", "a file", "taken", "in no folder"])
async def test_a_path_that_cannot_be_served_is_refused_in_words(broker, tmp_path, sock, what):
    """REL-3."""
    (tmp_path / "file").write_text("x")
    path = {
        "too long": tmp_path / ("x" * 100),
        "a file": tmp_path / "file",
        "taken": sock,
        "in no folder": tmp_path / "file" / "mcp.sock",
    }[what]
    with pytest.raises(MailboxSocketUnusable, match=r": \w+ .*|: \w+ it first"):
        await serve_mailbox(path, broker.mailbox("ruth"), runs_turns=True)
    assert (tmp_path / "file").read_text() == "x"


async def test_a_dead_socket_is_replaced(connect, broker, tmp_path, nursery):
    """REL-1: a killed process leaves its file."""
    path = tmp_path / "mcp.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    await nursery.start(partial(serve_mailbox, path, broker.mailbox("ruth"), runs_turns=True))
    assert (await (await connect(path)).attach())["ok"] is True


async def test_a_socket_that_somebody_removed_is_made_again_and_open_connections_go_on(
    broker, tmp_path, nursery, connect, monkeypatch
):
    """REL-3: a lost socket."""
    monkeypatch.setattr("hive_broker._socket_file._LOOK_SECONDS", 0.02)
    sock = tmp_path / "mcp.sock"
    await nursery.start(partial(serve_mailbox, sock, broker.mailbox("ruth"), runs_turns=True))
    peer = await connect(sock)
    await peer.attach()
    sock.unlink()
    await eventually(sock.exists)
    await peer.say(ask(2, "summary"))
    assert (await peer.hear())["result"]["unread"] == 0
    another = await connect(sock)
    assert (await another.attach(client="b" * 32, runs_turns=False))["ok"] is True


async def test_bad_lines_are_answered_in_words_and_cost_nothing_but_themselves(connect, sock):
    """REL-4: garbage, too long, too deep, not UTF-8; then a good one."""
    peer = await connect(sock)
    await peer.attach()
    bad = [b"garbage", b"x" * (2 << 20), b"[" * 500_000, b'{"id":"\xff"}', b"{}", b'{"version":9,"id":3}', b""]
    for line in bad:
        await peer.say(line)
        answer = await peer.hear()
        assert (answer["version"], answer["ok"], answer["kind"]) == (1, False, "BadLine")
        assert ": " in answer["error"] or "must" in answer["error"] or "at most" in answer["error"]
    await peer.say(ask(4, "summary"))
    assert (await peer.hear())["id"] == 4


async def test_half_a_line_is_refused_and_ends_the_connection(connect, sock):
    """REL-4."""
    peer = await connect(sock)
    await peer.stream.send_all(b'{"version":1')
    await peer.stream.send_eof()
    assert "newline" in (await peer.hear())["error"]
    assert await peer.hear() is None


async def test_nothing_but_a_wake_goes_before_attaching(connect, sock):
    """SURF-5: whoever asks has said who it is."""
    peer = await connect(sock)
    await peer.say(ask(1, "summary"))
    answer = await peer.hear()
    assert (answer["id"], answer["kind"]) == (1, "MailboxSocketRefused")
    assert "attach" in answer["error"]


async def test_answers_come_as_they_are_ready_by_id(connect, broker, sock):
    """Pipelined: a wait holds nobody up."""
    peer = await connect(sock)
    await peer.attach()
    await peer.say(ask(2, "wait_unread"), ask(3, "summary"), ask(4, "ack_until", up_to=5))
    assert {(await peer.hear())["id"], (await peer.hear())["id"]} == {3, 4}
    await broker.mailbox("iris").send(to="ruth", body="x")
    assert (await peer.hear())["id"] == 2


async def test_a_number_that_was_used_gives_the_same_answer_or_a_refusal(connect, broker, sock):
    """A request is done once, however often it is asked; a number is of one request."""
    peer = await connect(sock)
    await peer.attach()
    await peer.say(ask(2, "send", to="iris", body="once"))
    first = await peer.hear()
    await peer.say(ask(2, "send", to="iris", body="once"))
    assert await peer.hear() == first
    await peer.say(ask(2, "send", to="iris", body="other"))
    answer = await peer.hear()
    assert (answer["kind"], "of one request" in answer["error"]) == ("ValueError", True)
    assert (await broker.counts())["iris"].unread == 1


async def test_a_number_that_is_under_way_is_refused(connect, sock):
    """One answer to one number."""
    peer = await connect(sock)
    await peer.attach()
    await peer.say(ask(2, "wait_unread"), ask(2, "summary"))
    answer = await peer.hear()
    assert (answer["id"], answer["ok"], "under way" in answer["error"]) == (2, False, True)


async def test_waits_of_one_connection_are_few(connect, sock):
    """REL-4."""
    peer = await connect(sock)
    await peer.attach()
    await peer.say(*(ask(n, "wait_unread") for n in range(2, 7)))
    answer = await peer.hear()
    assert (answer["id"], answer["kind"]) == (6, "BrokerUnavailable")


async def test_a_label_wakes_the_agent_whose_socket_it_is(connect, broker, sock):
    """WAKE-2: as existing clients send it, without a version; one line back, also to a peer that only writes once."""
    peer = await connect(sock)
    await peer.stream.send_all(b'{"cmd":"wake","from":"ci pipeline","body":"red"}\n')
    await peer.stream.send_eof()
    answer = await peer.hear()
    (stored,) = await broker.inbox("ruth")
    assert answer == {"version": 1, "ok": True, "sent": {"id": stored.id, "duplicate": False}}
    assert (stored.sender, stored.body) == ("ci pipeline", "red")


@pytest.mark.parametrize("label", ["system", "operator", "iris", "ruth", "reminder", "", "x" * 64, "a\nb"])
async def test_a_label_cannot_pass_for_somebody(connect, broker, sock, label):
    """WAKE-2, failure 23."""
    peer = await connect(sock)
    await peer.say({"cmd": "wake", "from": label, "body": "x"})
    answer = await peer.hear()
    assert (answer["ok"], "label" in answer["error"]) == (False, True)
    assert await broker.inbox("ruth") == ()


async def test_labels_cannot_fill_an_inbox_without_end(broker, connect, sock, monkeypatch):
    """REL-4: a program in a loop is told to wait; agents and the operator still get through."""
    monkeypatch.setattr("hive_broker._store.WAKES_UNREAD", 3)
    peer = await connect(sock)
    for _ in range(4):
        await peer.say({"cmd": "wake", "from": "loop", "body": "x"})
    answers = [await peer.hear() for _ in range(4)]
    assert sorted(answer["ok"] for answer in answers) == [False, True, True, True]
    await broker.mailbox("iris").send(to="ruth", body="not a label")


async def test_connections_are_bounded_and_a_place_is_free_again_at_once(connect, sock):
    """REL-4."""
    peers = [await connect(sock) for _ in range(16)]
    await trio.testing.wait_all_tasks_blocked()
    late = await connect(sock)
    assert "16 connections" in (await late.hear())["error"]
    await peers.pop().stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert (await (await connect(sock)).attach())["ok"] is True


async def test_what_waits_for_a_peer_that_vanished_ends(connect, sock):
    """REL-4: nothing of it is left."""
    before = trio.lowlevel.current_statistics().tasks_living
    peer = await connect(sock)
    await peer.attach()
    await peer.say(ask(2, "wait_unread"))
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living > before
    await peer.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.slow
async def test_a_peer_that_does_not_read_is_let_go_and_holds_up_nobody(connect, broker, sock):
    """REL-4: it costs its own buffers."""
    for _ in range(8):
        await broker.mailbox("iris").send(to="ruth", body="x" * 200_000)
    slow = await connect(sock)
    await slow.attach()
    await slow.say(*(ask(n, "recv", limit=1) for n in range(2, 10)))
    quick = await connect(sock)
    await quick.attach(client="b" * 32, runs_turns=False)
    for n in range(2, 50):
        await quick.say(ask(n, "summary"))
        assert (await quick.hear())["id"] == n
    with trio.fail_after(15):
        await slow.wait_cut()


@pytest.mark.slow
async def test_ten_thousand_connections_that_come_and_go_as_they_like(broker, sock):
    """REL-4: with garbage, halves and nothing; the mailbox answers afterwards, and holds no descriptor of theirs."""
    chance = random.Random(20_260)  # noqa: S311 -- the same at every run
    descriptors = _descriptors()
    said = [b"", b"{", b"garbage\n", b'{"version":1,"id":1,"method":"summary"}\n', b"\xff\xfe\n" * 50, b"x" * 70_000]
    with trio.fail_after(60):
        open_ones = []
        for _ in range(10_000):
            stream = await trio.open_unix_socket(str(sock))
            open_ones.append(stream)
            with trio.move_on_after(1):
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(chance.choice(said))
            while len(open_ones) > chance.randint(0, 60):
                await trio.aclose_forcefully(open_ones.pop(chance.randrange(len(open_ones))))
        for stream in open_ones:
            await trio.aclose_forcefully(stream)
        async with open_mailbox_client(sock, name="ruth") as mailbox:
            assert (await mailbox.summary()).unread == 0
    await trio.testing.wait_all_tasks_blocked()
    assert _descriptors() <= descriptors


async def test_a_hive_that_runs_the_turns_itself_lets_nobody_else(connect, broker, tmp_path, nursery):
    """TURN-4: an agent has one life at a time."""
    path = tmp_path / "mcp.sock"
    await nursery.start(partial(serve_mailbox, path, broker.mailbox("ruth"), runs_turns=False))
    peer = await connect(path)
    answer = await peer.attach()
    assert (answer["kind"], "hive.toml" in answer["error"]) == ("MailboxSocketRefused", True)
    assert (await peer.attach(runs_turns=False))["ok"] is True
    await peer.say(ask(2, "open_turn", cause="x"), ask(3, "send", to="iris", body="x"))
    answers = [await peer.hear(), await peer.hear()]
    assert [(answer["id"], answer["ok"]) for answer in answers] == [(2, False), (3, True)]


async def test_a_socket_is_of_one_agent(connect, sock):
    """SURF-5: who calls is whose socket it is."""
    answer = await (await connect(sock)).attach(name="iris")
    assert (answer["kind"], answer["error"][:29]) == ("MailboxSocketRefused", "this is the mailbox of ruth, ")


async def test_whoever_serves_is_told_who_runs_the_turns(connect, broker, tmp_path, nursery):
    """HOST-2: status shows it."""
    seen = []
    path = tmp_path / "mcp.sock"
    await nursery.start(partial(serve_mailbox, path, broker.mailbox("ruth"), runs_turns=True, attached=seen.append))
    peer = await connect(path)
    await peer.attach()
    await peer.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [os.getpid(), None]


def _descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
