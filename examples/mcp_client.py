"""An MCP client that starts `memagent mcp` and uses a memory through its tools.

Needs  pip install "memagent[mcp]".

python examples/mcp_client.py [STORE]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client


async def talk(store: Path) -> None:
    """Add two memories, search, ask, and take the last change back."""
    options = ["--path", str(store), "--user", "ana"]
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "memagent.cli.app", "mcp", *options]
    )
    async with Client(stdio_client(server)) as client:
        sys.stdout.write(
            f"tools: {', '.join(tool.name for tool in (await client.list_tools()).tools)}\n"
        )

        async def call(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            return result.structured_content

        await call("add", text="Ana's dog Rex is allergic to chicken", subject="Rex")
        await call("add", text="Ana moved to Porto in May 2024", subject="Ana")
        found = await call("search", query="Where does Ana live?", k=1)
        sys.stdout.write(f"found: {found['memories'][0]['text']}\n")
        told = await call("ask", question="What is Rex allergic to?")
        sys.stdout.write(f"answer: {told['text']} ({told['verdict']})\n")
        await call("undo")
        left = await call("list")
        sys.stdout.write(f"after an undo: {len(left['memories'])} memory\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(talk(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "memory.db"))
