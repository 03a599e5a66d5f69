"""The listener with mcp's own client over real loopback, in both protocol eras."""

import contextlib
import json
from ipaddress import IPv4Address

import pytest
import trio
from mcp.shared.exceptions import MCPError
from mcp_support import (
    CLIENT_LEAKS,
    TOKEN,
    Services,
    Stuck,
    exchange,
    make_desk,
    modern,
    modern_headers,
    open_client,
    post_bytes,
    status_of,
    text_of,
)

from hive_agent._errors import AgentMisuse, ListenerUnavailable
from hive_agent._mcp import open_listener

pytestmark = pytest.mark.filterwarnings(CLIENT_LEAKS)

ERAS = [pytest.param("legacy", id="2025"), pytest.param("auto", id="2026")]


def never_asked(name: str) -> Services:
    return Services(mailbox=None, name=name)


@pytest.mark.parametrize("mode", ERAS)
async def test_both_eras_list_and_call_the_tools(mode):
    """SURF-2, SURF-3: at the one URL, in plain text."""
    desk = make_desk()
    with trio.fail_after(5):
        async with open_listener() as listener:
            with listener.mount(desk.services, token=TOKEN) as mount:
                assert mount.urls == {"hyperhive": f"{listener.base_url}/agents/iris/mcp/hyperhive"}
                async with open_client(mount.urls["hyperhive"], mode=mode) as client:
                    listed = await client.list_tools()
                    assert [tool.name for tool in listed.tools] == ["send", "recv", "ack_until", "set_status"]
                    assert client.server_capabilities.tools.list_changed is True
                    result = await client.call_tool("send", {"to": "otto", "body": "hello"})
                    assert text_of(result) == "sent: message #1 to otto"
                    assert (result.structured_content, result.is_error) == (None, False)
                    refused = await client.call_tool("send", {"to": "nobody", "body": "hello"})
                    assert refused.is_error
                    unknown = await client.call_tool("fly", {})
                    assert "there is no tool 'fly' here; there are: send, recv" in text_of(unknown)
                    assert unknown.is_error
    assert desk.post.messages("otto")[0].sender == "iris"


async def test_a_list_of_tools_is_stale_at_once_and_nobody_elses():
    """PERM-2: a client must not keep one over a change of groups."""
    async with open_listener() as listener:
        with listener.mount(never_asked("iris"), token=TOKEN) as mount:
            async with open_client(mount.urls["hyperhive"], mode="auto") as client:
                listed = await client.list_tools()
    assert (listed.ttl_ms, listed.cache_scope) == (0, "private")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_asks_gets_the_facts_as_data_beside_the_text(mode):
    """SURF-3: and only that one, since the CLI would show the data instead of the text."""
    desk = make_desk()
    await desk.mail("hello")
    async with open_listener() as listener:
        with listener.mount(desk.services, token=TOKEN) as mount:
            async with open_client(mount.urls["hyperhive"], mode=mode) as client:
                result = await client.call_tool("recv", {}, meta={"hyperhive/structured": True})
    assert result.structured_content["messages"][0]["body"] == "hello"
    assert result.structured_content["unread"] == 0
    assert text_of(result).startswith("[msg #1] from operator")


@pytest.mark.parametrize("mode", ERAS)
async def test_the_turn_of_the_caller_is_in_a_header(mode):
    """MSG-5: what a CLI of an ended turn asks for is not done."""
    desk = make_desk()
    await desk.mail("mail")
    turn = await desk.open_turn()
    async with open_listener() as listener:
        with listener.mount(desk.services, token=TOKEN) as mount:
            async with open_client(mount.urls["hyperhive"], mode=mode, turn="999") as late:
                result = await late.call_tool("recv", {})
                assert result.is_error
                assert text_of(result).startswith("turn 999 is over, so nothing was done")
            async with open_client(mount.urls["hyperhive"], mode=mode, turn=turn) as client:
                assert text_of(await client.call_tool("recv", {})).startswith("[msg #1]")
                await client.call_tool("send", {"to": "otto", "body": "x"})
                assert "no second message" in text_of(await client.call_tool("send", {"to": "otto", "body": "x"}))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
