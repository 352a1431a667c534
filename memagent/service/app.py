"""The ASGI app of the service: the app itself, fast ways to its routes, and MCP at `/mcp`.

**The app** has routers, errors, a lifespan and an OpenAPI document. `create_app` knows no
store, so the document can be made without one; `serve_app` puts a service behind it and
the gate before it. The pages of the dashboard are no part of the document.

**Fast ways.** The framework takes longer to find the route of a search and to solve its
dependencies than the search takes; `docs/research/measurements.md` has the figures. So
`FastRoutes` stands before all other routes. It takes the requests whose method and path name a
function with the parameters `body` and `call`, reads both itself and calls the function
behind the same checks of key and scope. Whatever is not plain (other parameters, an
idempotency key, another content type, a body in pieces or one that the model refuses) goes
on to the framework, so every refusal is worded in one place. The tests hold both ways equal.

**MCP.** `McpMount` offers the memory as tools to MCP clients, with the keys and limits of
the service. The user and the memory come from the connection, as for every other path: the API key,
`user_id`, `agent_id` and `run_id` in the query, or the headers `X-User-Id`,
`X-Agent-Id`, `X-Run-Id` for clients that cannot change their address. A key is offered
the tools its scopes allow and no others. The `mcp` package is loaded at the first
request, in a thread, so that the service starts without it, and so that it costs
nothing where nobody speaks MCP. There are no MCP sessions: every request shows its key.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import Context
from functools import lru_cache
from typing import Any, Final, NamedTuple, get_type_hints
from urllib.parse import parse_qsl

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from pydantic_core import from_json
from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import memagent
from memagent.client.http import FieldFault, Problem, ServiceError, plain_problem
from memagent.core.errors import InputError
from memagent.integrations.mcp_server import CONNECTOR, REVOCABLE, McpEndpoint
from memagent.service.access import named_call
from memagent.service.gate import Gate, answer_errors, problem_response, request_id_of
from memagent.service.hosting import Service
from memagent.service.routes import (
    anthropic_messages,
    memories,
    openai_chat,
    openai_responses,
    snapshots,
    users,
)
from memagent.service.ui import (
    frame,
    memories as memory_pages,
    overview,
    snapshots as snapshot_pages,
    turns,
)

_DESCRIPTION: Final = (
    "Long-term memory for language-model agents: cited answers, auditable writes, one memory a "
    "user."
)
# The framework's own telemetry records paths, queries and messages of errors; the
# gate's spans take its place (`memagent.tracing`).
_NO_TELEMETRY: Final[Any] = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)
ROUTERS: Final[tuple[APIRouter, ...]] = (
    memories.router,
    users.care_router,
    users.talk_router,
    snapshots.router,
    users.trials_router,
    snapshots.graph_router,
    users.router,
    openai_chat.router,
    openai_responses.router,
    anthropic_messages.router,
    memories.operations_router,
)
"""Every part of the API, in the order of the documentation."""
PAGES: Final[tuple[APIRouter, ...]] = (
    frame.router,
    overview.router,
    turns.router,
    memory_pages.router,
    snapshot_pages.router,
    frame.sign_in_router,
)
"""Every part of the dashboard, in the order in which an address finds them.

The sign-in stays last: it answers what no other page does.
"""


def create_app() -> FastAPI:
    """Make the app without a service: `serve_app` sets `app.state.service`."""
    app = FastAPI(
        title="memagent",
        version=memagent.__version__,
        description=_DESCRIPTION,
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        generate_unique_id_function=lambda route: route.name,
        telemetry=_NO_TELEMETRY,
    )
    for router in (*ROUTERS, *PAGES):
        app.include_router(router)
    app.state.mcp, app.state.figures = McpMount(), OrderedDict()
    app.router.routes.append(app.state.mcp.route)
    app.router.routes.insert(0, FastRoutes(memories.router.routes))
    answer_errors(app)
    plain = app.openapi
    app.openapi = lambda: app.openapi_schema or _completed(plain())
    return app


def serve_app(service: Service) -> ASGIApp:
    """Put the app on a service and behind the gate, for a server to run."""
    app = create_app()
    app.state.service, app.state.ui_auth = service, frame.SessionAuth(service)
    return Gate(app, service)


def build_routes(app: FastAPI) -> None:
    """Let the framework build its routes, which it does when a request first passes them.

    In a thread once the service listens: it takes most of a second, and whoever is served
    meanwhile would wait for all of it.
    """
    nowhere: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/-",
        "root_path": "",
        "headers": [],
    }
    for route in app.router.routes:
        route.matches(nowhere)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    service: Service = app.state.service
    await service.start()
    building = asyncio.create_task(asyncio.to_thread(build_routes, app))
    try:
        yield
    finally:
        await building
        await app.state.mcp.close()
        await service.stop()
        service.close()


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """Add the schema of problems and bearer keys; remove the framework's error bodies."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _, own = models_json_schema(
        [(FieldFault, "serialization"), (Problem, "serialization")],
        ref_template="#/components/schemas/{model}",
    )
    schemas |= own["$defs"]
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}, {}]
    return document


_NAMES: Final = frozenset({"user_id", "agent_id", "run_id"})
_MAX_NAME_CHARS: Final = 256
# Key of the scope of a request that goes on to the framework.
_PASSED: Final = "memagent.by_framework"


