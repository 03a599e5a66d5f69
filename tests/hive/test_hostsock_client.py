"""The client of the admin socket, against a served hive and against everything that is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from fake_hive import Served

from hive._errors import (
    HiveNotRunning,
    HiveUnintelligible,
    HiveVanished,
    RequestRefused,
    SocketPathTooLong,
    SocketUnusable,
)
from hive._hostsock import HostClient, open_host_client
from hive_broker import Acked, Sent

Peer = Callable[[trio.SocketStream], Awaitable[None]]


async def serve_as(peer: Peer, path: Path, nursery: trio.Nursery) -> None:
    """Listen at ``path`` with something that is not our server."""
    sock = trio.socket.socket(socket.AF_UNIX)
    await sock.bind(str(path))
    sock.listen(1)
    nursery.start_soon(trio.serve_listeners, peer, [trio.SocketListener(sock)])


def answering(line: bytes) -> Peer:
    async def peer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(line)
        await stream.receive_some()

    return peer


async def test_every_call_gives_what_the_hive_has(served: Served):
    """HOST-1, HOST-2: typed values, the same at both ends."""
    served.hive.put("iris", "operator", "one")
    served.hive.put("iris", "operator", "two", in_reply_to=1)
    async with open_host_client(served.path) as client:
        assert await client.list_agents() == ("ruth", "iris")
        assert await client.agent_status() == await served.hive.agent_status()
        assert await client.hive_status() == await served.hive.hive_status()
        assert await client.inbox(limit=1) == await served.hive.inbox(agent=None, limit=1, unread_only=False)
        assert await client.thread(2) == await served.hive.thread(1)
        assert await client.ack(1) == Acked(acked=1, never_read=1)
        assert await client.send(to="iris", body="three", in_reply_to=2) == Sent(id=2)
        assert [row.body for row in (await client.inbox(agent="iris", unread_only=True)).messages] == ["three"]
        await client.start(None)
        await client.stop(("iris",), graceful=False)
        await client.restart("ruth")
        await client.shutdown(graceful=True)
    assert served.hive.asked == [
        ("start", ("ruth", "iris")),
        ("stop", ("iris",), False),
        ("restart", "ruth"),
        ("shutdown", True),
    ]


async def test_calls_made_at_once_get_each_its_own_answer(served: Served):
    """HOST-1: one connection answers in order."""
    async with open_host_client(served.path) as client, trio.open_nursery() as nursery:

        async def send(n: int) -> None:
            sent = await client.send(to="iris", body=str(n))
            assert served.hive.messages[sent.id - 1].body == str(n)

        for n in range(50):
            nursery.start_soon(send, n)


async def test_a_refusal_is_raised_with_the_hives_sentence(served: Served):
    """HOST-1: and the connection goes on."""
    async with open_host_client(served.path) as client:
        with pytest.raises(RequestRefused, match='agent "ghost" is not managed by this hive'):
            await client.restart("ghost")
        assert await client.list_agents() == ("ruth", "iris")


async def test_no_hive_is_said_as_such(tmp_path: Path):
    """HOST-2: absent, dead, below a file, or no socket at all."""
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(dead))
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent.sock", dead, tmp_path / "file", tmp_path / "file" / "host.sock"):
        with pytest.raises(HiveNotRunning, match="start one with `hive up`"):
            async with open_host_client(path):
                raise AssertionError("nobody is there")
    with pytest.raises(SocketPathTooLong):
        async with open_host_client(tmp_path / ("x" * 120)):
            raise AssertionError("no socket can be there")


@pytest.mark.skipif(os.geteuid() == 0, reason="root is let in everywhere")
async def test_a_socket_of_somebody_elses_is_said_as_such(served: Served):
    """HOST-1: no permission is not "no hive"."""
    served.path.chmod(0)
    with pytest.raises(SocketUnusable, match="does not let you in"):
        async with open_host_client(served.path):
            raise AssertionError("nobody gets in")


@pytest.mark.parametrize(
    ("line", "error", "sentence"),
    [
        (b'{"version":99,"ok":true}\n', HiveUnintelligible, "speaks version 99 of the protocol"),
        (b'{"ok":true,"agents":[]}\n', HiveUnintelligible, "speaks version None"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", HiveUnintelligible, "it is no hive"),
        (b'{"version":1,"ok":true}\n', HiveUnintelligible, 'must have "agents"'),
        (b'{"version":1,"ok":true,"agents":7}\n', HiveUnintelligible, "does not have the shape"),
        (b'{"version":1,"ok":false}\n', RequestRefused, "did not say why"),
        (b"x" * (9 << 20) + b"\n", HiveUnintelligible, "at most 8388608 bytes"),
    ],
)
async def test_an_answer_that_is_none_is_said_as_such(
    tmp_path: Path, nursery: trio.Nursery, line: bytes, error: type[Exception], sentence: str
):
    """HOST-1: another version, another protocol, another shape."""
    await serve_as(answering(line), tmp_path / "host.sock", nursery)
    async with open_host_client(tmp_path / "host.sock") as client:
        with trio.fail_after(5), pytest.raises(error, match=sentence):
            await client.list_agents()


async def test_a_hive_that_goes_before_its_answer_may_have_done_it(tmp_path: Path, nursery: trio.Nursery):
    """REL-1: the client says that it does not know; half an answer is none."""

    async def vanishing(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b'{"version":1,')

    await serve_as(vanishing, tmp_path / "host.sock", nursery)
    async with open_host_client(tmp_path / "host.sock") as client:
        with pytest.raises(HiveVanished, match="it may have done what was asked"):
            await client.restart("iris")
        with pytest.raises(HiveVanished, match="open another one"):
            await client.restart("iris")


async def test_a_silent_hive_is_given_up_after_five_seconds(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    """HOST-1: and the late answer is not taken for another call's."""

    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep(6)
        await stream.send_all(b'{"version":1,"ok":true}\n')

    await serve_as(silent, tmp_path / "host.sock", nursery)
    async with open_host_client(tmp_path / "host.sock") as client:
        with pytest.raises(HiveVanished, match="did not answer within 5 s"):
            await client.restart("iris")
        await trio.sleep(2)
        with pytest.raises(HiveVanished, match="open another one"):
            await client.restart("ruth")


async def test_a_cancelled_call_puts_the_connection_out_of_step(served: Served):
    """HOST-1: its answer is on the way, and must not be taken for the next one's."""
    never = trio.Event()

    async def slow(name: str) -> None:
        await never.wait()

    served.hive.restart = slow  # type: ignore[method-assign]  # a hive that takes its time
    async with open_host_client(served.path) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.restart, "iris")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        with pytest.raises(HiveVanished, match="open another one"):
            await client.list_agents()


def test_a_client_is_made_by_opening_it():
    """House rule: live objects come from ``open_x``; this one is final."""
    assert getattr(HostClient, "__final__", False)
