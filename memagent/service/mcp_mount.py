"""`/mcp`: the memory as tools for MCP clients, in the service, with its keys and limits.

The user and the memory come from the connection, as for every other path: the API key,
`user_id`, `agent_id` and `run_id` in the query, or the headers `X-User-Id`,
`X-Agent-Id`, `X-Run-Id` for clients that cannot change their address. A key is offered
the tools its scopes allow and no others. The `mcp` package is loaded at the first
request, in a thread, so that the service starts without it, and so that it costs
nothing where nobody speaks MCP. There are no MCP sessions: every request shows its key.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from memagent.async_agent import AsyncAgent
from memagent.client.http import ServiceError, plain_problem
from memagent.integrations.mcp_server import McpEndpoint
from memagent.service.access import named_call
from memagent.service.gate import problem_response, request_id_of

PATH: Final = "/mcp"
SCOPES_OF_TOOLS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("search", "list", "history"), frozenset({"memory:read"})),
    "ask": frozenset({"chat"}),
    **dict.fromkeys(("add", "undo", "report"), frozenset({"memory:write"})),
    "recall": frozenset({"memory:read", "memory:write"}),
    **dict.fromkeys(("forget", "erase"), frozenset({"memory:delete"})),
}
"""The scopes that each tool needs, all of them: those of the path that does the same. A tool
that does not stand here is offered to nobody.
"""
_NAMED_BY: Final = {"user_id": "x-user-id", "agent_id": "x-agent-id", "run_id": "x-run-id"}
_AGENT: Final = "memagent.agent"
_log = logging.getLogger(__name__)


class McpMount:
    """The ASGI app behind `/mcp`.

    Starts at the first request; `close` it with the service.
    """

    def __init__(self) -> None:
        self._endpoints: dict[frozenset[str], McpEndpoint] = {}
        self._running: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._lock = asyncio.Lock()
        self._discreet = _Discreet()
        # The route to add to an app; it is not in the OpenAPI document, since MCP
        # describes its tools itself.
        self.route: Final = Route(PATH, self, include_in_schema=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an MCP client.

        Raises `ServiceError`, `MissingExtra`.
        """
        scope["route"] = self.route
        request = Request(scope, receive)
        call = named_call(request, **{name: _named(request, name) for name in _NAMED_BY})
        held = call.caller.scopes
        tools = frozenset(name for name, needed in SCOPES_OF_TOOLS.items() if needed <= held)
        if not tools:
            raise ServiceError("the API key allows none of the MCP tools", code="forbidden")
        if scope["method"] != "POST":
            detail = (
                "MCP clients send POST here; there are no sessions to end, and no stream to open"
            )
            problem = plain_problem("method_not_allowed", detail, request_id=request_id_of(request))
            await problem_response(problem, {"Allow": "POST"})(scope, receive, send)
            return
        endpoint = self._endpoints.get(tools) or await self._start(
            tools, call.service.settings.max_body_bytes
        )
        with call.agent() as agent:
            scope[_AGENT] = agent
            await endpoint(scope, receive, send)

    async def _start(self, tools: frozenset[str], max_body_bytes: int) -> McpEndpoint:
        async with self._lock:
            if tools not in self._endpoints:
                endpoint = await asyncio.to_thread(
                    McpEndpoint, _agent_of, tools=tools, max_body_bytes=max_body_bytes
                )
                self._discreet.take_over()
                started = asyncio.Event()
                running = asyncio.get_running_loop().create_task(
                    endpoint.run(started, self._stop), context=Context()
                )
                self._running.append(running)
                await started.wait()
                self._endpoints[tools] = endpoint
            return self._endpoints[tools]

    async def close(self) -> None:
        """Stop what was started; harmless when nothing was."""
        self._stop.set()
        if self._running:
            await asyncio.wait(self._running)
        self._discreet.give_back()


def _named(request: Request, name: str) -> str | None:
    """Read the user, agent or run from the query, or else from the header."""
    return request.query_params.get(name) or request.headers.get(_NAMED_BY[name])


def _agent_of(request: Any) -> AsyncAgent:
    agent: AsyncAgent = request.scope[_AGENT]
    return agent


class _Discreet(logging.Handler):
    """A log handler that reports where the vendor's code had trouble and of what kind.

    Its own messages may hold text of users.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._before: tuple[bool, int] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record without its message."""
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else "trouble"
        _log.log(record.levelno, "mcp: %s at %s:%d", kind, record.filename, record.lineno)

    def take_over(self) -> None:
        """Have all records of the vendor's loggers come here instead of to the program's log."""
        if self._before is None:
            vendor = logging.getLogger("mcp")
            self._before = vendor.propagate, vendor.level
            vendor.addHandler(self)
            vendor.propagate = False
            vendor.setLevel(logging.WARNING)

    def give_back(self) -> None:
        """Leave the vendor's loggers as they were."""
        if self._before is not None:
            vendor = logging.getLogger("mcp")
            vendor.removeHandler(self)
            vendor.propagate, level = self._before
            vendor.setLevel(level)
            self._before = None
