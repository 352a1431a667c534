"""Plain requests that skip the framework's search for a route and solving of dependencies.

The framework takes longer to find the route of a search and to solve its dependencies
than the search takes; `docs/research/measurements.md` has the figures. `FastRoutes`
stands before all other routes. It takes the requests whose method and path name a
function with the parameters `body` and `call`, reads both itself and calls the function
behind the same checks of key and scope. Whatever is not plain (other parameters, an
idempotency key, another content type, a body that the model refuses) goes on to the
framework, so every refusal is worded in one place. The tests hold both ways equal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, get_type_hints
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Message, Receive, Scope, Send

_NAMES: Final = frozenset({"user_id", "agent_id", "run_id"})
_MAX_NAME_CHARS: Final = 256
_PASSED: Final = "memagent.by_framework"
"""Key of the scope of a request that goes on to the framework."""


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
                    self._direct.update({(way, route.path): direct for way in route.methods})

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request that says nothing only the framework understands."""
        direct = self._direct.get((scope.get("method", ""), scope["path"]))
        if direct is None or _PASSED in scope or scope["root_path"]:
            return Match.NONE, {}
        if not _is_plain(scope) or _names_in(scope["query_string"]) is None:
            return Match.NONE, {}
        return Match.FULL, {"route": direct.route}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; leave one whose body is refused to the framework."""
        _, model, authorize = self._direct[scope["method"], scope["path"]]
        request = Request(scope, receive, send)
        content = await request.body()
        try:
            body = model.model_validate(from_json(content))
        except ValueError:  # not JSON, or refused
            scope[_PASSED] = True
            await scope["router"].app(scope, _once_more(content, receive), send)
            return
        names = _names_in(scope["query_string"])
        assert names is not None
        response: Response = await scope["route"].endpoint(
            body, await authorize(request, **names, key=None)
        )
        await response(scope, receive, send)


def _once_more(content: bytes, receive: Receive) -> Receive:
    """Make a `receive` that gives a body which was read before."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _is_plain(scope: Scope) -> bool:
    """Tell whether the headers say nothing that only the framework understands."""
    kind = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"idempotency-key":
            return False
    return kind == b"application/json"


@lru_cache(maxsize=8_192)
def _names_in(query: bytes) -> dict[str, str] | None:
    """Read the memory that a query names; None when the framework has to look at it."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    names = dict(pairs)
    if len(names) != len(pairs) or not names.keys() <= _NAMES:
        return None
    return names if all(0 < len(value) <= _MAX_NAME_CHARS for value in names.values()) else None
