"""Routes whose plain requests skip the framework's solving of dependencies.

The framework takes longer to solve the dependencies of a search than the search takes;
`docs/research/measurements.md` has the figures. A `FastRoute` with the parameters `body` and
`call` reads both itself and calls the same function behind the same checks of key and
scope. Whatever is not plain (other parameters, an idempotency key, another content
type, a body that the model refuses) goes on to the framework, so every refusal is worded
in one place. The tests hold both ways equal.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Final, get_type_hints
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

_NAMES: Final = frozenset({"user_id", "agent_id", "run_id"})
_MAX_NAME_CHARS: Final = 256


class FastRoute(APIRoute):
    """A route of an `APIRouter(route_class=FastRoute)`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route's requests."""
        by_framework = super().get_route_handler()
        hints = get_type_hints(self.endpoint, include_extras=True)
        if list(hints) != ["body", "call", "return"] or "{" in self.path:
            return by_framework
        model, authorize, endpoint = (
            hints["body"],
            self.dependant.dependencies[0].call,
            self.endpoint,
        )
        assert authorize is not None

        async def handle(request: Request) -> Response:
            names = _names_in(request.scope["query_string"]) if _is_plain(request.scope) else None
            if names is None:
                return await by_framework(request)
            try:
                body = model.model_validate(from_json(await request.body()))
            except ValueError:  # not JSON, or refused
                return await by_framework(request)
            return await endpoint(body, await authorize(request, **names, key=None))

        return handle


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
