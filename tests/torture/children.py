"""The processes that are killed: starting them, hearing what they say, and ending them by SIGKILL."""

import json
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

HAMMER = str(Path(__file__).with_name("hammer.py"))


@attrs.define
class Death:
    """When a process was killed, by the clock all processes share: not before ``from_ns``, not after ``to_ns``."""

    from_ns: int
    to_ns: int


class Child:
    """One process, whose lines are taken as they come."""

    def __init__(self, process, nursery, heard):
        self.process = process
        self.lines = []
        self._heard = heard
        self._ended = trio.Event()
        nursery.start_soon(self._listen)

    async def _listen(self):
        rest = b""
        async for chunk in self.process.stdout:
            *whole, rest = (rest + chunk).split(b"\n")
            self.lines += [json.loads(line) for line in whole]
            self._heard()
        self._ended.set()

    async def kill(self):
        """End it as ``kill -9`` does, hear the last of it, and say when that was."""
        from_ns = time.monotonic_ns()
        assert self.process.returncode is None, "the process ended by itself"
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        to_ns = time.monotonic_ns()
        await self._ended.wait()
        assert self.process.returncode == -signal.SIGKILL, "the process ended by itself"
        await self.process.stdout.aclose()
        return Death(from_ns, to_ns)


class Crew:
    """All children, and how much they have said together."""

    def __init__(self, nursery):
        self._nursery = nursery
        self._heard = trio.Event()
        self.ever = []

    def _hear(self):
        self._heard.set()
        self._heard = trio.Event()

    async def start(self, *arguments):
        """Start one more."""
        process = await trio.lowlevel.open_process(
            [sys.executable, HAMMER, *(str(argument) for argument in arguments)], stdout=subprocess.PIPE
        )
        child = Child(process, self._nursery, self._hear)
        self.ever.append(child)
        return child

    async def wait_lines(self, number, of=None):
        """Until ``of``, or all of them together, have said so many lines more."""
        heard = [of] if of is not None else self.ever
        enough = sum(len(child.lines) for child in heard) + number
        while sum(len(child.lines) for child in heard) < enough:
            dead = [child.process.args for child in heard if child.process.returncode not in (None, -signal.SIGKILL)]
            assert not dead, f"ended by themselves: {dead}"
            await self._heard.wait()

    def end(self):
        """Kill whatever is left."""
        for child in self.ever:
            if child.process.returncode is None:
                child.process.send_signal(signal.SIGKILL)


@asynccontextmanager
async def open_crew():
    """A crew; whoever is left in the end is killed."""
    async with trio.open_nursery() as nursery:
        crew = Crew(nursery)
        try:
            yield crew
        finally:
            crew.end()
