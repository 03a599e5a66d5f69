"""The admin socket over a real unix socket: framing, order, faults, and what a bad peer costs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from fake_hive import FakeHive, Served
from logs import captured_logs
from waiting import eventually

from hive._errors import SocketPathTooLong, SocketUnusable
from hive._hostsock import AgentStatusRow, serve_host_socket
from hive_broker import BrokerUnavailable, LineCut, LineReader, LineTooLong


class Peer:
    """Speaks lines of bytes to an admin socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._reader = LineReader(stream, limit_bytes=8 << 20)

    async def ask(self, line: str | bytes) -> Any:
        await self.stream.send_all((line if isinstance(line, bytes) else line.encode()) + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        with trio.fail_after(5):
            line = await self._reader.next_line()
        return None if line is None else json.loads(line)

    async def read_to_the_end(self) -> None:
        while await self.answer() is not None:
            pass


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Peer]:
    async with await trio.open_unix_socket(path) as stream:
        yield Peer(stream)


async def test_each_verb_reaches_the_hive(served: Served):
    """HOST-1: one line in, one line out, several on one connection."""
    served.hive.put("iris", "operator", "done")
    async with connected(served.path) as peer:
        assert await peer.ask('{"cmd":"list"}') == {"version": 1, "ok": True, "agents": ["ruth", "iris"]}
        rows = (await peer.ask('{"cmd":"agent_status"}'))["agent_statuses"]
        assert [row["name"] for row in rows] == ["ruth", "iris"]
        assert await peer.ask('{"cmd":"urls"}') == {"version": 1, "ok": True, "urls": {}}
        for line in (
            '{"cmd":"restart","name":"iris"}',
            '{"cmd":"start","scope":{"agents":true}}',
            '{"cmd":"stop","scope":{"agent_names":["ruth"]},"graceful":false}',
            '{"cmd":"shutdown","graceful":true}',
        ):
            assert await peer.ask(line) == {"version": 1, "ok": True}
        assert (await peer.ask('{"cmd":"send","to":"iris","body":"hi"}'))["sent"] == {"id": 2, "duplicate": False}
        inbox = (await peer.ask('{"cmd":"inbox"}'))["inbox"]
        assert (inbox["owner"], inbox["unread"], inbox["messages"][0]["body"]) == ("operator", 1, "done")
        assert (await peer.ask('{"cmd":"inbox","agent":"iris"}'))["inbox"]["messages"][0]["sender"] == "operator"
        assert (await peer.ask('{"cmd":"thread","id":2}'))["thread"]["id"] == 2
        assert (await peer.ask('{"cmd":"ack","up_to":1}'))["acked"] == {"acked": 1, "never_read": 1}
        assert (await peer.ask('{"cmd":"status"}'))["status"]["hive"] == "fake"
    assert served.hive.asked == [
        ("restart", "iris"),
        ("start", ("ruth", "iris")),
        ("stop", ("ruth",), False),
        ("shutdown", True),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"cmd":"restart","name":"ghost"}', 'agent "ghost" is not managed by this hive; known: iris, ruth'),
        ('{"cmd":"stop","scope":{"agent_names":["ruth","iri"]}}', 'agent "iri" is not managed by this hive; did you'),
        ('{"cmd":"inbox","agent":"ghost"}', 'agent "ghost" is not managed'),
        ('{"cmd":"send","to":"ghost","body":"x"}', "no agent is called 'ghost'"),
        ('{"cmd":"thread","id":9}', "there is no message #9"),
        ('{"cmd":"approve","id":1}', "approve is not available in this version"),
        ('{"cmd":"set_paused","name":"ruth","paused":true}', "set_paused is not available in this version"),
        ('{"cmd":"stop","scope":{}}', "scope must name something"),
        ("{", "must be one JSON object"),
        ("", "must be one JSON object"),
        ("x" * ((1 << 20) + 1), "must have at most 1048576 bytes"),
    ],
)
async def test_a_refusal_is_said_and_the_connection_goes_on(served: Served, line: str, sentence: str):
    """HOST-1, REL-4: whatever came, the next line is served; nothing was done."""
    async with connected(served.path) as peer:
        answer = await peer.ask(line)
        assert (answer["version"], answer["ok"]) == (1, False)
        assert sentence in answer["error"]
        assert (await peer.ask('{"cmd":"list"}'))["ok"]
    assert served.hive.asked == []