async def test_unmounting_ends_calls_and_sessions_at_once(mode):
    """SURF-1: the agent is gone, and its URL with it."""
    services = Services(mailbox=(stuck := Stuck()))
    with trio.fail_after(5):
        async with open_listener() as listener, trio.open_nursery() as nursery:
            with listener.mount(services, token=TOKEN) as mount:
                url = mount.urls["hyperhive"]

                async def call_until_it_fails():
                    with contextlib.suppress(MCPError, ExceptionGroup):
                        async with open_client(url, mode=mode) as client:
                            await client.call_tool("recv", {})
                    nursery.cancel_scope.cancel()

                nursery.start_soon(call_until_it_fails)
                await stuck.reached.wait()
            await stuck.cancelled.wait()
            answer = await exchange(listener.port, post_bytes(url, b"{}"))
            assert status_of(answer) == 404
            nursery.cancel_scope.cancel()


async def test_a_name_is_mounted_once_and_again_after_it_left():
    """SURF-5: two agents of one name would share a path."""
    async with open_listener() as listener:
        with listener.mount(never_asked("iris"), token=TOKEN):
            with pytest.raises(AgentMisuse, match="'iris' is mounted already: leave its mount"):
                listener.mount(never_asked("iris"), token="other").__enter__()
            with listener.mount(never_asked("otto"), token="other"):
                pass
        with listener.mount(never_asked("iris"), token=TOKEN):
            pass


@pytest.mark.parametrize(
    ("name", "token", "sentence"),
    [
        ("../x", TOKEN, "valid name"),
        ("iris", "", "visible ASCII"),
        ("iris", "a b", "visible"),
        ("iris", "é", "visible"),
    ],
)
async def test_a_mount_takes_only_names_and_tokens_that_fit_into_a_request(name, token, sentence):
    """SEC-4: a name becomes a path, a token a header."""
    async with open_listener() as listener:
        with pytest.raises(AgentMisuse, match=sentence):
            listener.mount(never_asked(name), token=token).__enter__()


async def test_a_closed_listener_takes_no_agents():
    """STOP-3: doors close first."""
    async with open_listener() as listener:
        pass
    with pytest.raises(AgentMisuse, match="is closed"):
        listener.mount(never_asked("iris"), token=TOKEN).__enter__()


@pytest.mark.parametrize("host", [str(IPv4Address(0)), "192.0.2.1", "::", "localhost", "example.org", ""])
async def test_only_a_loopback_address_is_listened_on(host):
    """SEC-1: names are refused too, since they can come to mean something else."""
    with pytest.raises(AgentMisuse, match="must be a loopback address"):
        async with open_listener(host=host):
            raise AssertionError("opened")


@pytest.mark.parametrize("port", [-1, 65_536])
async def test_a_port_is_a_port(port):
    """SURF-1: said before the operating system says it worse."""
    with pytest.raises(AgentMisuse, match="from 0 to 65535"):
        async with open_listener(port=port):
            raise AssertionError("opened")


async def test_a_port_in_use_is_said_with_its_address():
    """SURF-1, REL-3: what to do is in the sentence."""
    async with open_listener() as listener:
        with pytest.raises(
            ListenerUnavailable, match=rf"127\.0\.0\.1:{listener.port} .*: stop what uses that port"
        ) as caught:
            async with open_listener(port=listener.port):
                raise AssertionError("opened")
    assert isinstance(caught.value.__cause__, OSError)


async def test_ipv6_loopback_works():
    """SEC-1: and its URL is written as one."""
    desk = make_desk()
    async with open_listener(host="::1") as listener:
        assert listener.base_url == f"http://[::1]:{listener.port}"
        with listener.mount(desk.services, token=TOKEN) as mount:
            async with open_client(mount.urls["hyperhive"], mode="auto") as client:
                assert text_of(await client.call_tool("recv", {})) == "no unread messages."


async def test_an_error_inside_leaves_the_listener_as_it_was():
    """EMBED-1: errors leave in one documented shape."""
    with pytest.RaisesGroup(KeyError):
        async with open_listener():
            raise KeyError("mine")


