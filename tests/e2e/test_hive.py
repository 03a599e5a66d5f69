"""A whole hive on the real Claude CLI and the scripted model: what a user sees, and its bad days."""

from __future__ import annotations

import json
import signal
import socket
import stat
from pathlib import Path

import httpx2
import psutil
import pytest
import trio
from e2e.hive_process import claude_processes, environment, hive_up, hivectl, rows
from waiting import eventually

from hive_agent.testing import ScriptedModel, call, open_scripted_model, say, stall

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RECV = "mcp__hyperhive__recv"


def write_config(folder: Path, base_url: str, *, more: str = "", agents: tuple[str, ...] = ("ruth",)) -> Path:
    """A hive.toml in ``folder`` whose agents can reach nothing but ``base_url``."""
    tables = "\n".join(f"[agents.{name}]" for name in agents)
    (folder / "hive.toml").write_text(
        f'[hive]\nmanager = "{agents[0]}"\n[runtime]\ngrace_seconds = 2\n{more}\n'
        f'env = {{ ANTHROPIC_BASE_URL = "{base_url}", ANTHROPIC_API_KEY = "sk-ant-scripted-model" }}\n{tables}\n'
    )
    return folder / "hive-state"


def reading_model() -> ScriptedModel:
    """An agent that reads its mail and is done."""
    model = ScriptedModel()
    model.when(tool_result=RECV).reply(say("Read."))
    model.when(last_user="unread").reply(call(RECV, max=5))
    return model


async def test_the_demo_tells_its_story_and_leaves_nothing_open(tmp_path: Path) -> None:
    """The README's first command: within 30 s ruth's report is there, every row is acked, both agents are idle."""
    state_dir = tmp_path / "hive-demo"
    async with hive_up("--demo", cwd=tmp_path, state_dir=state_dir) as hive:
        await eventually(lambda: "that is the whole round" in hive.output, seconds=30)
        inbox = await hivectl("inbox", state_dir=state_dir)
        (report,) = inbox["messages"]
        assert report["sender"] == "ruth"
        assert report["body"].startswith("iris writes:\n")
        stored = rows(state_dir)
        assert [(row["sender"], row["recipient"]) for row in stored] == [
            ("operator", "ruth"),
            ("ruth", "iris"),
            ("iris", "ruth"),
            ("ruth", "operator"),
        ]
        assert all(row["acked_at"] is not None for row in stored)
        assert {row["thread_id"] for row in stored} == {stored[0]["id"]}
        status = await hivectl("status", state_dir=state_dir)
        assert [agent["turn_state"] for agent in status["agents"]] == ["idle", "idle"]
        for words in ("operator  → ruth", "ruth      → iris", "iris      → ruth", "ruth      → operator"):
            assert words in hive.output
        # Whatever the operator writes next goes the same way.
        await hivectl("send", "ruth", "Another one, please.", state_dir=state_dir)
        await eventually(lambda: len(rows(state_dir)) == 8 and all(row["acked_at"] for row in rows(state_dir)[:7]))
        hive.process.send_signal(signal.SIGINT)
        assert await hive.wait_exit(5) == 0
        assert hive.runtimes() == []
        assert not (state_dir / "run" / "hive.json").exists()


async def test_kill_9_while_an_agent_thinks_brings_the_message_back_once_and_ends_the_orphan(tmp_path: Path) -> None:
    """MSG-5, TURN-4, REL-1: the row is marked as redelivered, exactly one CLI process runs (paperclip#7270)."""
    model = ScriptedModel()
    hold = trio.Event()
    model.when(tool_result=(RECV, "redelivered (attempt 2)")).reply(say("Read."))
    model.when(tool_result=RECV, times=1).reply(stall(hold))
    model.when(last_user="unread").reply(call(RECV, max=5))
    async with open_scripted_model(model) as served:
        state_dir = write_config(tmp_path, served.base_url)
        async with hive_up(cwd=tmp_path, state_dir=state_dir) as first:
            sent = await hivectl("send", "ruth", "Think about this.", state_dir=state_dir)
            await model.wait_requests(2)
            (orphan,) = first.runtimes()
            first.process.send_signal(signal.SIGKILL)
            await first.wait_exit(5)
            assert orphan.is_running(), "the CLI outlives its harness, or this test shows nothing"
            async with hive_up(cwd=tmp_path, state_dir=state_dir) as second:
                most = 0

                def settled() -> bool:
                    nonlocal most
                    running = second.runtimes()
                    most = max(most, len(running))
                    (row,) = rows(state_dir)
                    return row["acked_at"] is not None

                await eventually(settled)
                assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
                assert most <= 1
                (row,) = rows(state_dir)
                assert (row["id"], row["attempts"]) == (sent["id"], 2)
                assert not model.unmatched
                second.process.send_signal(signal.SIGTERM)
                assert await second.wait_exit(5) == 0