async def test_requests_written_at_once_are_answered_in_order(served: Served):
    """HOST-1: one after the other, in one packet or in many."""
    async with connected(served.path) as peer:
        await peer.stream.send_all(b'{"cmd":"list"}\n{"cmd":"nope"}\n{"cmd":"urls"}\n{"cmd":')
        assert "agents" in await peer.answer()
        assert "error" in await peer.answer()
        assert "urls" in await peer.answer()
        assert "agents" in await peer.ask('"list"}')


async def test_a_cut_line_is_not_carried_out(served: Served):
    """HOST-1: half a request is none, also where it would be valid JSON."""
    async with connected(served.path) as peer:
        await peer.stream.send_all(b'{"cmd":"shutdown"}')
        await peer.stream.send_eof()
        assert (await peer.answer())["error"] == "a request must end with a newline"
        assert await peer.answer() is None
    assert served.hive.asked == []


async def test_a_bug_costs_one_answer_and_is_found_in_the_log(served: Served):
    """ENV-1: a generic sentence with an id; the traceback is the log's."""

    async def broken() -> tuple[str, ...]:
        raise KeyError("a secret detail")

    served.hive.list_agents = broken  # type: ignore[method-assign]  # the bug at hand
    async with connected(served.path) as peer:
        with captured_logs() as logs:
            answer = await peer.ask('{"cmd":"list"}')
        assert "secret" not in answer["error"]
        assert logs[0]["error_id"] in answer["error"]
        assert logs[0]["request"] == "ListAgents"
        assert (await peer.ask('{"cmd":"urls"}'))["ok"]


async def test_an_error_of_the_brokers_is_said_as_it_is(served: Served):
    """REL-3: its sentences are for people."""

    async def full(*, to: str, body: str, in_reply_to: int | None) -> object:
        raise BrokerUnavailable("the disk is full: free some space")

    served.hive.send = full  # type: ignore[method-assign, assignment]  # the fault at hand
    async with connected(served.path) as peer:
        assert (await peer.ask('{"cmd":"send","to":"iris","body":"x"}'))["error"] == "the disk is full: free some space"


async def test_a_subscriber_gets_one_line_per_changed_agent(served: Served):
    """HOST-1: a bare success, then pushes with one row; an unchanged row is no news."""
    async with connected(served.path) as peer:
        assert await peer.ask('{"cmd":"subscribe_agent_status"}') == {"version": 1, "ok": True}
        await trio.testing.wait_all_tasks_blocked()
        for row in (
            AgentStatusRow(name="iris", running=True),
            AgentStatusRow(name="ruth", running=True),
            AgentStatusRow(name="ruth", running=True),
            AgentStatusRow(name="iris", running=False),
        ):
            served.hive.feed.publish(row)
        pushed = [await peer.answer() for _ in range(2)]
        assert [(len(line["agent_statuses"]), line["version"], line["ok"]) for line in pushed] == [(1, 1, True)] * 2
        assert [line["agent_statuses"][0]["name"] for line in pushed] == ["ruth", "iris"]
        assert pushed[1]["agent_statuses"][0]["running"] is False


async def test_a_subscriber_that_goes_leaves_nothing_behind(served: Served):
    """REL-4: its task ends when it goes, not at the next change."""
    async with connected(served.path) as peer:
        await peer.ask('{"cmd":"subscribe_agent_status"}')
        await trio.testing.wait_all_tasks_blocked()
        assert len(served.hive.feed._subscribers) == 1
    await trio.testing.wait_all_tasks_blocked()
    assert not served.hive.feed._subscribers


async def test_a_subscriber_that_does_not_read_waits_for_nobody_and_is_dropped(
    served: Served, autojump_clock: trio.testing.MockClock
):
    """HOST-1: the publisher never waits, others are served, and after a bound the slow one is gone."""
    async with connected(served.path) as slow, connected(served.path) as other:
        await slow.ask('{"cmd":"subscribe_agent_status"}')
        for n in range(3000):
            served.hive.feed.publish(
                AgentStatusRow(name="iris", running=True, status_text=f"{n}" * 100, status_set_at=1)
            )
            await trio.lowlevel.checkpoint()
        assert (await other.ask('{"cmd":"list"}'))["ok"]
        await trio.sleep(6)
        assert not served.hive.feed._subscribers


async def test_a_reader_that_does_not_read_is_dropped(served: Served, autojump_clock: trio.testing.MockClock):
    """REL-4: its answers fill the pipe and no more; nobody else waits."""
    served.hive.put("iris", "operator", "x" * 200_000)
    async with connected(served.path) as slow, connected(served.path) as other:
        await slow.stream.send_all(b'{"cmd":"inbox"}\n' * 20)
        assert (await other.ask('{"cmd":"list"}'))["ok"]
        await trio.sleep(6)
        with trio.fail_after(5), pytest.raises((LineCut, trio.BrokenResourceError)):
            await slow.read_to_the_end()


