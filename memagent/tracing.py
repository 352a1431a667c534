"""Spans of what the agent does, by OpenTelemetry's conventions for generative AI, where
the program has set tracing up.

The home of opentelemetry, which is never loaded from here before the program has loaded
it: no SDK means no spans, and every call below then gives one shared object that does
nothing. Names and counts are told, words are not: no text, no id that a caller chose,
no user. An agent with `capture_content` adds texts to its spans, and to those below
them. Errors are told by their class, since a message may repeat what somebody said. The
surprise: a stream's span is current only while a step of the stream runs, because a
generator may be closed in another context than the one it was begun in.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import Context, Token
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
)

from memagent.core.answers import Answer, Hit, Query
from memagent.core.exchange import Message, Usage
from memagent.core.recipes import RECIPES, Recipe
from memagent.core.records import MemoryItem
from memagent.core.snapshot import Commit

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.trace import Span as ApiSpan
    from opentelemetry.trace import Tracer

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]
"""Attributes of a span, by OpenTelemetry's names or ours (`memagent.*`)."""
Kind = Literal["internal", "client", "server"]
P = ParamSpec("P")
T = TypeVar("T")

_CAPTURE: Final = "memagent.capture_content"
_MADE_ID: Final = re.compile(r"[a-z]{1,6}_[0-9a-f]{20,64}")
"""The shape of the ids that this library makes; others were chosen by somebody and may say
something.
"""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NOT_FAILURES: Final = (asyncio.CancelledError, GeneratorExit)


class Span:
    """A span that nobody sees: what there is without tracing.

    A context manager, once.
    """

    __slots__ = ()
    recording: bool = False
    """Whether what is put here is seen; check it before working attributes out."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    @contextmanager
    def step(self) -> Generator[None]:
        """Have the span be current for a step of a stream, which is not itself the end of it."""
        yield

    def put(self, attributes: Attributes) -> None:
        """Add attributes."""

    def content(self, make: Callable[[], Attributes]) -> None:
        """Add attributes that hold somebody's words, where the agent was told to."""

    def rename(self, name: str) -> None:
        """Call the span something else."""

    def fail(self, error: str) -> None:
        """Mark the span as failed, by the name of a class of errors or a status; never
        by a message.
        """

    def end(self, exc: BaseException | None = None) -> None:
        """End a span that was not entered."""


NO_SPAN: Final = Span()


class _Live(Span):
    __slots__ = ("_context", "_otel", "_span", "_token", "recording")

    def __init__(self, span: ApiSpan, parent: Any, *, capture: bool) -> None:
        from opentelemetry import context, trace

        self._span, self._otel = span, context
        self._context = trace.set_span_in_context(span, parent)
        if capture:
            self._context = context.set_value(_CAPTURE, True, self._context)
        self._token: Token[Any] | None = None
        self.recording = span.is_recording()

    def __enter__(self) -> Self:
        self._token = self._otel.attach(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            self._otel.detach(self._token)
        self.end(exc)

    @contextmanager
    def step(self) -> Generator[None]:
        token = self._otel.attach(self._context)
        try:
            yield
        finally:
            self._otel.detach(token)

    def put(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def content(self, make: Callable[[], Attributes]) -> None:
        if self.recording and self._otel.get_value(_CAPTURE, self._context):
            self._span.set_attributes(make())

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, error: str) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("error.type", error)
        self._span.set_status(StatusCode.ERROR)

    def end(self, exc: BaseException | None = None) -> None:
        if exc is not None and not isinstance(exc, _NOT_FAILURES):
            self.fail(type(exc).__name__)
        self._span.end()


_seen: tuple[object, Tracer | None] = (None, None)
"""The provider last looked at, and the tracer it gave."""


def _tracer() -> Tracer | None:
    """Our tracer of the program's provider; None where there is none."""
    global _seen
    api = sys.modules.get("opentelemetry.trace")
    find = getattr(api, "get_tracer_provider", None) if api is not None else None
    if api is None or find is None:
        return None
    provider = find()
    if provider is not _seen[0]:
        none = isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider))
        version = getattr(
            sys.modules["memagent"], "__version__", None
        )  # the package's front is above this layer
        _seen = provider, None if none else provider.get_tracer("memagent", version)
    return _seen[1]


