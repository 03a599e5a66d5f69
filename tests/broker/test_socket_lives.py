"""Over a mailbox's socket everything is done once: connections are cut, brokers restart, clients are killed."""

import json
import random
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from socket_peers import Relay, ask, listen, peers
from waiting import eventually

from hive_broker import (
    LoopBudgets,
    MailboxSocketRefused,
    MessageRefused,
    TurnOver,
    open_broker,
    open_mailbox_client,
    serve_mailbox,
)

CHILD = str(Path(__file__).with_name("socket_child.py"))


@asynccontextmanager
async def served(path, folder, names=("ruth", "iris")):
    """A broker with a socket for each name."""
    async with open_broker(path, owner="test") as broker, trio.open_nursery() as nursery:
        await broker.set_agents(["iris", "ruth"])
        for name in names:
            await nursery.start(partial(serve_mailbox, folder / f"{name}.sock", broker.mailbox(name), runs_turns=True))
        yield broker
        nursery.cancel_scope.cancel()


def answers_to(asked, method):
    """Tells whether an answer is to a request of that method."""

    def is_one(answer):
        return any(request["id"] == answer["id"] and request["method"] == method for request in asked())

    return is_one


@pytest.mark.parametrize("restart", [False, True], ids=["connection", "broker"])
@pytest.mark.parametrize("method", ["send", "open_turn", "recv", "close_turn", "ack_until", "summary"])
async def test_an_answer_that_is_lost_is_given_again_and_nothing_is_done_twice(path, tmp_path, method, restart):
    """SURF-4, REL-1: the connection is cut after the deed and before the answer; then the broker restarts, or not."""
    relay = Relay(tmp_path / "ruth.sock", lambda answer: answers_to(lambda: relay.asked, method)(answer))
    cut = trio.Event()

    async def handle(stream):
        await relay.handle(stream)
        if relay.cut:
            cut.set()

    async def work(ruth, done):
        sent = await ruth.send(to="iris", body="x")
        turn = await ruth.open_turn(cause="mail")
        received = await ruth.recv(turn_id=turn.id)
        summary = await ruth.summary()
        closed = await ruth.close_turn(turn.id, acked=True, record={"n": 1})
        acked = await ruth.ack_until(2**40)
        done.update(sent=sent, received=received, closed=closed, acked=acked, summary=summary)

    done = {}
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            async with served(path, tmp_path) as broker:
                for body in ("first", "second"):
                    await broker.mailbox("iris").send(to="ruth", body=body)
                await listen(tmp_path / "relay.sock", handle, nursery)
                ruth = await nursery.start(hold_client, tmp_path / "relay.sock", "ruth")
                nursery.start_soon(work, ruth, done)
                await cut.wait()
                if not restart:
                    await eventually(lambda: done)
            async with served(path, tmp_path) as broker:
                await eventually(lambda: done)
                counts = await broker.counts()
                stored = await broker.history()
                nursery.cancel_scope.cancel()
    assert relay.cut == 1
    assert [message.body for message in stored] == ["x", "second", "first"]
    assert [message.attempts for message in stored] == [0, 0, 1]
    assert [delivery.message.body for delivery in done["received"].deliveries] == ["first"]
    assert (done["closed"].acked, done["acked"].acked, done["summary"].unread) == (
        (done["received"].deliveries[0].message.id,),
        1,
        1,
    )
    assert (counts["ruth"].unread, counts["ruth"].in_flight, counts["iris"].unread) == (0, 0, 1)


async def hold_client(path, name, *, task_status):
    async with open_mailbox_client(path, name=name, runs_turns=True) as mailbox:
        task_status.started(mailbox)
        await trio.sleep_forever()