async def test_a_silent_peer_is_dropped_after_a_while(served: Served, autojump_clock: trio.testing.MockClock):
    """REL-4: also one that writes half a line and then nothing."""
    async with connected(served.path) as silent, connected(served.path) as half:
        await half.stream.send_all(b'{"cmd"')
        await trio.sleep(299)
        assert (await silent.ask('{"cmd":"list"}'))["ok"]
        await trio.sleep(2)
        assert await half.answer() is None
        assert (await silent.ask('{"cmd":"list"}'))["ok"]
        await trio.sleep(301)
        assert await silent.answer() is None


async def test_a_hidden_bug_in_a_subscription_costs_that_connection(served: Served):
    """REL-4: a control that breaks ends no task but its own."""

    def broken() -> object:
        raise KeyError("x")

    served.hive.subscribe_agent_status = broken  # type: ignore[method-assign, assignment]  # the bug at hand
    async with connected(served.path) as peer, connected(served.path) as other:
        assert "error_id" in (await peer.ask('{"cmd":"subscribe_agent_status"}'))["error"]
        assert (await other.ask('{"cmd":"list"}'))["ok"]


async def test_connections_have_a_bound_and_the_one_too_many_is_told(served: Served):
    """REL-4: 256 at once; a freed place is taken by the next."""
    async with trio.open_nursery() as nursery:
        leave = trio.Event()

        async def stay(task_status: trio.TaskStatus[None]) -> None:
            async with connected(served.path) as peer:
                assert (await peer.ask('{"cmd":"list"}'))["ok"]
                task_status.started()
                await leave.wait()

        for _ in range(256):
            await nursery.start(stay)
        async with connected(served.path) as late:
            assert "all 256 connections are taken" in (await late.answer())["error"]
            assert await late.answer() is None
        leave.set()
    await trio.testing.wait_all_tasks_blocked()
    async with connected(served.path) as peer:
        assert (await peer.ask('{"cmd":"list"}'))["ok"]


async def test_what_was_carried_out_is_answered_while_the_hive_stops(tmp_path: Path):
    """STOP-3: the answer to a shutdown is not lost to the shutdown."""
    hive, path = FakeHive("ruth"), tmp_path / "host.sock"
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_host_socket, path, hive)

        async def stop_at_once(*, graceful: bool) -> None:
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

        hive.shutdown = stop_at_once  # type: ignore[method-assign]  # the quickest hive there is
        with trio.CancelScope(shield=True):
            async with connected(path) as peer:
                assert (await peer.ask('{"cmd":"shutdown"}'))["ok"]
                assert await peer.answer() is None
    assert not path.exists()