def tracing() -> bool:
    """Whether the program has set tracing up."""
    return _tracer() is not None


def span(
    name: str,
    *,
    kind: Kind = "internal",
    capture: bool = False,
    parent: Any = None,
    attributes: Attributes | None = None,
) -> Span:
    """A span below the present one, or below `parent`; `capture` lets it and those
    below it tell texts.

    `attributes` are there when a sampler decides; what is known later is `put`.
    """
    tracer = _tracer()
    if tracer is None:
        return NO_SPAN
    from opentelemetry.trace import SpanKind

    made = tracer.start_span(
        name,
        context=parent,
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    )
    return _Live(made, parent, capture=capture)


def operation_span(operation: str, *, capture: bool = False) -> Span:
    """A span of one of the operations that the conventions name: `search_memory`,
    `upsert_memory`, `invoke_agent`, ...
    """
    if _tracer() is None:
        return NO_SPAN
    return span(operation, capture=capture, attributes={"gen_ai.operation.name": operation})


async def within(one: Span, stream: AsyncIterator[T]) -> AsyncGenerator[T]:
    """A stream whose steps run below a span, which ends with it."""
    failure: BaseException | None = None
    try:
        while True:
            with one.step():
                try:
                    piece = await anext(stream)
                except StopAsyncIteration:
                    return
            yield piece
    except BaseException as exc:
        failure = exc
        raise
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
        one.end(failure)


def step(node: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """A node of a graph, with a span named after it."""
    name = getattr(node, "__name__", "step")

    @wraps(node)
    async def told(*args: P.args, **kwargs: P.kwargs) -> T:
        with span(name) as one:
            if one.recording:
                one.put({"memagent.step": name})
            return await node(*args, **kwargs)

    return told


# -- across processes and tasks --------------------------------------------------------


def caller_span(name: str, carrier: Mapping[str, str]) -> Span:
    """The span of a request from outside, below the caller's own where `carrier` names
    one (`traceparent`), else the present one.
    """
    if _tracer() is None:
        return NO_SPAN
    from opentelemetry import context, propagate

    return span(name, kind="server", parent=propagate.extract(carrier, context.get_current()))


def request_span(headers: Iterable[tuple[bytes, bytes]]) -> Span:
    """The span of a request to the service, entered already; leave it with `answered`."""
    if _tracer() is None:
        return NO_SPAN
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return caller_span("HTTP", carrier).__enter__()


def answered(one: Span, *, method: str, route: str, status: int, request_id: str) -> None:
    """End a `request_span`: named by the template of the route, never by a path as called."""
    if one.recording:
        known = method in _METHODS
        one.rename(f"{method if known else 'HTTP'} {route}")
        one.put(
            {
                "http.request.method": method if known else "_OTHER",
                "http.route": route,
                "http.response.status_code": status,
                "memagent.request.id": request_id,
            }
        )
        if status >= 500:
            one.fail(str(status))
    one.__exit__(None, None, None)


def trace_id() -> str | None:
    """The id (32 hex digits) of the trace that the present span belongs to, for log
    lines; None without one.
    """
    if _tracer() is None:
        return None
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return f"{found.trace_id:032x}" if found.is_valid else None


def carried() -> Context:
    """A new context for a task that outlives its caller: it has nothing of the caller's
    but the place in the trace.
    """
    fresh = Context()
    if _tracer() is not None:
        from opentelemetry import context

        fresh.run(context.attach, context.get_current())
    return fresh


# -- what is told ----------------------------------------------------------------------


def usage_figures(usage: Usage) -> Attributes:
    """Tokens and cost; no cost where the price is not known."""
    cost = {} if usage.cost_usd is None else {"memagent.usage.cost_usd": usage.cost_usd}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        **cost,
    }


