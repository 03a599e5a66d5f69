"""``hive up`` beside terminals, pipes and disks that do not take what it shows: none of them is worth the hive."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import eventually

import hive_broker
from hive import open_host_client
from hive._up import Screen

HIVE = Path(sys.executable).with_name("hive")

Up = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Starts ``hive up`` with one agent whose runtime fails at once, in ``tmp_path``."""
    command = tmp_path / "fake-claude"
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "hive.toml").write_text(
        f'[hive]\nstate_dir = "state"\n[runtime]\ncommand = "{command}"\ngrace_seconds = 1\n[agents.ruth]\n'
    )
    started: list[subprocess.Popen[bytes]] = []

    def start(words: str, **streams: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec '{HIVE}' up {words}"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "ANTHROPIC_API_KEY": "none"},
            **streams,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


async def flood(state_dir: Path) -> None:
    """Make more happen than a pipe holds, and see that the hive answers to the end of it."""
    await eventually((state_dir / "run" / "hive.json").exists)
    async with open_host_client(state_dir / "run" / "host.sock") as client:
        for _ in range(60):
            await client.send(to="ruth", body="ü" * 2000)
        assert (await client.hive_status()).hive


@contextmanager
def nobody_reading() -> Iterator[int]:
    reading, writing = os.pipe()
    try:
        yield writing
    finally:
        os.close(writing)
        os.close(reading)


async def stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    await eventually(lambda: process.poll() is not None)
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--json", "--json --verbose 2>&1"])
async def test_a_reader_that_does_not_read_holds_nothing_up(up: Up, tmp_path: Path, words: str):
    """REL-4, STOP-3: the hive answers, stops on a signal, and its process ends."""
    with nobody_reading() as pipe:
        process = up(words, stdout=pipe, stderr=subprocess.DEVNULL)
        await flood(tmp_path / "state")
        assert await stopped(process) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "why"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor"), ("| :", "Broken pipe")],
)
async def test_a_screen_that_is_no_more_is_said_once_and_the_hive_goes_on(up: Up, tmp_path: Path, where: str, why: str):
    """REL-3, STOP-1: exit code 0, as ever."""
    if where == "| :":
        reading, writing = os.pipe()
        os.close(reading)
        process = up("", stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
    else:
        process = up(where, stderr=subprocess.PIPE)
    await flood(tmp_path / "state")
    assert await stopped(process) == 0
    assert process.stderr is not None
    (note,) = (line for line in process.stderr.read().decode().splitlines() if "standard output" in line)
    assert note[8:] == (
        f"  WARNING: standard output cannot be written ({why}): not all that happens is shown; the hive goes on"
    )


@pytest.mark.slow
async def test_what_is_shown_is_written_before_the_process_ends(up: Up, tmp_path: Path):
    """STOP-3: to the last line; an agent that cannot start is one line of the log."""
    (tmp_path / "state" / "run" / "tokens" / "ruth").mkdir(parents=True)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = up("", stdout=out, stderr=err)
        await flood(tmp_path / "state")
        assert await stopped(process) == 0
    assert (tmp_path / "out").read_text().splitlines()[-1] == "the hive has stopped"
    said = (tmp_path / "err").read_text()
    assert "ERROR: an agent ended unplanned" in said
    assert "it must be a regular file" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_lines_are_json_in_every_encoding(monkeypatch, encoding: str):
    """BUS-3: half of a surrogate pair too."""
    message = hive_broker.Message(
        id=1, sender="operator", recipient="ruth", body="ü✓\ud800", in_reply_to=None, thread_id=1, sent_at=1.0
    )
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding=encoding) as stdout, os.fdopen(reading, "rb") as reader:
        monkeypatch.setattr(sys, "stdout", stdout)
        screen = Screen(json_lines=True)
        screen.say("no part of it")
        screen.show(hive_broker.MessageSent(message=message), ())
        screen._outlet.drain()
        row = json.loads(reader.readline().decode(encoding))
    assert row["message"]["body"] == "ü✓\ud800"
    assert json.loads(screen._gap(3)) == {"happening": "LinesLost", "lines": 3}
