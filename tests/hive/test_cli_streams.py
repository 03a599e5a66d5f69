"""``hivectl`` whose output goes nowhere, and ``hivectl`` that is lied to: one sentence, an exit code, no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_hive import FakeHive

from hive.cli._streams import OutputLost, _Descriptor

HIVECTL = Path(sys.executable).with_name("hivectl")

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs ``hivectl`` on the hive in ``tmp_path``, with redirections."""

    def run(words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f"exec '{HIVECTL}' --state '{tmp_path}' {words}"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, **environ},
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize("words", ["inbox", "inbox --json", "status", "send iris hello", "--help", "--version"])
@pytest.mark.parametrize(
    ("where", "why"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")],
    ids=["full", "closed"],
)
def test_an_answer_that_cannot_be_written_is_an_error_in_words(
    shell: Shell, running_hive: FakeHive, words: str, where: str, why: str
):
    """HOST-2: said on stderr, once; short answers and long ones."""
    running_hive.put("iris", "operator", "w" * 200_000)
    result = shell(f"{words} {where}")
    sentence = f"hivectl: the output cannot be written ({why}); what was asked may have been done\n"
    assert (result.returncode, result.stderr) == (1, sentence)
    nowhere = shell(f"{words} {where} 2>&-")
    assert (nowhere.returncode, nowhere.stdout, nowhere.stderr) == (1, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_an_error_sentence_that_cannot_be_written_changes_no_exit_code(
    shell: Shell, running_hive: FakeHive, where: str
):
    """HOST-2: scripts go by the code."""
    assert shell(f"status {where}").returncode == 0
    assert shell(f"restart ghost {where}").returncode == 1
    assert shell(f"--nope {where}").returncode == 2


@pytest.mark.slow
def test_a_reader_that_has_gone_is_told_nothing(shell: Shell, running_hive: FakeHive):
    """HOST-2: as every program in a pipe."""
    running_hive.put("iris", "operator", "w" * 200_000)
    for words in ("inbox", "inbox --json"):
        assert shell(f"{words} | head -c 1").stderr == ""


@pytest.mark.slow
def test_a_closed_stdin_has_no_message(shell: Shell, running_hive: FakeHive):
    """MSG-3: nothing is sent."""
    result = shell("send iris - <&-")
    assert result.returncode == 2
    assert "there is no stdin to read a message from" in result.stderr
    assert running_hive.messages == []


def test_a_terminal_that_others_made_non_blocking_gets_all_of_it():
    """HOST-2: what does not fit at once waits for the reader."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb") as owner:
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(reader.read()))
        thread.start()
        output = _Descriptor(writing, faults_matter=True)
        left = memoryview(b"x" * 500_000)
        while left:
            left = left[output.write(left) :]
        owner.close()
        thread.join(5)
        assert [len(data) for data in got] == [500_000]


def test_the_first_fault_is_raised_and_what_follows_is_dropped():
    """HOST-2: what is flushed at exit does not fail once more."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        output = _Descriptor(full.fileno(), faults_matter=True)
        with pytest.raises(OutputLost, match="No space left"):
            output.write(b"abc")
        assert output.write(b"abc") == 3
        assert _Descriptor(full.fileno(), faults_matter=False).write(b"abc") == 3


# --- lies


@pytest.fixture
def lie(tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    """Publishes a hive in ``tmp_path`` that says one thing to whatever it is asked."""
    opened: list[socket.socket] = []

    def publish(line: bytes) -> None:
        path = tmp_path / "run" / "host.sock"
        path.parent.mkdir()
        listener = socket.socket(socket.AF_UNIX)
        opened.append(listener)
        listener.bind(str(path))
        listener.listen()
        path.with_name("hive.json").write_text(json.dumps({"host_sock": str(path)}))
        threading.Thread(target=_answer, args=(listener, line), daemon=True).start()

    yield publish
    for listener in opened:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _answer(listener: socket.socket, line: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(1000)
            connection.sendall(line)


def _status(**other: object) -> bytes:
    status = {"hive": "h", "pid": 1, "started_at": "2026-01-01T00:00:00Z", "operator_unread": 0, "agents": []} | other
    return json.dumps({"version": 1, "ok": True, "status": status}).encode() + b"\n"


ANY = {"name": "a", "running": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        _status(pid=99999999999999999999),
        _status(pid=1 << 40),
        _status(pid=1 << 31),
        _status(pid=-1),
        _status(pid=0),
        _status(agents=[{**ANY, "turn_state_since": float("-inf"), "turn_state": "idle"}]),
        _status(agents=[{**ANY, "turn_state_since": float("nan"), "turn_state": "idle"}]),
        _status(agents=[{**ANY, "turn_state_since": 0.5, "turns": 10**400}]),
        _status(agents=[{**ANY, "turn_state_since": 0.5}]).replace(b"0.5", b"-1e999"),
        b"[" * 100_000 + b"\n",
    ],
    ids=lambda line: line[-70:].decode(),
)
@pytest.mark.parametrize("words", ["status", "stop"])
def test_what_no_hive_can_have_said_is_refused_in_words(
    shell: Shell, lie: Callable[[bytes], None], line: bytes, words: str
):
    """HOST-1, REL-4: whatever a liar says, in one sentence."""
    lie(line)
    result = shell(words)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("hivectl: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", ["\ud800", "a\0b", 5, None, ["x"]])
def test_a_hive_json_without_a_path_in_it_is_refused_in_words(shell: Shell, tmp_path: Path, path: object):
    """HOST-2: JSON can spell what no path can be."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "hive.json").write_text(json.dumps({"host_sock": path}))
    result = shell("status")
    assert result.returncode == 1
    assert result.stderr == (
        f'hivectl: {tmp_path}/run/hive.json must be a JSON object with "host_sock"; restart that hive\n'
    )
