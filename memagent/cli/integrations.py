"""`memagent mcp` and `memagent import-mem0`: the memory as an MCP server, and memories
of mem0 taken over.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memagent.cli.frame import Options, opened, tell

if TYPE_CHECKING:
    from memagent.integrations.mem0_import import ImportReport


async def serve_mcp(options: Options, *, http: str | None, read_only: bool) -> None:
    """Serve the user's memory until the client hangs up (or, over HTTP, until interrupted)."""
    from memagent.integrations.mcp_server import bound_socket, serve_http, serve_stdio

    listening = bound_socket(http) if http is not None else None
    with opened(options, write=not read_only, make=not read_only, vectors=True) as store:
        agent = store.agent(options.scope, model=options.model)
        if listening is None:
            await serve_stdio(agent, read_only=read_only)
            return
        host, port = listening.getsockname()[:2]
        tell(
            f"memory of {options.user_id!r} at http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
        )
        await serve_http(agent, listening, read_only=read_only)


async def take_over_mem0(options: Options, path: Path) -> ImportReport:
    """Read a mem0 store or export into the store the options lead to; with `--user`
    only that user's memories.
    """
    from memagent.integrations.mem0_import import import_mem0, read_mem0

    rows = read_mem0(path)
    with opened(options, write=True, make=True) as store:
        return await import_mem0(store, rows, user_id=options.user)
