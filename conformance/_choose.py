"""From the command line to a subject: which implementation this run is about.

Owns the reading of options, token files and ``run/hive.json``. A wrong option is a usage error with a sentence.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ._subject import AgentDoor, OperatorMail, Subject, SubjectFactory

__all__ = ["chosen_factory"]

SERVER = "hyperhive"
"""The built-in MCP server (SURF-3)."""

_WAYS = ("--hive-state", "--hive-mcp-url", "--subject")

_DETAILS = (
    "--hive-mcp-token-file",
    "--hive-agent-name",
    "--hive-peer-mcp-url",
    "--hive-peer-mcp-token-file",
    "--hive-peer-name",
)
"""What only goes with ``--hive-mcp-url``."""


def chosen_factory(config: pytest.Config) -> SubjectFactory:
    """The factory that the options name; this repository's own agents where there is no option.

    Raises:
        pytest.UsageError: the options contradict each other, or name what cannot be read.
    """
    given = [way for way in _WAYS if config.getoption(way) is not None]
    if len(given) > 1:
        raise pytest.UsageError(f"a run is about one implementation, but {' and '.join(given)} are given: keep one")
    if config.getoption("--hive-state") is not None:
        return _from_state(Path(config.getoption("--hive-state")))
    if config.getoption("--hive-mcp-url") is not None:
        return _from_urls(config)
    for detail in _DETAILS:
        if config.getoption(detail) is not None:
            raise pytest.UsageError(f"{detail} says which agents, but not of what: give --hive-mcp-url too")
    if config.getoption("--subject") is not None:
        return _from_name(config.getoption("--subject"))
    from ._own import open_own_subject  # a run against a stranger's implementation needs nothing of ours

    return open_own_subject


def _from_name(name: str) -> SubjectFactory:
    module, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise pytest.UsageError(f"--subject must be an importable module:factory, got {name!r}: {exc}") from exc

    def open_checked() -> AbstractAsyncContextManager[Subject]:
        context = factory()
        if not isinstance(context, AbstractAsyncContextManager):
            raise pytest.UsageError(f"{name} must return an async context manager: see asynccontextmanager")
        return context

    return open_checked


def _from_urls(config: pytest.Config) -> SubjectFactory:
    def door(prefix: str) -> AgentDoor:
        url, token_file = f"--hive-{prefix}mcp-url", f"--hive-{prefix}mcp-token-file"
        name = "--hive-agent-name" if not prefix else f"--hive-{prefix}name"
        for option in (url, token_file, name):
            if config.getoption(option) is None:
                raise pytest.UsageError(f"{option} is missing: an agent needs {url}, {token_file} and {name} together")
        token = _token(Path(config.getoption(token_file)))
        return AgentDoor(name=config.getoption(name), url=config.getoption(url), token=token)

    peer = any(config.getoption(f"--hive-peer-{rest}") is not None for rest in ("mcp-url", "mcp-token-file", "name"))
    agents = [door(""), door("peer-")] if peer else [door("")]
    description = " and ".join(f"{agent.name} at {agent.url}" for agent in agents)
    return partial(_opened, Subject(description=description, agents=agents))


def _from_state(folder: Path) -> SubjectFactory:
    path = folder / "run" / "hive.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        agents = [_door_from_state(name, row) for name, row in state["agents"].items()]
        host_sock = Path(state["host_sock"])
    except OSError as exc:
        raise pytest.UsageError(f"no hive runs on {folder}: {path} cannot be read ({exc.strerror})") from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise pytest.UsageError(f"{path} must be written by a hive of this version: {exc!r} is wrong in it") from exc
    if not agents:
        raise pytest.UsageError(f"the hive on {folder} has no agent that runs: start two with hivectl")
    names = ", ".join(agent.name for agent in agents)
    subject = Subject(
        description=f"the hive {state.get('hive')!r} on {folder}, agents {names}",
        agents=agents,
        operator_send=partial(_operator_send, host_sock),
        operator_inbox=partial(_operator_inbox, host_sock),
    )
    return partial(_opened, subject)


def _door_from_state(name: str, row: Any) -> AgentDoor:
    return AgentDoor(
        name=name,
        url=row["mcp"][SERVER],
        token=_token(Path(row["mcp_token_file"])),
        state_dir=Path(row["state_dir"]),
    )


def _token(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as exc:
        raise pytest.UsageError(f"the token file {path} must be readable text: {exc}") from exc


async def _operator_send(host_sock: Path, to: str, body: str) -> int:
    from hive import open_host_client  # only this way in needs a hive's own client

    async with open_host_client(host_sock) as client:
        return (await client.send(to=to, body=body)).id


async def _operator_inbox(host_sock: Path) -> Sequence[OperatorMail]:
    from hive import open_host_client  # only this way in needs a hive's own client

    async with open_host_client(host_sock) as client:
        inbox = await client.inbox(limit=20)
    return [OperatorMail(id=message.id, sender=message.sender, body=message.body) for message in inbox.messages]


@asynccontextmanager
async def _opened(subject: Subject) -> AsyncIterator[Subject]:
    """A subject that runs already and goes on running."""
    yield subject