async def test_sigterm_on_an_idle_hive_with_open_streams_exits_0_in_two_seconds(tmp_path: Path) -> None:
    """STOP-3: neither an MCP stream, nor a client that sends half a request, nor an admin client holds it."""
    async with open_scripted_model(reading_model()) as served:
        state_dir = write_config(tmp_path, served.base_url, agents=("ruth", "iris"))
        async with hive_up(cwd=tmp_path, state_dir=state_dir) as hive:
            agent = hive.addresses["agents"]["ruth"]
            headers = {
                "Authorization": f"Bearer {Path(agent['mcp_token_file']).read_text().strip()}",
                "Accept": "application/json, text/event-stream",
            }
            url = agent["mcp"]["hyperhive"]
            async with httpx2.AsyncClient(timeout=10) as client, trio.open_nursery() as nursery:
                opening = {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "initialize",
                    "params": {
                        "protocolVersion": "2025-11-25",
                        "capabilities": {},
                        "clientInfo": {"name": "test", "version": "0"},
                    },
                }
                answer = await client.post(url, headers=headers, json=opening)
                session = {**headers, "Mcp-Session-Id": answer.headers["mcp-session-id"]}
                streaming = trio.Event()

                async def hold_stream() -> None:
                    async with client.stream("GET", url, headers=session) as stream:
                        assert stream.status_code == 200
                        streaming.set()
                        try:
                            async for _ in stream.aiter_raw():
                                pass
                        except httpx2.HTTPError:
                            pass  # cut by the end of the hive, which is the point

                nursery.start_soon(hold_stream)
                with trio.fail_after(5):
                    await streaming.wait()
                admin = socket.socket(socket.AF_UNIX)
                admin.connect(hive.addresses["host_sock"])
                half = socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])))
                half.sendall(b"POST / HTTP/1.1\r\nHost: 127")
                hive.process.send_signal(signal.SIGTERM)
                assert await hive.wait_exit(2) == 0
                admin.close()
                half.close()
            assert claude_processes(state_dir) == []
            assert not psutil.pid_exists(hive.pid)


async def test_a_second_hive_on_the_same_state_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    """REL-2."""
    async with open_scripted_model(reading_model()) as served:
        state_dir = write_config(tmp_path, served.base_url)
        async with hive_up(cwd=tmp_path, state_dir=state_dir) as first:
            async with hive_up(cwd=tmp_path, state_dir=state_dir, wait=False) as second:
                assert await second.wait_exit(10) == 1
                assert str(first.pid) in second.output
                assert "Traceback" not in second.output
            assert (await hivectl("status", state_dir=state_dir))["pid"] == first.pid


async def test_without_credentials_the_agent_parks_and_the_hive_stays(tmp_path: Path) -> None:
    """TURN-5: needs_login, one notice, no loop, and the mail waits."""
    (tmp_path / "hive.toml").write_text(
        '[runtime]\nenv = { ANTHROPIC_BASE_URL = "http://127.0.0.1:9" }\n[agents.ruth]\n'
    )
    state_dir = tmp_path / "hive-state"
    async with hive_up(cwd=tmp_path, state_dir=state_dir) as hive:
        assert "warning: no credentials for ruth" in hive.output
        await hivectl("send", "ruth", "hello", state_dir=state_dir)

        async def told() -> bool:
            return bool((await hivectl("inbox", state_dir=state_dir))["messages"])

        await eventually(told, seconds=15)
        (notice,) = (await hivectl("inbox", state_dir=state_dir))["messages"]
        assert notice["sender"] == "system"
        assert "ANTHROPIC_API_KEY" in notice["body"]
        (agent,) = (await hivectl("status", state_dir=state_dir))["agents"]
        assert agent["needs_login"] is True
        assert agent["unread"] == 1
        assert agent["turns"] == 1
        assert hive.process.poll() is None


