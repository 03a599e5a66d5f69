"""``hivectl`` against a hive that answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result
from fake_hive import FakeHive

from hive._hostsock import AgentDetail
from hive.cli._hivectl import hivectl

FAKE_HIVE = Path(__file__).with_name("fake_hive.py")
HIVECTL = Path(sys.executable).with_name("hivectl")


@pytest.fixture
def ctl(running_hive: FakeHive, tmp_path: Path):
    """Runs ``hivectl`` on the fake hive."""

    def run(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(hivectl, ["--state", str(tmp_path), *args], input=stdin, catch_exceptions=False)

    return run


def test_status_shows_the_hive_and_its_agents(ctl, running_hive: FakeHive):
    """HOST-2: a table for people, and what needs words below it."""
    running_hive.agents["iris"] = AgentDetail(
        name="iris",
        running=True,
        turn_state="thinking",
        turn_state_since=0.0,
        unread=3,
        turns=12,
        last_outcome="done",
        active_model="a-model",
        status_text="reading",
        status_set_at=1.0,
        note="rate limited until 12:00",
    )
    running_hive.agents["ruth"] = AgentDetail(name="ruth", running=False, failed=True)
    running_hive.warnings = ("the sandbox is none",)
    running_hive.put("iris", "operator", "x")
    lines = ctl("status").output.splitlines()
    assert lines[0].startswith("fake  up ")
    assert lines[0].endswith(f"pid {os.getpid()}, 1 unread message for you")
    assert lines[1].split() == ["agent", "state", "unread", "turns", "last", "turn", "model", "status"]
    assert lines[3].split() == ["ruth", "failed", "0", "0"]
    iris = lines[4].split()
    assert (iris[:2], iris[3:]) == (["iris", "thinking"], ["d", "3", "12", "done", "a-model", "reading"])
    assert lines[-2:] == ["iris: rate limited until 12:00", "warning: the sandbox is none"]


def test_every_command_prints_json(ctl, running_hive: FakeHive):
    """HOST-2: what is on the wire."""
    running_hive.put("iris", "operator", "one")
    assert json.loads(ctl("status", "--json").output)["hive"] == "fake"
    assert json.loads(ctl("inbox", "--json").output)["messages"][0]["body"] == "one"
    assert json.loads(ctl("thread", "1", "--json").output)["id"] == 1
    assert json.loads(ctl("send", "iris", "hi", "--json").output) == {"id": 2, "duplicate": False}
    assert json.loads(ctl("ack", "1", "--json").output) == {"acked": 1, "never_read": 1}
    assert json.loads(ctl("restart", "iris", "--json").output) == {"restarting": "iris"}


def test_send_takes_the_body_from_its_argument_or_from_stdin(ctl, running_hive: FakeHive):
    """HOST-2, MSG-1: a last newline of a pipe is the pipe's, not the message's."""
    assert ctl("send", "iris", "hello").output == "sent #1 to iris\n"
    assert ctl("send", "iris", "-", "--reply-to", "1", stdin="two\nlines\n\n").output == "sent #2 to iris\n"
    assert [(row.body, row.in_reply_to) for row in running_hive.messages] == [("hello", None), ("two\nlines\n", 1)]


@pytest.mark.parametrize("stdin", [b"\xff\xfe", b"x" * 300_000])
def test_stdin_that_is_no_message_is_a_usage_error(ctl, running_hive: FakeHive, stdin: bytes):
    """MSG-3: nothing is sent."""
    result = ctl("send", "iris", "-", stdin=stdin)
    assert result.exit_code == 2
    assert "a message must" in result.stderr
    assert running_hive.messages == []


def test_inbox_shows_the_newest_last_and_what_is_unread(ctl, running_hive: FakeHive):
    """HOST-2: showing acks nothing."""
    running_hive.put("iris", "operator", "first")
    running_hive.messages[0] = attrs.evolve(running_hive.messages[0], acked_at=1.0)
    running_hive.put("ruth", "operator", "second\nline", in_reply_to=1)
    for _ in range(2):
        output = ctl("inbox").output
        assert output.index("#1  iris -> operator") < output.index("* #2  ruth -> operator")
        assert "* #1" not in output
        assert "answers #1" in output
        assert "  second\n  line\n" in output
        assert output.endswith("1 unread for you; when you have read them: hivectl ack 2\n")
    assert "first" not in ctl("inbox", "--unread").output
    assert "first" not in ctl("inbox", "--limit", "1").output


def test_an_agents_inbox_is_looked_into_and_left_alone(ctl, running_hive: FakeHive):
    """MSG-5: the operator pops nothing."""
    running_hive.put("ruth", "iris", "task")
    running_hive.messages[0] = attrs.evolve(running_hive.messages[0], dead_at=1.0, attempts=5)
    output = ctl("inbox", "--agent", "iris").output
    assert "ruth -> iris" in output
    assert "dead letter after 5 attempts" in output
    assert "hivectl ack" not in output
    assert ctl("inbox", "--agent", "ruth").output == "no messages for ruth\n"


def test_a_thread_is_shown_from_its_first_message(ctl, running_hive: FakeHive):
    """MSG-11: oldest first, whichever message of it is named."""
    running_hive.put("operator", "iris", "question")
    running_hive.put("iris", "operator", "answer", in_reply_to=1)
    output = ctl("thread", "2").output
    assert output.index("question") < output.index("answer")


def test_strangers_text_is_neither_markup_nor_control(ctl, running_hive: FakeHive):
    """DASH-2, SEC-5: an agent cannot paint, hide or move anything on the operator's terminal."""
    nasty = "[bold]x[/bold] :smile: \x1b[2J\x07 \u202eevil\u2066 \r\ttab\nnext"
    running_hive.put("iris", "operator", nasty)
    running_hive.agents["iris"] = AgentDetail(
        name="iris", running=True, status_text="\x1b]0;t\x07[red]", status_set_at=1
    )
    inbox, status = ctl("inbox").output, ctl("status").output
    assert r"[bold]x[/bold] :smile: \x1b[2J\x07 \u202eevil\u2066 \r    tab" in inbox
    assert "\n  next\n" in inbox
    assert r"\x1b]0;t\x07[red]" in status
    assert "\x1b" not in inbox + status


