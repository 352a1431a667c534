"""The official MCP client, for tests of the server by itself and of the one in the service."""

from __future__ import annotations

from typing import Any


class Tools:
    """A connected client, as short calls: the structured result, or the words of the error."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(tool, arguments)
        return result.content[0].text if result.is_error else result.structured_content
