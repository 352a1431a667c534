"""The two requests a memory mostly gets, searching it and adding to it, answered before
the framework has looked at them.

The framework takes longer to find a route and solve its dependencies than the search
takes. Here the same functions do the work, behind the same checks of key and scope, and
failures are told by the same handler; only the way to them is shorter. Whatever is not
plain (other parameters, an idempotency key, another content type, a body that the model
refuses) goes to the framework with the body read so far, so every refusal is worded in
one place. The tests hold both ways equal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from memagent.client.wire import NewMemory, SearchRequest
from memagent.core.errors import MemAgentError
from memagent.service.access import Call, may
from memagent.service.problems import library_error
from memagent.service.routes.memories import add_memory, search

ROUTE: Final = "memagent.route"
"""Where the scope names the route that answered, when the framework did not."""
_MAX_BYTES: Final = 256 * 1024
_NAMES: Final = frozenset({"user_id", "agent_id", "run_id"})
_MAX_NAME_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class _Way:
    body: type[BaseModel]
    call: Callable[..., Awaitable[Call]]
    answer: Callable[[Any, Call], Awaitable[Response]]


_WAYS: Final[Mapping[str, _Way]] = {
    "/v1/search": _Way(SearchRequest, may("memory:read"), search),
    "/v1/memories": _Way(NewMemory, may("memory:write"), add_memory),
}


class Shortcut:
    """An ASGI app around the framework's."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain request, or hand it on."""
        way = (
            _WAYS.get(scope["path"])
            if scope["type"] == "http" and scope["method"] == "POST"
            else None
        )
        names = _names_in(scope["query_string"]) if way is not None and _plain(scope) else None
        if way is None or names is None:
            await self._app(scope, receive, send)
            return
        message = await receive()
        body = _read(way.body, message)
        if body is None:
            await self._app(scope, _again(message, receive), send)
            return
        scope["app"], scope[ROUTE] = self._app, scope["path"]
        request = Request(scope, receive, send)
        try:
            response = await way.answer(body, await way.call(request, **names, key=None))
        except MemAgentError as exc:
            response = await library_error(request, exc)
        await response(scope, receive, send)


def _plain(scope: Scope) -> bool:
    """Whether the headers say nothing that only the framework understands."""
    kind, sized = b"", False
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"content-length":
            # the gate has seen that it is not too long; a body without may be cut off
            # while it is read
            sized = True
        elif name == b"idempotency-key":
            return False
    return sized and kind == b"application/json"


@lru_cache(maxsize=8_192)
def _names_in(query: bytes) -> dict[str, str] | None:
    """The memory that a query names; None when it says anything else, or says it in a
    way to be refused.
    """
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    names = dict(pairs)
    if len(names) != len(pairs) or not names.keys() <= _NAMES:
        return None
    return names if all(0 < len(value) <= _MAX_NAME_CHARS for value in names.values()) else None


def _read(model: type[BaseModel], message: Message) -> BaseModel | None:
    """The body, when it came in one piece and the model takes it."""
    if (
        message["type"] != "http.request"
        or message.get("more_body")
        or len(message.get("body", b"")) > _MAX_BYTES
    ):
        return None
    try:
        return model.model_validate(from_json(message["body"]))
    except ValueError:  # not JSON, or refused
        return None


def _again(first: Message, receive: Receive) -> Receive:
    """`receive`, with a message that was taken already once more before the others."""
    taken: list[Message] = [first]

    async def received() -> Message:
        return taken.pop() if taken else await receive()

    return received
