"""An agent whose CLI is a script of the test, and words to write such scripts with."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import psutil
import trio

from hive_agent import (
    AgentConfig,
    ClaudeRuntime,
    ClaudeSettings,
    McpServer,
    RunLine,
    RunNote,
    RunReport,
    RunRequest,
    RunStarted,
)
from hive_agent._runtime._orphans import OWNER_VARIABLE

BOUND_SECONDS = 10
SESSION = "d0259c59-c2ad-4a1a-ab50-f6dcaaa3648f"
TOKEN = "a-token-that-nobody-may-see"
REQUEST = RunRequest(
    prompt="wake up",
    system_prompt="You are iris.",
    mcp_servers={"hyperhive": McpServer(url="http://127.0.0.1:9/", headers={"Authorization": TOKEN})},
)


def init(**more) -> str:
    """What the CLI prints once it knows its servers."""
    servers = [{"name": "hyperhive", "status": "connected"}]
    return json.dumps({"type": "system", "subtype": "init", "session_id": SESSION, "mcp_servers": servers} | more)


DONE = json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "hi"})


def says(*lines: str) -> str:
    """Shell that prints these lines."""
    return "\n".join(f"printf '%s\\n' {shlex.quote(line)}" for line in lines)


NAP = "while :; do sleep 0.02; done"
"""A shell that hears signals: one that comes just before a long sleep begins would wait for its end."""

WELL = f"cat > /dev/null\n{says(init(), DONE)}"


@attrs.frozen
class Ended:
    """One run from beginning to end."""

    items: list[RunStarted | RunLine | RunNote]
    report: RunReport

    @property
    def types(self) -> list[str]:
        return [item.data.get("type") for item in self.items if isinstance(item, RunLine)]

    @property
    def notes(self) -> list[str]:
        return [item.text for item in self.items if isinstance(item, RunNote)]

    @property
    def starts(self) -> int:
        return sum(isinstance(item, RunStarted) for item in self.items)


@attrs.frozen
class Agent:
    """An agent whose CLI is a script of the test."""

    config: AgentConfig

    @property
    def harness(self) -> Path:
        return self.config.harness_dir

    def runtime(self, script: str, *, interpreter: str = "/bin/sh") -> ClaudeRuntime:
        """The runtime whose CLI is this script, here and in later lives."""
        command = Path(str(self.config.claude.command))
        command.write_text(f"#!{interpreter}\n{script}\n")
        command.chmod(0o755)
        return ClaudeRuntime(self.config)

    async def run(self, script: str, request: RunRequest = REQUEST, **more) -> Ended:
        """One run to its end."""
        with trio.fail_after(BOUND_SECONDS):
            async with self.runtime(script, **more).open_run(request) as run:
                items = []
                while (item := await run.next()) is not None:
                    items.append(item)
                assert await run.next() is None
                return Ended(items, run.report)


def make_agent(folder: Path, *, claude: dict | None = None, **more) -> Agent:
    """Make the agent's folders and its configuration."""
    folders = {name: folder / name for name in ("state_dir", "harness_dir", "config_dir")}
    for path in folders.values():
        path.mkdir()
    settings = ClaudeSettings(command=str(folder / "claude"), **(claude or {}))
    return Agent(AgentConfig(name="iris", claude=settings, **folders, **more))


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """Check that the block leaves no descriptor, no child and no process of the agent made in ``folder``."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert psutil.Process().children() == []
    assert marked(folder / "harness_dir") == []


def marked(harness: Path) -> list[int]:
    """The processes that carry the mark of this agent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(OWNER_VARIABLE) == str(harness):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def next_started(run) -> int:
    """The pid of a run that has just begun."""
    item = await run.next()
    assert isinstance(item, RunStarted)
    return item.pid


async def wait_line(run) -> RunLine:
    """The next line of a run."""
    while not isinstance(item := await run.next(), RunLine):
        assert item is not None
    return item