async def test_the_socket_lets_in_its_group_and_no_stranger(tmp_path: Path, nursery: trio.Nursery):
    """HOST-1: 0660 in a folder of 0751 where we make it, whatever the umask."""
    path = tmp_path / "new" / "run" / "host.sock"
    before = os.umask(0o077)
    try:
        await nursery.start(serve_host_socket, path, FakeHive("ruth"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o751


async def test_a_dead_socket_is_replaced(tmp_path: Path, nursery: trio.Nursery):
    """REL-3: what a killed hive left behind is in nobody's way."""
    path = tmp_path / "host.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    await nursery.start(serve_host_socket, path, FakeHive("ruth"))
    async with connected(path) as peer:
        assert (await peer.ask('{"cmd":"list"}'))["ok"]


async def test_a_live_socket_is_left_alone(served: Served):
    """REL-2: the second hive is refused, and the first one goes on."""
    with pytest.raises(SocketUnusable, match="another process listens on"):
        await serve_host_socket(served.path, FakeHive("other"))
    async with connected(served.path) as peer:
        assert (await peer.ask('{"cmd":"list"}'))["agents"] == ["ruth", "iris"]


async def test_what_is_no_socket_is_left_alone(tmp_path: Path):
    """REL-3: a file of somebody's at that place is not removed."""
    path = tmp_path / "host.sock"
    path.write_text("precious")
    with pytest.raises(SocketUnusable, match="something that is no socket is there"):
        await serve_host_socket(path, FakeHive("ruth"))
    assert path.read_text() == "precious"
    with pytest.raises(SocketUnusable, match="must be a place for a socket"):
        await serve_host_socket(path / "below" / "host.sock", FakeHive("ruth"))
    with pytest.raises(SocketPathTooLong):
        await serve_host_socket(tmp_path / ("x" * 120), FakeHive("ruth"))


async def test_the_file_of_a_successor_is_not_removed(tmp_path: Path):
    """REL-2: a hive takes away its own socket and no other."""
    path = tmp_path / "host.sock"
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_host_socket, path, FakeHive("ruth"))
        path.rename(tmp_path / "moved.sock")
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
        nursery.cancel_scope.cancel()
    assert path.exists()


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive_broker._socket_file._LOOK_SECONDS", 0.02)


async def test_a_socket_that_somebody_removed_is_made_again(served: Served, looks_often: None):
    """REL-3: file or whole folder, as often as it happens, with a warning; open connections go on."""
    async with connected(served.path) as former:
        with captured_logs() as lines:
            served.path.unlink()
            await eventually(served.path.exists)
            shutil.rmtree(served.path.parent)
            await eventually(served.path.exists)
        assert [(line["event"], line["log_level"]) for line in lines] == [
            ("a socket was removed by somebody; making it again", "warning")
        ] * 2
        assert stat.S_IMODE(served.path.stat().st_mode) == 0o660
        async with connected(served.path) as peer:
            assert (await peer.ask('{"cmd":"list"}'))["ok"]
            assert (await former.ask('{"cmd":"list"}'))["ok"]


async def test_a_place_that_another_process_took_is_left_to_it_until_it_goes(served: Served, looks_often: None):
    """REL-2, REL-3: nothing is stolen, nothing is given up, and the log is not filled."""
    served.path.unlink()
    with socket.socket(socket.AF_UNIX) as other, captured_logs() as lines:
        other.bind(str(served.path))
        other.listen()
        theirs = served.path.stat().st_ino
        await eventually(lambda: len(lines) == 2)
        assert "another process listens on" in lines[1]["reason"]
        for _ in range(3):
            await eventually(lambda: _accepted(other))
        assert (served.path.stat().st_ino, len(lines)) == (theirs, 2)
    await eventually(partial(_answers, served.path))


async def _answers(path: Path) -> bool:
    try:
        async with connected(path) as peer:
            return (await peer.ask('{"cmd":"list"}'))["ok"]
    except OSError:
        return False


def _accepted(listener: socket.socket) -> bool:
    """Whether the hive has looked once more if somebody listens."""
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


async def test_a_hive_that_stops_without_its_socket_leaves_the_one_of_another_alone(tmp_path: Path, looks_often: None):
    """REL-2, STOP-3: cancelled while it waits for its place."""
    path = tmp_path / "host.sock"
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_host_socket, path, FakeHive("ruth"))
        path.unlink()
        path.write_text("precious")
        with captured_logs() as lines:
            await eventually(lambda: len(lines) == 2)
        nursery.cancel_scope.cancel()
    assert path.read_text() == "precious"


async def test_a_cancelled_read_loses_nothing():
    """REL-4: a line that came in part before a cancellation is whole afterwards."""
    end, other = trio.testing.memory_stream_pair()
    reader = LineReader(other, limit_bytes=100)
    await end.send_all(b"ab")
    with trio.move_on_after(0):
        await reader.next_line()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.next_line)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await end.send_all(b"c\n")
    assert await reader.next_line() == b"abc"


async def test_lines_are_found_wherever_the_packets_end():
    """REL-4: byte by byte; a line of exactly the limit passes, one more byte does not, the next one is whole."""
    end, other = trio.testing.memory_stream_pair()
    reader = LineReader(other, limit_bytes=4)

    async def write() -> None:
        for byte in b"abcd\nabcde\n\nxy\nabcdefghijkl\nz\ncut":
            await end.send_all(bytes([byte]))
        await end.send_eof()

    async def read() -> list[object]:
        got: list[object] = []
        while True:
            try:
                got.append(await reader.next_line())
            except LineTooLong:
                got.append("too long")
            except LineCut:
                return [*got, "cut", await reader.next_line()]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        with trio.fail_after(5):
            assert await read() == [b"abcd", "too long", b"", b"xy", "too long", b"z", "cut", None]


async def test_a_line_without_end_is_never_held(autojump_clock: trio.testing.MockClock):
    """REL-4: what goes over the limit is thrown away while it comes."""
    end, other = trio.testing.memory_stream_pair()
    reader = LineReader(other, limit_bytes=1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(_read_one, reader))
        for _ in range(200):
            await end.send_all(b"x" * 10_000)
            await trio.testing.wait_all_tasks_blocked()
            assert len(reader._buffer) <= 1000 + 65536
        await end.send_all(b"\n")


async def _read_one(reader: LineReader) -> None:
    with pytest.raises(LineTooLong):
        await reader.next_line()