async def test_a_turn_outlives_its_broker_and_ends_with_the_next_life_of_its_agent(path, tmp_path):
    """TURN-4, REL-1: its client may come back and go on; its rows are in flight until one says otherwise."""
    async with trio.open_nursery() as nursery:
        async with served(path, tmp_path) as broker:
            sent = await broker.mailbox("iris").send(to="ruth", body="x")
            first = await nursery.start(hold_client, tmp_path / "ruth.sock", "ruth")
            turn = await first.open_turn(cause="mail")
            await first.recv(turn_id=turn.id)
        async with served(path, tmp_path) as broker:
            assert (await broker.counts())["ruth"].in_flight == 1
            await first.send(to="iris", body="still in it", turn_id=turn.id)
            nursery.cancel_scope.cancel()
    async with served(path, tmp_path) as broker:
        assert (await broker.counts())["ruth"].in_flight == 1
        async with open_mailbox_client(tmp_path / "ruth.sock", name="ruth", runs_turns=True) as second:
            await second.wait_unread()
            with pytest.raises(TurnOver):
                await second.recv(turn_id=turn.id)
            (delivery,) = (await second.recv()).deliveries
            assert (delivery.message.id, delivery.attempt) == (sent.id, 2)


async def test_what_clients_hold_ends_where_no_client_will_come_any_more(path, tmp_path):
    """TURN-4: an agent that is run inline from now on, or is none any more."""
    async with served(path, tmp_path) as broker:
        for name in ("iris", "ruth"):
            await broker.mailbox("iris").send(to=name, body="x")
            async with open_mailbox_client(tmp_path / f"{name}.sock", name=name, runs_turns=True) as mailbox:
                await mailbox.recv(turn_id=(await mailbox.open_turn(cause="mail")).id)
    async with open_broker(path, owner="test") as broker:
        await broker.end_held_turns(keep=["ruth"])
        counts = await broker.counts()
        assert (counts["iris"].unread, counts["iris"].in_flight) == (1, 0)
        assert (counts["ruth"].unread, counts["ruth"].in_flight) == (0, 1)


@pytest.mark.slow
async def test_a_second_life_is_refused_while_the_first_is_there_and_let_in_when_it_is_gone(path, tmp_path):
    """TURN-4: named by its pid; a client that comes back itself is let in at once."""
    async with served(path, tmp_path), peers() as connect:
        first = await connect(tmp_path / "ruth.sock")
        await first.attach(client="a" * 32)
        second = await connect(tmp_path / "ruth.sock")
        answer = await second.attach(client="b" * 32)
        assert (answer["kind"], "pid " in answer["error"]) == ("MailboxSocketRefused", True)
        again = await connect(tmp_path / "ruth.sock")
        assert (await again.attach(client="a" * 32))["ok"] is True
        await first.wait_cut()
        await again.stream.aclose()
        assert (await second.attach(client="b" * 32))["ok"] is True


async def test_only_the_agents_life_opens_and_closes_turns(path, tmp_path):
    """TURN-4: other clients read and write mail."""
    async with (
        served(path, tmp_path) as broker,
        open_mailbox_client(tmp_path / "ruth.sock", name="ruth") as choom,
        open_mailbox_client(tmp_path / "ruth.sock", name="ruth", runs_turns=True) as harness,
    ):
        turn = await harness.open_turn(cause="mail")
        with pytest.raises(TurnOver, match="only the client that runs the turns"):
            await choom.open_turn(cause="mine")
        with pytest.raises(TurnOver, match="only the client that runs the turns"):
            await choom.close_turn(turn.id, acked=True, record={})
        await choom.send(to="iris", body="x")
        assert (await broker.counts())["iris"].unread == 1


async def test_the_wrong_socket_is_refused(path, tmp_path):
    """SURF-5."""
    async with served(path, tmp_path), open_mailbox_client(tmp_path / "iris.sock", name="ruth") as mailbox:
        with pytest.raises(MailboxSocketRefused, match="mailbox of iris"):
            await mailbox.wait_unread()


async def test_recv_gives_as_many_large_bodies_as_one_answer_holds(path, tmp_path):
    """MSG-4, REL-4: the rest stays in the inbox and is counted."""
    async with (
        served(path, tmp_path) as broker,
        open_mailbox_client(tmp_path / "ruth.sock", name="ruth", runs_turns=True) as ruth,
    ):
        for _ in range(5):
            await broker.mailbox("iris").send(to="ruth", body="\x01" * 262_144)
        seen = []
        while deliveries := (received := await ruth.recv(limit=5)).deliveries:
            seen.append((len(deliveries), received.remaining))
    assert seen == [(2, 3), (2, 1), (1, 0)]


