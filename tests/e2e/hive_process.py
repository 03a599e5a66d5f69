"""A real ``hive up`` in a process of its own, and what a test wants to know of it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import trio
from waiting import eventually

BIN = Path(sys.executable).parent
START_SECONDS = 30


class HiveProcess:
    """One life of a hive. Made by ``hive_up``."""

    def __init__(self, process: trio.Process, state_dir: Path, output: Path) -> None:
        self.process = process
        self.state_dir = state_dir
        self._output = output

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def addresses(self) -> dict[str, Any]:
        return json.loads((self.state_dir / "run" / "hive.json").read_text())

    async def wait_up(self) -> None:
        """Return once ``run/hive.json`` of this very process is there."""
        await eventually(self._is_up, seconds=START_SECONDS)

    def _is_up(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the hive ended with {self.process.returncode}:\n{self.output}")
        try:
            return self.addresses["pid"] == self.pid
        except (FileNotFoundError, ValueError):
            return False

    async def wait_exit(self, seconds: float) -> int:
        with trio.fail_after(seconds):
            return await self.process.wait()

    def runtimes(self) -> list[psutil.Process]:
        return claude_processes(self.state_dir)


@asynccontextmanager
async def hive_up(
    *arguments: str, cwd: Path, state_dir: Path, env: Mapping[str, str] | None = None, wait: bool = True
) -> AsyncIterator[HiveProcess]:
    """Run ``hive up`` with ``arguments`` in ``cwd``; it and all it left are killed when the block ends."""
    output = cwd / f"hive-{len(list(cwd.glob('hive-*.out')))}.out"
    with output.open("wb") as sink:
        process = await trio.lowlevel.open_process(
            [str(BIN / "hive"), "up", *arguments],
            cwd=cwd,
            env={**environment(cwd), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    hive = HiveProcess(process, state_dir, output)
    try:
        if wait:
            await hive.wait_up()
        yield hive
    finally:
        with trio.CancelScope(shield=True):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            for left in hive.runtimes():
                left.kill()


def environment(home: Path) -> dict[str, str]:
    """What a new user's shell has: a PATH with the CLI's scripts, and a HOME; never ours."""
    return {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}


async def hivectl(*arguments: str, state_dir: Path, code: int = 0) -> Any:
    """Run ``hivectl … --json`` and give what it printed; a string where that is no JSON."""
    done = await trio.run_process(
        [str(BIN / "hivectl"), "--state", str(state_dir), *arguments, "--json"],
        env=environment(state_dir),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    text = done.stdout.decode()
    try:
        return json.loads(text)
    except ValueError:
        return text + done.stderr.decode()


def claude_processes(state_dir: Path) -> list[psutil.Process]:
    """Every process that carries the mark of an agent of this hive."""
    found = []
    for process in psutil.process_iter():
        try:
            owner = process.environ().get("HIVE_RUNTIME_OWNER", "")
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if owner.startswith(str(state_dir.resolve())):
            found.append(process)
    return found


def rows(state_dir: Path) -> list[dict[str, Any]]:
    """All messages, straight from the database."""
    connection = sqlite3.connect(f"file:{state_dir}/db/broker.sqlite?mode=ro", uri=True)
    try:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM messages ORDER BY id")]
    finally:
        connection.close()