async def test_a_restart_on_the_same_port_is_transparent_to_a_2026_client():
    """SURF-1, SURF-4: no re-registration."""
    desk = make_desk()

    async def serve(stop: trio.Event, stopped: trio.Event, port: int, *, task_status):
        async with open_listener(port=port) as listener:
            with listener.mount(desk.services, token=TOKEN) as mount:
                task_status.started((listener.port, mount.urls["hyperhive"]))
                await stop.wait()
        stopped.set()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            stop, stopped = trio.Event(), trio.Event()
            port, url = await nursery.start(serve, stop, stopped, 0)
            async with open_client(url, mode="auto") as client:
                await client.call_tool("recv", {})
                stop.set()
                await stopped.wait()
                stop, stopped = trio.Event(), trio.Event()
                await nursery.start(serve, stop, stopped, port)
                assert text_of(await client.call_tool("recv", {})) == "no unread messages."
                stop.set()


async def test_a_session_of_a_2025_client_is_404_after_a_restart_and_initialising_again_helps():
    """SURF-4: 404 is the word that makes a client of that era initialise again."""
    desk = make_desk()
    initialize = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
    ).encode()
    ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode()
    port = 0
    session = "none yet"
    statuses = []
    for _ in range(2):
        async with open_listener(port=port) as listener:
            port = listener.port
            with listener.mount(desk.services, token=TOKEN) as mount:
                url = mount.urls["hyperhive"]
                statuses.append(status_of(await exchange(port, post_bytes(url, ping, mcp_session_id=session))))
                answer = await exchange(port, post_bytes(url, initialize))
                (line,) = [line for line in answer.split(b"\r\n") if line.startswith(b"mcp-session-id")]
                session = line.split(b": ")[1].decode()
                statuses.append(status_of(await exchange(port, post_bytes(url, ping, mcp_session_id=session))))
    assert statuses == [404, 200, 404, 200]


async def test_a_session_is_nobody_elses():
    """SURF-5: another agent's session id is as good as none."""
    async with open_listener() as listener:
        with (
            listener.mount(never_asked("iris"), token=TOKEN) as iris,
            listener.mount(never_asked("otto"), token="a-token-of-otto") as otto,
        ):
            async with open_client(iris.urls["hyperhive"], mode="legacy"):
                ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode()
                (endpoint,) = [door for path, door in listener._gate.doors.items() if "/iris/" in path]
                (session,) = endpoint._manager._server_instances
                there = post_bytes(otto.urls["hyperhive"], ping, mcp_session_id=session)
                assert status_of(await exchange(listener.port, there)) == 401
                there = post_bytes(
                    otto.urls["hyperhive"], ping, mcp_session_id=session, authorization="Bearer a-token-of-otto"
                )
                assert status_of(await exchange(listener.port, there)) == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer a-token-of-otto"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"Bearer {TOKEN}\nauthorization: Bearer {TOKEN}"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": "127.0.0.1.evil.example:80"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"authorization": f"bearer  {TOKEN}"}, 200),
    ],
)
async def test_only_the_token_of_the_path_at_the_address_of_the_listener_passes(headers, status):
    """SURF-5: whoever does not pass reaches no tool."""
    desk = make_desk()
    async with open_listener() as listener:
        with (
            listener.mount(desk.services, token=TOKEN) as mount,
            listener.mount(never_asked("otto"), token="a-token-of-otto"),
        ):
            body = modern("tools/call", {"name": "send", "arguments": {"to": "otto", "body": "x"}})
            url = mount.urls["hyperhive"]
            request = post_bytes(url, body, **modern_headers("tools/call", "send"), **headers)
            answer = await exchange(listener.port, request)
    assert status_of(answer) == status
    assert (b"www-authenticate: Bearer" in answer) == (status == 401)
    assert len(desk.post.messages("otto")) == (1 if status == 200 else 0)
    if status != 200:
        assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"error"}


async def test_the_listener_answers_to_localhost_too():
    """SURF-5: the same loopback by another name, with its own port."""
    async with open_listener() as listener:
        with listener.mount(never_asked("iris"), token=TOKEN) as mount:
            request = post_bytes(
                mount.urls["hyperhive"],
                modern("tools/list"),
                host=f"localhost:{listener.port}",
                origin=f"http://localhost:{listener.port}",
                **modern_headers("tools/list"),
            )
            assert status_of(await exchange(listener.port, request)) == 200
