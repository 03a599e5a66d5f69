"""``hive-agent``: what it is told, what it says when it cannot run, and pid 1's duties (HOST-6)."""

import os
import signal
import stat
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from waiting import eventually

import hive_broker
from hive_agent import own_harness
from hive_agent._alone_settings import DEFAULT_BROKER_SOCKET, read_settings
from hive_agent._errors import SettingsInvalid

HIVE_AGENT = str(Path(sys.executable).parent / "hive-agent")

SLEEPER = "cat >/dev/null; exec sleep 1000"
"""A runtime that reads its prompt and thinks for ever."""


def test_the_environment_is_enough(tmp_path):
    """HOST-6: and the folders are those an agent has inside a hive."""
    settings = read_settings(None, environ={"HIVE_NAME": "ruth", "HIVE_STATE_DIR": "/state", "OTHER": "x"})
    assert (settings.broker_socket, settings.port) == (DEFAULT_BROKER_SOCKET, 0)
    agent = settings.agent
    assert [agent.state_dir, agent.harness_dir, agent.config_dir] == [
        Path("/state/state"),
        Path("/state/harness"),
        Path("/state/config"),
    ]


def test_the_environment_is_over_the_file(tmp_path):
    """HOST-6: an empty variable is none."""
    file = tmp_path / "agent.toml"
    file.write_text(
        'name = "iris"\nstate_dir = "/a"\nmodel = "small"\ngrace_seconds = 3\nport = 7001\n[env]\nTOKEN = "secret"\n'
    )
    environ = {"HIVE_NAME": "ruth", "HIVE_DEFAULT_MODEL": "", "HIVE_PORT": "0", "HIVE_RATE_LIMIT_SLEEP_SECS": "60"}
    settings = read_settings(file, environ=environ)
    agent = settings.agent
    assert (agent.name, agent.claude.model, agent.grace_seconds, settings.port) == ("ruth", "small", 3.0, 0)
    assert (agent.rate_limit_sleep_seconds, agent.claude.env) == (60.0, {"TOKEN": "secret"})
    assert "secret" not in repr(settings)


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    """HOST-6: with the variable or the key, what must hold and what came."""
    file = tmp_path / "agent.toml"
    file.write_text('modle = "x"\nport = 70000\ngrace_seconds = -1\neffort = "--x"\n[env]\n"A=B" = "hunter2"\n')
    with pytest.raises(SettingsInvalid) as caught:
        read_settings(file, environ={"HIVE_NAME": "operator", "HIVE_BROKER_SOCKET": "relative"})
    sentences = str(caught.value).splitlines()
    for words in (
        "modle is not known; did you mean model?",
        "HIVE_NAME must be an agent's name",
        "HIVE_BROKER_SOCKET must be an absolute path, got 'relative'",
        "state_dir must be given: set HIVE_STATE_DIR",
        "port must be a whole number from 0 to 65535, got 70000",
        "grace_seconds must be a number of seconds above 0",
        "effort must be one line",
        "env must be a table of names and strings",
    ):
        assert any(words in sentence for sentence in sentences), words
    assert len(sentences) == 8
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"name = ", "must be TOML"), (b"\xff", "must be UTF-8"), (b"#" * (2 << 20), "at most"), (None, "readable file")],
)
def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path, content, words):
    """HOST-6."""
    file = tmp_path / "agent.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsInvalid, match=words):
        read_settings(file, environ={})


class Running:
    """A running hive-agent and what it says."""

    def __init__(self, process, output):
        self.process = process
        self.output = output

    @property
    def said(self):
        return self.output.read_text()

    async def ended(self):
        with trio.fail_after(15):
            return await self.process.wait()


@asynccontextmanager
async def hive_agent(folder, **environ):
    output = folder / f"{len(list(folder.glob('*.out')))}.out"
    command = folder / "fake-claude"
    command.write_text(f"#!/bin/sh\n{SLEEPER}\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (folder / "agent.toml").write_text(f'command = "{command}"\ngrace_seconds = 60\n')
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "HIVE_NAME": "ruth",
        "HIVE_STATE_DIR": str(folder / "ruth"),
        "HIVE_BROKER_SOCKET": str(folder / "mcp.sock"),
        "HIVE_AGENT_CONFIG": str(folder / "agent.toml"),
        **environ,
    }
    with output.open("wb") as sink:
        process = await trio.lowlevel.open_process(
            [HIVE_AGENT, "--verbose"], env=environment, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL
        )
    try:
        yield Running(process, output)
    finally:
        if process.poll() is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


@asynccontextmanager
async def served(folder, *, runs_turns=True, name="ruth"):
    async with (
        hive_broker.open_broker(folder / "broker.sqlite", owner="test") as broker,
        trio.open_nursery() as nursery,
    ):
        await broker.set_agents(["ruth", "iris"])
        seen = []
        serve = partial(hive_broker.serve_mailbox, runs_turns=runs_turns, attached=seen.append)
        await nursery.start(serve, folder / "mcp.sock", broker.mailbox(name))
        yield broker, seen
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_without_a_name_it_says_what_to_set(tmp_path):
    """HOST-6: usage is 2."""
    async with hive_agent(tmp_path, HIVE_NAME="") as running:
        assert await running.ended() == 2
        assert running.said == "hive-agent: name must be given: set HIVE_NAME, or name in the file of --config\n"