async def test_a_refusal_that_was_noted_is_the_same_when_it_is_asked_again(path, tmp_path):
    """MSG-10: the loop guard's word is committed like a deed."""
    async with served(path, tmp_path) as broker, peers() as connect:
        ruth = await connect(tmp_path / "ruth.sock")
        await ruth.attach()
        broker._engine.budgets = LoopBudgets(pair_messages_per_hour=1)
        await ruth.say(ask(2, "send", to="iris", body="1"), ask(3, "send", to="iris", body="2"))
        answers = [await ruth.hear(), await ruth.hear()]
        await ruth.say(ask(3, "send", to="iris", body="2"))
        again = await ruth.hear()
        refused = next(answer for answer in answers if not answer["ok"])
        assert (refused["kind"], again) == (MessageRefused.__name__, refused)


async def test_answers_are_kept_until_they_have_arrived_and_no_longer(path, tmp_path):
    """REL-4: what is kept does not grow with what is done."""
    async with served(path, tmp_path) as broker:
        async with open_mailbox_client(tmp_path / "ruth.sock", name="ruth", runs_turns=True) as ruth:
            for n in range(50):
                await ruth.send(to="iris", body=f"{n}")
        kept = await broker._engine.look(lambda db: db.execute("SELECT count(*) FROM applied").get)
        assert kept == 1
        broker._engine.clock = lambda: 4e9
        async with open_mailbox_client(tmp_path / "iris.sock", name="iris", runs_turns=True) as iris:
            await iris.ack_until(2**40)
        rows = await broker._engine.look(lambda db: db.execute("SELECT agent FROM applied").fetchall())
        assert rows == [("iris",)]


@pytest.mark.slow
async def test_clients_killed_at_random_instants_and_brokers_restarted_lose_and_double_nothing(path, tmp_path):
    """REL-1: kill -9 in the middle of requests; every deed that was answered is there, once."""
    instants = random.Random(20_260)  # noqa: S311 -- the same instants at every run, as far as answers go
    sent, acked = {}, []
    for life in range(8):
        async with served(path, tmp_path):
            for said in await run_and_kill(tmp_path, life, instants.randint(20, 150)):
                if "sent" in said:
                    assert sent.setdefault(said["sent"], said["body"]) == said["body"]
                elif "acked" in said:
                    acked += said["acked"]
                else:
                    assert not set(acked) & set(said["popped"]), "a handled message came back"
    assert len(acked) == len(set(acked)) > 8
    async with served(path, tmp_path) as broker:
        async with open_mailbox_client(tmp_path / "ruth.sock", name="ruth", runs_turns=True) as ruth:
            await ruth.summary()  # the next life ends what the killed one had open
        stored, before_id = {}, None
        while page := await broker.history(limit=1000, before_id=before_id):
            stored |= {message.id: message for message in page}
            before_id = page[-1].id
        assert {id_: stored[id_].body for id_ in sent} == sent
        assert len({message.body for message in stored.values()}) == len(stored), "a message was stored twice"
        assert all(stored[id_].acked_at is not None for id_ in acked)
        assert (await broker.counts())["ruth"].in_flight == 0


async def run_and_kill(folder, life, lines_before_the_kill):
    with trio.fail_after(20):
        command = [sys.executable, CHILD, str(folder), str(life)]
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        said = bytearray()
        try:
            while said.count(b"\n") < lines_before_the_kill:
                chunk = await process.stdout.receive_some()
                assert chunk, "the child ended by itself"
                said += chunk
        finally:
            process.send_signal(signal.SIGKILL)
        async for chunk in process.stdout:
            said += chunk
        await process.wait()
        await process.stdout.aclose()
    return [json.loads(line) for line in said.decode().splitlines()]