def test_a_pipe_gets_whole_lines(ctl, running_hive: FakeHive):
    """HOST-2: no wrapping, no dots, no colour; one row is one line."""
    name = "a" * 63
    running_hive.agents[name] = AgentDetail(name=name, running=True, status_text="s" * 150, status_set_at=1)
    running_hive.put("iris", "operator", "word " * 100)
    assert any(name in line and "s" * 150 in line for line in ctl("status").output.splitlines())
    assert "word " * 99 + "word" in ctl("inbox").output
    running_hive.put("iris", "operator", "w" * 200_000)
    assert f"\n  {'w' * 200_000}\n" in ctl("inbox").output


def test_restart_and_ack_say_what_they_did(ctl, running_hive: FakeHive):
    """HOST-2."""
    running_hive.put("iris", "operator", "x")
    assert ctl("restart", "iris").output == "restarting iris\n"
    assert running_hive.asked == [("restart", "iris")]
    assert ctl("ack", "1").output == "acked 1 message up to #1\n"
    assert ctl("ack", "1").output == "acked 0 messages up to #1\n"


def test_a_refusal_is_one_sentence_on_stderr(ctl):
    """HOST-2: exit code 1, and nothing on stdout."""
    result = ctl("restart", "ghost")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == 'hivectl: agent "ghost" is not managed by this hive; known: iris, ruth\n'


@pytest.mark.parametrize("args", [["ack", "x"], ["ack", "0"], ["send", "iris"], ["nope"], ["inbox", "--limit", "0"]])
def test_wrong_usage_has_its_own_exit_code(ctl, args: list[str]):
    """HOST-2: 2, as everywhere."""
    assert ctl(*args).exit_code == 2


def test_help_says_how_to_complete():
    """HOST-2: shell completion comes with it."""
    assert "_HIVECTL_COMPLETE=bash_source" in CliRunner().invoke(hivectl, ["--help"]).output


# --- as programs


@pytest.fixture
def hive_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A fake hive in a process of its own, published in ``tmp_path / "hive-state"``."""
    command = [sys.executable, str(FAKE_HIVE), str(tmp_path / "hive-state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        if process.poll() is None:
            process.kill()


def run_hivectl(folder: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("HIVE_")} | environ
    command = [str(HIVECTL), *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.slow
def test_stop_waits_until_the_process_is_gone(hive_process: subprocess.Popen[str], tmp_path: Path):
    """STOP-1, HOST-2: when it says stopped, nothing is left."""
    result = run_hivectl(tmp_path, "stop")
    assert (result.returncode, result.stdout) == (0, "hive fake has stopped\n")
    assert f"stopping hive fake (pid {hive_process.pid})" in result.stderr
    assert hive_process.wait(5) == 0
    assert not (tmp_path / "hive-state" / "run" / "host.sock").exists()
    again = run_hivectl(tmp_path, "stop")
    assert (again.returncode, again.stdout) == (3, "")
    assert "no hive is running here" in again.stderr


@pytest.mark.slow
def test_the_programs_exit_codes(hive_process: subprocess.Popen[str], tmp_path: Path):
    """HOST-2: 0 done, 1 refused, 2 usage, 3 no hive."""
    state = str(tmp_path / "hive-state")
    assert run_hivectl(tmp_path, "status").returncode == 0
    assert run_hivectl(tmp_path, "restart", "ghost").returncode == 1
    assert run_hivectl(tmp_path, "--nope").returncode == 2
    assert run_hivectl(Path("/"), "status").returncode == 3
    assert run_hivectl(Path("/"), "status", HIVE_STATE_DIR=state).returncode == 0
    assert run_hivectl(Path("/"), "--state", "/nowhere", "status", HIVE_STATE_DIR=state).returncode == 3
    hive_process.send_signal(signal.SIGKILL)
    hive_process.wait()
    killed = run_hivectl(tmp_path, "status")
    assert (killed.returncode, killed.stdout) == (3, "")
    assert killed.stderr.startswith("hivectl: no hive is running: nobody listens on ")


@pytest.mark.slow
def test_a_terminal_without_unicode_is_no_reason_to_fail(hive_process: subprocess.Popen[str], tmp_path: Path):
    """HOST-2: what it cannot show is escaped."""
    assert run_hivectl(tmp_path, "send", "iris", "naïve ✓").returncode == 0
    shown = run_hivectl(tmp_path, "inbox", "--agent", "iris", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert shown.returncode == 0
    assert r"na\xefve \u2713" in shown.stdout


@pytest.mark.slow
def test_hivectl_imports_no_server():
    """HOST-2: the operator does not wait for what only the hive needs."""
    program = """
import sys, types, pathlib
package = types.ModuleType("hive")
package.__path__ = [str(pathlib.Path(sys.argv[1]))]
sys.modules["hive"] = package
import hive.cli
assert not {"trio", "rich"} & set(sys.modules), "for --help"
import hive._hostsock, hive.cli._render, hive.cli._stop, hive.cli._find
assert not {"mcp", "hypercorn", "hive_agent"} & set(sys.modules), "for a command"
"""
    import hive

    folder = Path(hive.__file__).parent
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=30)