@pytest.mark.slow
@pytest.mark.parametrize("why", ["inline", "another's"])
async def test_a_socket_that_does_not_let_it_in_is_said_and_ends_it(tmp_path, why):
    """HOST-6, SURF-5, TURN-4: cannot run is 1, in one sentence."""
    name = "iris" if why == "another's" else "ruth"
    async with served(tmp_path, runs_turns=why != "inline", name=name), hive_agent(tmp_path) as running:
        assert await running.ended() == 1
        assert {"inline": "hive.toml", "another's": "mailbox of iris"}[why] in running.said
        assert "Traceback" not in running.said


@pytest.mark.slow
async def test_without_a_runtime_it_says_so_and_ends(tmp_path):
    """HOST-6."""
    (tmp_path / "other.toml").write_text('command = "/nowhere/claude"\n')
    async with hive_agent(tmp_path, HIVE_AGENT_CONFIG=str(tmp_path / "other.toml")) as running:
        assert await running.ended() == 1
        assert "/nowhere/claude" in running.said
        assert "Traceback" not in running.said


@pytest.mark.slow
async def test_a_second_signal_cuts_a_turn_off_and_its_mail_goes_back(tmp_path):
    """STOP-2, STOP-3: the first waits within the grace; exit 0."""
    async with served(tmp_path) as (broker, _), hive_agent(tmp_path) as running:
        await broker.mailbox("iris").send(to="ruth", body="x")
        await eventually(lambda: (tmp_path / "ruth" / "harness" / "runtime-may-run").exists())
        running.process.send_signal(signal.SIGTERM)
        await eventually(lambda: "once more to cut it off" in running.said)
        assert running.process.poll() is None
        running.process.send_signal(signal.SIGINT)
        assert await running.ended() == 0
        counts = (await broker.counts())["ruth"]
        assert (counts.unread, counts.in_flight) == (1, 0)


@pytest.mark.slow
async def test_the_tools_keep_their_port_and_token(tmp_path):
    """SURF-1, SURF-4."""
    kept = []
    harness = tmp_path / "ruth" / "harness"
    async with served(tmp_path) as (_, seen):
        for life in range(2):
            async with hive_agent(tmp_path) as running:
                await eventually(lambda: "waits for mail" in running.said and len(seen) % 2 == 1)
                kept.append([(harness / name).read_text() for name in ("mcp-port", "mcp-token")])
                assert stat.S_IMODE((harness / "mcp-token").stat().st_mode) == 0o600
                running.process.send_signal(signal.SIGTERM)
                assert await running.ended() == 0, life
            await eventually(lambda: len(seen) % 2 == 0)
    assert kept[0] == kept[1]


INIT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans come to this process, as they come to pid 1
from hive_agent._pid1 import become_init
code = become_init()
if code is not None:
    try:
        os.waitpid(-1, os.WNOHANG)
        left = "children left"
    except ChildProcessError:
        left = "nothing left"
    print(left, code, flush=True)
    sys.exit(0)
import subprocess
exec(sys.argv[1])
"""


ORPHAN = """
subprocess.run(["sh", "-c", "true & true & exit 0"])
sys.exit(subprocess.run(["sh", "-c", "exit 5"]).returncode)
"""
"""Leaves orphans to the first process, which must reap them and not this program's own child."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("sys.exit(7)", "nothing left 7"),
        ("os.kill(os.getpid(), 9)", "nothing left 137"),
        (ORPHAN, "nothing left 5"),
    ],
)
def test_the_first_process_reaps_and_gives_the_programs_code(program, said):
    """HOST-6."""
    done = subprocess.run(
        [sys.executable, "-c", INIT, program], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == said


@pytest.mark.slow
async def test_the_first_process_passes_signals_on():
    """HOST-6, STOP-1: TERM reaches the agent."""
    program = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('ready', flush=True)\n"
        "signal.pause()"
    )
    process = await trio.lowlevel.open_process([sys.executable, "-c", INIT, program], stdout=subprocess.PIPE)
    with trio.fail_after(20):
        said = b""
        while not said.endswith(b"ready\n"):
            said += await process.stdout.receive_some()
        process.send_signal(signal.SIGTERM)
        said += b"".join([chunk async for chunk in process.stdout])
        await process.wait()
        await process.stdout.aclose()
    assert said == b"ready\nnothing left 3\n"


@pytest.mark.slow
def test_a_second_one_is_refused_before_it_has_touched_anything(tmp_path):
    """TURN-4: neither the port nor the runtime of the first; there is no need of a hive to know that."""
    harness = tmp_path / "harness"
    with own_harness(harness, name="ruth"):
        (harness / "runtime-may-run").touch()
        before = sorted(path.name for path in harness.iterdir())
        done = subprocess.run(
            [HIVE_AGENT],
            env={
                "PATH": os.environ["PATH"],
                "HIVE_NAME": "ruth",
                "HIVE_STATE_DIR": str(tmp_path),
                "HIVE_BROKER_SOCKET": str(tmp_path / "nobody.sock"),
            },
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 1
        assert f"ruth is run by another process already (pid {os.getpid()})" in done.stderr
        assert "Traceback" not in done.stderr
        assert sorted(path.name for path in harness.iterdir()) == before
