"""Agents as the suite calls them: mcp's own client in either protocol era, and what its answers say.

Owns how a text is read. What the suite relies on in a text is in docs/conformance.md; the rest is free.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from itertools import zip_longest
from typing import Any, cast

import attrs
import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from ._subject import AgentDoor

__all__ = ["Answer", "Caller", "Era", "Inbox", "Row", "open_client"]

_WANTS_DATA = cast("mcp_types.RequestParamsMeta", {"hyperhive/structured": True})
"""In a call's ``_meta``: the client wants the facts as data too (SURF-3)."""

_CALL_SECONDS = 70.0
"""A call may wait 60 s for a broker that is away (SURF-4)."""


class Era(Enum):
    """A generation of the protocol, by its newest version."""

    SESSIONS = "2025-11-25"
    PER_REQUEST = "2026-07-28"


_MODES = {Era.SESSIONS: "legacy", Era.PER_REQUEST: "auto"}


@asynccontextmanager
async def open_client(door: AgentDoor, era: Era, headers: Mapping[str, str] | None = None) -> AsyncIterator[Client]:
    """A connected client of mcp's.

    Args:
        door: the agent.
        era: what it speaks.
        headers: beside the token.
    """
    fields = {"authorization": f"Bearer {door.token}"} | {key.lower(): value for key, value in (headers or {}).items()}
    async with (
        httpx2.AsyncClient(headers=fields, timeout=_CALL_SECONDS) as http,
        Client(streamable_http_client(door.url, http_client=http), mode=_MODES[era]) as client,
    ):
        yield client


@attrs.frozen
class Answer:
    """What a tool said."""

    text: str
    is_error: bool
    data: Mapping[str, Any] | None


@attrs.frozen
class Row:
    """One message of an answer of ``recv``: its first line after the marker, and all that follows up to the next."""

    id: int
    head: str
    rest: str

    @property
    def thread(self) -> int:
        """The number of its thread (MSG-11)."""
        found = re.search(r"thread #?(\d+)", self.head)
        assert found is not None, f"no thread in {self.head!r}"
        return int(found[1])

    @property
    def redelivered(self) -> int | None:
        """Which attempt this is when an earlier one did not end well (MSG-5)."""
        found = re.search(r"redeliver.*?(\d+)", self.head)
        return None if found is None else int(found[1])

    def is_from(self, name: str) -> bool:
        """Whether its first line names this sender."""
        return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self.head) is not None


_MARKER = re.compile(r"^\[msg #(\d+)\]", re.MULTILINE)


@attrs.frozen
class Inbox:
    """An answer of ``recv`` (MSG-4)."""

    text: str

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its messages, in the order shown."""
        begins = [*_MARKER.finditer(self.text)]
        rows = []
        for begin, end in zip_longest(begins, [following.start() for following in begins[1:]]):
            head, _, rest = self.text[begin.end() : end].partition("\n")
            rows.append(Row(int(begin[1]), head, rest))
        return tuple(rows)

    @property
    def ids(self) -> list[int]:
        """Their ids."""
        return [row.id for row in self.rows]

    @property
    def only(self) -> Row:
        """Its one message."""
        assert len(self.rows) == 1, f"one message was expected, got {self.text!r}"
        return self.rows[0]

    def after(self, body: str) -> str:
        """What follows the last occurrence of a message's body: how it ends."""
        _, found, end = self.text.rpartition(body)
        assert found, f"{body!r} is not in {self.text!r}"
        return end


@attrs.frozen(kw_only=True)
class Caller:
    """An agent as one of its clients: each call is a connection of its own, as after a restart of the runtime.

    Attributes:
        door: where it connects to.
        era: what it speaks.
        headers: beside the token.
    """

    door: AgentDoor
    era: Era
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """The agent."""
        return self.door.name

    def within(self, headers: Mapping[str, str]) -> Caller:
        """The same agent calling from a turn."""
        return attrs.evolve(self, headers=headers)

    async def call(self, tool: str, **arguments: object) -> Answer:
        """Call a tool."""
        async with open_client(self.door, self.era, self.headers) as client:
            return answer_of(await client.call_tool(tool, arguments))

    async def call_for_data(self, tool: str, **arguments: object) -> Answer:
        """Call a tool, asking for the facts as data too."""
        async with open_client(self.door, self.era, self.headers) as client:
            return answer_of(await client.call_tool(tool, arguments, meta=_WANTS_DATA))

    async def ok(self, tool: str, **arguments: object) -> str:
        """The text of a call that must succeed."""
        answer = await self.call(tool, **arguments)
        assert not answer.is_error, f"{tool} was refused: {answer.text}"
        return answer.text

    async def refused(self, tool: str, **arguments: object) -> str:
        """The sentence of a call that must not succeed."""
        answer = await self.call(tool, **arguments)
        assert answer.is_error, f"{tool} was not refused: {answer.text}"
        return answer.text

    async def send(self, to: str, body: str, **more: object) -> int:
        """Send; gives the id that the answer names."""
        text = await self.ok("send", to=to, body=body, **more)
        found = re.search(r"#(\d+)", text)
        assert found is not None, f"no id of a message in {text!r}"
        return int(found[1])

    async def recv(self, **arguments: object) -> Inbox:
        """Read the inbox."""
        return Inbox(await self.ok("recv", **arguments))


def answer_of(result: mcp_types.CallToolResult) -> Answer:
    """A result as the suite reads it: all of it must be text (SURF-3)."""
    texts = [block.text for block in result.content if isinstance(block, mcp_types.TextContent)]
    assert len(texts) == len(result.content) == 1, f"a result must be one text, got {result.content!r}"
    return Answer(texts[0], bool(result.is_error), result.structured_content)
