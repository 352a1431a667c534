"""The MCP server with the official client of the installed version: 2, or 1 in a second venv."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from service_kit import serving

mcp: Any = pytest.importorskip("mcp", reason='needs pip install "memagent[mcp]"')

from memagent.integrations.mcp_server import vendor_version  # noqa: E402


class Tools:
    """A connected client of either version: the structured result, or the words of the error."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(tool, arguments)
        if vendor_version() >= 2:
            return result.content[0].text if result.is_error else result.structured_content
        return result.content[0].text if result.isError else result.structuredContent


@asynccontextmanager
async def connected(target: Any, **headers: str) -> AsyncGenerator[Tools]:
    """A client over stdio (a command's arguments) or streamable HTTP (an address)."""
    http = isinstance(target, str)
    stdio = None if http else mcp.StdioServerParameters(command=sys.executable, args=target)
    async with AsyncExitStack() as stack:
        if vendor_version() >= 2:
            if http:
                httpx: Any = import_module("httpx")
                client = await stack.enter_async_context(
                    httpx.AsyncClient(headers=headers, timeout=60)
                )
                streamable: Any = import_module("mcp.client.streamable_http")
                target = streamable.streamable_http_client(target, http_client=client)
            yield Tools(
                await stack.enter_async_context(
                    mcp.Client(target if http else mcp.stdio_client(stdio))
                )
            )
            return
        if http:
            streamable = import_module("mcp.client.streamable_http")
            transport = streamable.streamablehttp_client(target, headers=headers)
        else:
            transport = import_module("mcp.client.stdio").stdio_client(stdio)
        read, write, *_ = await stack.enter_async_context(transport)
        session = await stack.enter_async_context(mcp.ClientSession(read, write))
        told = await session.initialize()
        assert told.serverInfo.name == "memagent" and told.serverInfo.version
        assert told.capabilities.tools is not None
        assert told.capabilities.prompts is None and told.capabilities.resources is None
        yield Tools(session)


async def test_over_stdio_tools_work_and_errors_are_told(tmp_path: Path) -> None:
    arguments = ["-m", "memagent.cli.app", "mcp", "--path", str(tmp_path / "m.db"), "--user", "ana"]
    async with connected([*arguments, "--embedder", "hashing"]) as tools:
        tea = await tools("add", text="Ana drinks green tea")
        found = await tools("search", query="green tea")
        assert found["memories"][0]["id"] == tea["id"] and tea["trust"] == "assistant"
        assert "no such memory" in await tools("forget", memory_id="nothing")
        assert "Unknown tool" in await tools("drop_everything")
        [forget] = [
            tool for tool in (await tools.client.list_tools()).tools if tool.name == "forget"
        ]
        hints = forget.annotations.model_dump(by_alias=True)
        assert (hints["destructiveHint"], hints["readOnlyHint"]) == (True, False)
    async with connected([*arguments, "--embedder", "hashing", "--connector"]) as tools:
        [title] = (await tools("search", query="green tea"))["results"]
        assert title == {"id": tea["id"], "title": tea["text"], "url": title["url"]}
        assert (await tools("fetch", id=tea["id"]))["metadata"]["trust"] == "assistant"


@pytest.mark.filterwarnings("default::DeprecationWarning")
async def test_in_the_service_the_key_fixes_the_user_and_the_tools() -> None:
    with serving() as running:
        ana, reader = running.key("ana"), running.key("bo", "memory:read")
        url = f"{running.url}/mcp"
        async with connected(url, Authorization=f"Bearer {ana}") as tools:
            await tools("add", text="Ana drinks green tea")
            assert len((await tools("list"))["memories"]) == 1
        async with connected(url, Authorization=f"Bearer {reader}") as tools:
            assert (await tools("list"))["memories"] == []
            names = {tool.name for tool in (await tools.client.list_tools()).tools}
            assert names == {"search", "list", "history"}


@pytest.mark.filterwarnings("default::DeprecationWarning")
async def test_without_keys_a_client_may_send_any_token() -> None:
    with serving() as running:
        async with connected(f"{running.url}/mcp", Authorization="Bearer none") as tools:
            assert (await tools("add", text="Ana drinks green tea"))["version"] == 1
