"""One MCP server over one agent's tools, in both protocol eras (SURF-2).

Owns the translation between MCP's types and ours. Results are text: the CLI shows a result's ``structuredContent``
*instead of* its text, so the data goes only to a client that asks for it with ``_meta: {"hyperhive/structured": true}``
(SURF-3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import mcp_types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from starlette.requests import Request
from typing_extensions import override

from hive_agent._ports import ToolServices

from ._envelope import Caller, Outcome, ToolResult, run_tool
from ._identity import Scope, caller_turn, exchange_of
from ._popped import PoppedRows
from ._tool import Tool

__all__ = ["STRUCTURED_META_KEY", "build_server"]

STRUCTURED_META_KEY = "hyperhive/structured"
"""In a call's ``_meta``: the client wants the facts as JSON beside the text."""

MAX_LISTENERS = 64
"""Open ``subscriptions/listen`` streams of one agent: a CLI holds one."""


class _ToolServer(Server[Any]):
    """Tells clients of the 2025 era too that the list of tools may change (PERM-2)."""

    @override
    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


def build_server(name: str, tools: Sequence[Tool[Any]], services: ToolServices, popped: PoppedRows) -> Server[Any]:
    """An MCP server with these tools for this agent; whoever reaches it is that agent (SURF-5)."""
    by_name = {tool.name: tool for tool in tools}

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[_as_mcp_tool(tool) for tool in tools])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            text = f"there is no tool {params.name[:80]!r} here; there are: {', '.join(by_name)}."
            return _as_mcp_result(ToolResult(text=text, data=None, outcome=Outcome.REFUSED), context.meta)
        scope = _scope_of(context)
        exchange = exchange_of(scope)
        caller = Caller(
            services=services,
            popped=popped,
            turn=caller_turn(scope),
            is_wanted=lambda: exchange.is_open,
        )
        return _as_mcp_result(await run_tool(tool, params.arguments or {}, caller), context.meta)

    return _ToolServer(
        name,
        version=metadata.version("hyperhive"),
        # A list kept by a client would outlive a change of the agent's groups.
        cache_hints={"tools/list": CacheHint(ttl_ms=0, scope="private")},
        # No argument of ours is bound to a header; without this, every call would list the tools first.
        get_tool_input_schema=lambda _name: None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus(), max_subscriptions=MAX_LISTENERS),
    )


def _scope_of(context: ServerRequestContext[Any, Any]) -> Scope:
    """The HTTP request a call came with: there is one, since HTTP is the only transport (SURF-1)."""
    request = context.request
    assert isinstance(request, Request)  # noqa: S101 - what mcp's HTTP transport promises
    return request.scope


def _as_mcp_tool(tool: Tool[Any]) -> mcp_types.Tool:
    return mcp_types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=tool.read_only,
            destructive_hint=False,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _as_mcp_result(result: ToolResult, meta: Mapping[str, Any] | None) -> mcp_types.CallToolResult:
    wants_data = meta is not None and meta.get(STRUCTURED_META_KEY) is True
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=result.text)],
        structured_content=dict(result.data) if wants_data and result.data is not None else None,
        is_error=result.outcome is not Outcome.OK,
    )