def made_id(name: str, value: str | None) -> Attributes:
    """An id as an attribute, if this library made it; nothing for one that a caller chose."""
    return {name: value} if value is not None and _MADE_ID.fullmatch(value) else {}


def search_figures(recipe: Recipe | None, found: int, *, k: int | None = None) -> Attributes:
    """A search in numbers; `recipe` None is the design's own way."""
    plain = recipe.model_copy(update={"max_tokens": None}) if recipe is not None else None
    name = (
        "design"
        if plain is None
        else next((name for name, one in RECIPES.items() if one == plain), "custom")
    )
    return {
        "memagent.recipe": name,
        "gen_ai.memory.record.count": found,
        **({"memagent.k": k} if k is not None else {}),
    }


def answer_figures(answer: Answer) -> Attributes:
    """An answer in numbers."""
    return {
        **usage_figures(answer.usage),
        "memagent.citations": len(answer.citations),
        "memagent.verdict": answer.verdict.value,
    }


def messages_content(name: str, messages: Iterable[Message]) -> Attributes:
    """Messages as the conventions write them, for `Span.content`."""
    rows = [
        {"role": one.role, "parts": [{"type": "text", "content": one.content}]} for one in messages
    ]
    return {name: json.dumps(rows, ensure_ascii=False)}


def records_content(found: Iterable[MemoryItem | Hit]) -> Attributes:
    """Memories as the conventions write them, for `Span.content`."""
    rows = [
        {
            "id": one.id,
            "content": one.text,
            **({"score": one.score} if isinstance(one, Hit) else {}),
        }
        for one in found
    ]
    return {"gen_ai.memory.records": json.dumps(rows, ensure_ascii=False)}


def tell_search(one: Span, query: Query, found: Sequence[MemoryItem | Hit], *, k: int) -> None:
    """Put a search into its span."""
    one.put(search_figures(query.recipe, len(found), k=k))
    one.content(lambda: {"gen_ai.memory.query.text": query.text, **records_content(found)})


class _Verbs(Protocol):
    capture_content: bool


V = TypeVar("V", bound=_Verbs)


def verb(
    operation: str,
) -> Callable[
    [Callable[Concatenate[V, P], Awaitable[T]]], Callable[Concatenate[V, P], Coroutine[Any, Any, T]]
]:
    """A direct verb on a memory, with a span of the operation; the number of memories
    is what the verb gives, else one.
    """

    def decorate(
        method: Callable[Concatenate[V, P], Awaitable[T]],
    ) -> Callable[Concatenate[V, P], Coroutine[Any, Any, T]]:
        name = method.__name__

        @wraps(method)
        async def told(self: V, *args: P.args, **kwargs: P.kwargs) -> T:
            with operation_span(operation, capture=self.capture_content) as one:
                result = await method(self, *args, **kwargs)
                if one.recording:
                    one.put({"memagent.verb": name, **result_figures(result)})
                    items = _items_of(result)
                    if items:
                        one.content(lambda: records_content(items))
                return result

        return told

    return decorate


def _items_of(result: object) -> list[MemoryItem]:
    if isinstance(result, Commit):
        return [change.after for change in result.changes if change.after is not None]
    several = cast("list[object]", result) if isinstance(result, list) else [result]
    return [one for one in several if isinstance(one, MemoryItem)]


def result_figures(result: object) -> Attributes:
    """What a direct verb gave, in numbers: memories changed, and the id of the one there is."""
    items = _items_of(result)
    if isinstance(result, Commit):
        return {"gen_ai.memory.record.count": len(result.changes)}
    if isinstance(result, bool | int):
        return {"gen_ai.memory.record.count": int(result)}
    if isinstance(result, list):
        return {"gen_ai.memory.record.count": len(items)}
    named = made_id(
        "gen_ai.memory.record.id", result.id if isinstance(result, MemoryItem) else None
    )
    return {"gen_ai.memory.record.count": 1, **named}