@pytest.mark.parametrize(
    ("script", "outcome", "words"),
    [
        ("exit 3", "crashed", "exited with code 3"),
        ("echo 'no such option' >&2; exit 1", "crashed", "no such option"),
        ("echo garbage; echo more garbage", "crashed", "2 of its lines were not JSON"),
        ("cat >/dev/null; sleep 1000", "stalled", ""),
        ("trap '' INT TERM; cat >/dev/null; while :; do sleep 1; done", "stalled", ""),
    ],
    ids=["exits at once", "complains and exits", "prints garbage", "never exits", "never exits and ignores signals"],
)
async def test_a_broken_cli_costs_a_turn_and_not_the_hive(
    tmp_path: Path, script: str, outcome: str, words: str
) -> None:
    """TURN-5, TURN-6: the mail waits, the next try waits too, and the hive serves on."""
    cli = tmp_path / "broken-claude"
    cli.write_text(f"#!/bin/sh\n{script}\n")
    cli.chmod(cli.stat().st_mode | stat.S_IXUSR)
    more = f'command = "{cli}"\nturn_silence_seconds = 0.5'
    state_dir = write_config(tmp_path, "http://127.0.0.1:9", more=more)
    async with hive_up(cwd=tmp_path, state_dir=state_dir) as hive:
        await hivectl("send", "ruth", "hello", state_dir=state_dir)

        agent: dict[str, object] = {}

        async def ended() -> object:
            (now,) = (await hivectl("status", state_dir=state_dir))["agents"]
            agent.update(now)
            return agent.get("last_outcome")

        await eventually(ended, seconds=20)
        assert agent["last_outcome"] == outcome
        assert words in str(agent["note"])
        assert agent["unread"] == 1
        hive.process.send_signal(signal.SIGTERM)
        assert await hive.wait_exit(10) == 0
        assert claude_processes(state_dir) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[agents.ruth]\nmodle = 'x'\n", ["modle", "model"]),
        ("[agents.ruth\n", ["hive.toml", "line 1"]),
        (
            "[runtime]\ncommand = '/nowhere/claude'\n[agents.ruth]\n",
            ["/nowhere/claude", "hyperhive[claude]", "command"],
        ),
    ],
    ids=["unknown key", "damaged file", "no such CLI"],
)
async def test_a_configuration_that_cannot_run_is_refused_in_words(
    tmp_path: Path, config: str, words: list[str]
) -> None:
    """Errors say what to do, and a traceback is not a sentence."""
    (tmp_path / "hive.toml").write_text(config)
    async with hive_up(cwd=tmp_path, state_dir=tmp_path / "hive-state", wait=False) as hive:
        assert await hive.wait_exit(10) == 1
        assert "Traceback" not in hive.output
        for word in words:
            assert word in hive.output


async def test_a_port_in_use_is_refused_in_words(tmp_path: Path) -> None:
    """SURF-1: a port that was asked for is not silently another one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "hive.toml").write_text(f"[hive]\nmcp_port = {port}\n[agents.ruth]\n")
        async with hive_up(cwd=tmp_path, state_dir=tmp_path / "hive-state", wait=False) as hive:
            assert await hive.wait_exit(10) == 1
            assert f"127.0.0.1:{port}" in hive.output
            assert "Traceback" not in hive.output


async def test_the_tools_url_and_token_are_the_same_after_a_restart(tmp_path: Path) -> None:
    """SURF-1, SURF-4: a client that has them needs no others."""
    seen = []
    state_dir = write_config(tmp_path, "http://127.0.0.1:9")
    for _ in range(2):
        async with hive_up(cwd=tmp_path, state_dir=state_dir) as hive:
            agent = hive.addresses["agents"]["ruth"]
            seen.append((agent["mcp"], Path(agent["mcp_token_file"]).read_text()))
            assert stat.S_IMODE(Path(agent["mcp_token_file"]).stat().st_mode) == 0o600
            assert stat.S_IMODE((state_dir / "run" / "hive.json").stat().st_mode) == 0o600
            hive.process.send_signal(signal.SIGTERM)
            assert await hive.wait_exit(5) == 0
    assert seen[0] == seen[1]


async def test_hivectl_stop_ends_the_hive_and_waits_for_it(tmp_path: Path) -> None:
    """HOST-2, STOP-2."""
    state_dir = write_config(tmp_path, "http://127.0.0.1:9")
    async with hive_up(cwd=tmp_path, state_dir=state_dir) as hive:
        await hivectl("stop", state_dir=state_dir)
        assert hive.process.poll() is not None or await hive.wait_exit(1) == 0
        assert hive.process.returncode == 0
        said = await hivectl("status", state_dir=state_dir, code=3)
        assert "no hive is running" in json.dumps(said)


async def test_a_second_signal_cuts_off_a_turn_that_will_not_end(tmp_path: Path) -> None:
    """STOP-3: the first waits for the turn, the second does not, and the mail is back in the inbox."""
    model = ScriptedModel()
    model.when(last_user="unread", times=1).reply(call(RECV, max=5))
    model.otherwise(stall())
    async with open_scripted_model(model) as served:
        state_dir = write_config(tmp_path, served.base_url)
        text = (tmp_path / "hive.toml").read_text().replace("grace_seconds = 2", "grace_seconds = 60")
        (tmp_path / "hive.toml").write_text(text)
        async with hive_up(cwd=tmp_path, state_dir=state_dir) as hive:
            await hivectl("send", "ruth", "hello", state_dir=state_dir)
            await model.wait_requests(2)
            hive.process.send_signal(signal.SIGTERM)
            await eventually(lambda: "once more to cut them off" in hive.output)
            with trio.move_on_after(0.5):
                await hive.process.wait()
            assert hive.process.poll() is None, "the first signal waits for the turn"
            hive.process.send_signal(signal.SIGTERM)
            assert await hive.wait_exit(5) == 0
        (row,) = rows(state_dir)
        assert row["acked_at"] is None
        assert row["turn_id"] is None
        assert row["attempts"] == 1


def test_the_environment_of_these_tests_leaks_nothing(tmp_path: Path) -> None:
    """The CLI is started only with a built environment: no variable of ours reaches a hive under test."""
    assert set(environment(tmp_path)) == {"PATH", "HOME", "LANG", "PYTHONUNBUFFERED"}