class _Direct(NamedTuple):
    """A route whose function can be called directly."""

    route: APIRoute
    model: type[BaseModel]
    authorize: Callable[..., Awaitable[Any]]


class FastRoutes(BaseRoute):
    """The direct ways to the functions of other routes."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._direct: dict[tuple[str, str], _Direct] = {}
        for route in routes:
            if isinstance(route, APIRoute) and "{" not in route.path:
                hints = get_type_hints(route.endpoint, include_extras=True)
                if list(hints) == ["body", "call", "return"]:
                    authorize = route.dependant.dependencies[0].call
                    assert authorize is not None
                    direct = _Direct(route, hints["body"], authorize)
                    self._direct.update({(way, route.path): direct for way in route.methods or ()})

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request that says nothing only the framework understands."""
        direct = self._direct.get((scope.get("method", ""), scope["path"]))
        if direct is None or _PASSED in scope or scope["root_path"]:
            return Match.NONE, {}
        headers = dict(scope["headers"])
        plain = headers.get(b"content-type") == b"application/json"
        keyed = b"idempotency-key" in headers
        if not plain or keyed or _names_in(scope["query_string"]) is None:
            return Match.NONE, {}
        return Match.FULL, {"route": direct.route}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; leave one whose body is refused to the framework."""
        _, model, authorize = self._direct[scope["method"], scope["path"]]
        message = await receive()
        again = _once_more(message, receive)
        content = b"" if message.get("more_body", True) else message.get("body", b"")
        try:
            body = model.model_validate(from_json(content))
        except ValueError:  # in pieces, not JSON, or refused
            scope[_PASSED] = True
            await scope["router"].app(scope, again, send)
            return
        names = _names_in(scope["query_string"])
        assert names is not None
        request = Request(scope, again, send)
        response = await scope["route"].endpoint(body, await authorize(request, **names, key=None))
        await response(scope, receive, send)


def _once_more(message: Message, receive: Receive) -> Receive:
    """Make a `receive` that gives a message which was read before, and then the others."""
    messages = [message]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


@lru_cache(maxsize=8_192)
def _names_in(query: bytes) -> dict[str, str] | None:
    """Read the memory that a query names; None when the framework has to look at it."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    names = dict(pairs)
    if len(names) != len(pairs) or not names.keys() <= _NAMES:
        return None
    return names if all(0 < len(value) <= _MAX_NAME_CHARS for value in names.values()) else None


PATH: Final = "/mcp"
SCOPES_OF_TOOLS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("search", "list", "history", "fetch"), frozenset({"memory:read"})),
    "ask": frozenset({"chat"}),
    **dict.fromkeys(("add", "undo", "report"), frozenset({"memory:write"})),
    "recall": frozenset({"memory:read", "memory:write"}),
    **dict.fromkeys(("forget", "erase"), frozenset({"memory:delete"})),
}
"""The scopes that each tool needs, all of them: those of the path that does the same. A tool
that does not stand here is offered to nobody.
"""
# The tools that an address asks for (`?tools=all`): what cannot be undone only by name.
_SETS: Final = {None: REVOCABLE, "all": REVOCABLE | {"erase"}, "connector": CONNECTOR}
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
        self._entered = ExitStack()
        # The route to add to an app; it is not in the OpenAPI document, since MCP
        # describes its tools itself.
        self.route: Final = Route(PATH, self, include_in_schema=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an MCP client.

        Raises `ServiceError`, `MissingExtra`.
        """
        scope["route"] = self.route
        request = Request(scope, receive)
        query, headers = request.query_params, request.headers
        named = {name: query.get(name) or headers.get(_NAMED_BY[name]) for name in _NAMED_BY}
        call = named_call(request, **named)
        asked = query.get("tools")
        if asked not in _SETS:
            raise InputError(f"there are no tools {asked!r}; write ?tools=all or ?tools=connector")
        allowed = (name for name, needed in SCOPES_OF_TOOLS.items() if needed <= call.caller.scopes)
        tools = _SETS[asked].intersection(allowed)
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
                    McpEndpoint,
                    lambda request: request.scope[_AGENT],
                    tools=tools,
                    max_body_bytes=max_body_bytes,
                )
                if not self._endpoints:
                    self._entered.enter_context(_discreet())
                started = asyncio.Event()
                self._running.append(
                    asyncio.get_running_loop().create_task(
                        endpoint.run(started, self._stop), context=Context()
                    )
                )
                await started.wait()
                self._endpoints[tools] = endpoint
            return self._endpoints[tools]

    async def close(self) -> None:
        """Stop what was started; harmless when nothing was."""
        self._stop.set()
        if self._running:
            await asyncio.wait(self._running)
        self._entered.close()


@contextmanager
def _discreet() -> Generator[None]:
    """Have all records of the vendor's loggers come to `_Discreet`, not to the program's log."""
    vendor, handler = logging.getLogger("mcp"), _Discreet(logging.WARNING)
    propagate, level = vendor.propagate, vendor.level
    vendor.addHandler(handler)
    vendor.propagate = False
    vendor.setLevel(logging.WARNING)
    try:
        yield
    finally:
        vendor.removeHandler(handler)
        vendor.propagate = propagate
        vendor.setLevel(level)


class _Discreet(logging.Handler):
    """A log handler that reports where the vendor's code had trouble and of what kind.

    Its own messages may hold text of users.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record without its message."""
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else "trouble"
        _log.log(record.levelno, "mcp: %s at %s:%d", kind, record.filename, record.lineno)
