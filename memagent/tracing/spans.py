"""Spans where the program has set tracing up, by OpenTelemetry's conventions.

The home of opentelemetry, which is never loaded from here before the program has loaded
it: no SDK means no spans, and every call below then gives one shared object that does
nothing. An agent with `capture_content` adds texts to its spans, and to those below
them. Errors are told by their class, since a message may repeat what somebody said. The
surprise: a stream's span is current only while a step of the stream runs, because a
generator may be closed in another context than the one it was begun in.

Attributes of spans: numbers of searches, answers and writes, and texts.

Numbers and names are always told; texts, ids that a caller chose and users are not. The
`..._content` functions make the texts, for `Span.content` alone.
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

from memagent.core import Later
from memagent.core.answers import Answer, Hit, Query, Question
from memagent.core.exchange import Message, Usage
from memagent.core.recipes import RECIPES, Recipe
from memagent.core.records import MemoryItem
from memagent.core.snapshot import Commit

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]
"""Attributes of a span, by OpenTelemetry's names or ours (`memagent.*`)."""
# The shape of ids that this library makes; ids that somebody chose may say something.
_OWN_ID: Final = re.compile(r"[a-z]{1,6}_[0-9a-f]{20,64}")


def usage_figures(usage: Usage) -> Attributes:
    """Return tokens and cost; no cost where the price is not known."""
    cost = {} if usage.cost_usd is None else {"memagent.usage.cost_usd": usage.cost_usd}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        **cost,
    }


def own_id(name: str, value: str | None) -> Attributes:
    """Return an id as an attribute if this library made it, and nothing otherwise."""
    return {name: value} if value is not None and _OWN_ID.fullmatch(value) else {}


def search_figures(recipe: Recipe | None, count: int, *, k: int | None = None) -> Attributes:
    """Describe a search in numbers; `recipe` None is the design's own way."""
    name = "design"
    if recipe is not None:
        plain = recipe.model_copy(update={"max_tokens": None})
        name = next((name for name, known in RECIPES.items() if known == plain), "custom")
    return {
        "memagent.recipe": name,
        "gen_ai.memory.record.count": count,
        **({"memagent.k": k} if k is not None else {}),
    }


def answer_figures(answer: Answer) -> Attributes:
    """Describe an answer in numbers."""
    return {
        **usage_figures(answer.usage),
        "memagent.citations": len(answer.citations),
        "memagent.verdict": answer.verdict.value,
    }


def result_figures(result: object) -> Attributes:
    """Describe the result of a verb: the number of memories, and the id of a single one."""
    if isinstance(result, MemoryItem):
        return {"gen_ai.memory.record.count": 1, **own_id("gen_ai.memory.record.id", result.id)}
    if isinstance(result, Commit):
        count = len(result.changes)
    elif isinstance(result, list):
        count = len(items_of(cast(object, result)))
    else:
        count = int(result) if isinstance(result, bool | int) else 1
    return {"gen_ai.memory.record.count": count}


def items_of(result: object) -> list[MemoryItem]:
    """Return the memories that a verb gave or left."""
    if isinstance(result, Commit):
        return [change.after for change in result.changes if change.after is not None]
    entries = cast("list[object]", result) if isinstance(result, list) else [result]
    return [entry for entry in entries if isinstance(entry, MemoryItem)]


def messages_content(name: str, messages: Iterable[Message]) -> Attributes:
    """Write messages as the conventions do."""
    rows = [
        {"role": message.role, "parts": [{"type": "text", "content": message.content}]}
        for message in messages
    ]
    return {name: json.dumps(rows, ensure_ascii=False)}


def records_content(records: Iterable[MemoryItem | Hit]) -> Attributes:
    """Write memories as the conventions do."""
    rows = [
        {
            "id": record.id,
            "content": record.text,
            **({"score": record.score} if isinstance(record, Hit) else {}),
        }
        for record in records
    ]
    return {"gen_ai.memory.records": json.dumps(rows, ensure_ascii=False)}


if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry import context, propagate, trace

    from memagent.tracing import masking
else:
    context, trace = Later("opentelemetry.context"), Later("opentelemetry.trace")
    propagate, masking = Later("opentelemetry.propagate"), Later("memagent.tracing.masking")

Kind = Literal["internal", "client", "server"]
P = ParamSpec("P")
T = TypeVar("T")

_CAPTURE: Final = "memagent.capture_content"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods that HTTP knows; others count as `OTHER`."""
_NOT_FAILURES: Final = (asyncio.CancelledError, GeneratorExit)


class Span:
    """A span that nobody sees, for programs without tracing.

    A context manager, for one use.
    """

    __slots__ = ()
    recording: bool = False
    """Whether attributes are seen; check it before working them out."""

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
        """Make the span current for a step of a stream, without ending it."""
        yield

    def put(self, attributes: Attributes) -> None:
        """Add attributes."""

    def content(self, make: Callable[[], Attributes]) -> None:
        """Add attributes that hold somebody's words, where the agent captures them."""

    def rename(self, name: str) -> None:
        """Change the span's name."""

    def fail(self, error: str) -> None:
        """Mark the span as failed by an error's class or a status, never by a message."""

    def end(self, exc: BaseException | None = None) -> None:
        """End a span that was not entered."""


NO_SPAN: Final = Span()


class _Live(Span):
    """A span of the program's tracer."""

    __slots__ = ("_context", "_span", "_token", "recording")

    def __init__(self, span: trace.Span, parent: Any, *, capture: bool) -> None:
        self._span = span
        self._context = trace.set_span_in_context(span, parent)
        if capture:
            self._context = context.set_value(_CAPTURE, True, self._context)
        self._token: Token[Any] | None = None
        self.recording = span.is_recording()

    def __enter__(self) -> Self:
        self._token = context.attach(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            context.detach(self._token)
        self.end(exc)

    @contextmanager
    def step(self) -> Generator[None]:
        token = context.attach(self._context)
        try:
            yield
        finally:
            context.detach(token)

    def put(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def content(self, make: Callable[[], Attributes]) -> None:
        if self.recording and context.get_value(_CAPTURE, self._context):
            mask = masking.Mask()
            self.put(
                {
                    name: mask.masked(value) if isinstance(value, str) else value
                    for name, value in make().items()
                }
            )

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, error: str) -> None:
        self._span.set_attribute("error.type", error)
        self._span.set_status(trace.StatusCode.ERROR)

    def end(self, exc: BaseException | None = None) -> None:
        if exc is not None and not isinstance(exc, _NOT_FAILURES):
            self.fail(type(exc).__name__)
        self._span.end()


_AGENT_NAME: Final = "memagent"
# The provider last looked at, and the tracer it gave.
_seen: tuple[object, trace.Tracer | None] = (None, None)


def _tracer() -> trace.Tracer | None:
    """Return our tracer of the program's provider; None where there is none."""
    global _seen
    api = sys.modules.get("opentelemetry.trace")
    find = getattr(api, "get_tracer_provider", None)
    if api is None or find is None:
        return None
    # Asking a library without a provider reads the environment, each time.
    if _seen[0] is not None and getattr(api, "_TRACER_PROVIDER", find) is None:
        return None
    provider = find()
    if provider is not _seen[0]:
        none = isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider))
        # The package's front is above this layer, so it is not imported.
        version = getattr(sys.modules["memagent"], "__version__", None)
        _seen = provider, None if none else provider.get_tracer("memagent", version)
    return _seen[1]


def tracing() -> bool:
    """Say whether the program has set tracing up."""
    return _tracer() is not None


def span(
    name: str,
    *,
    kind: Kind = "internal",
    capture: bool = False,
    parent: Any = None,
    attributes: Attributes | None = None,
) -> Span:
    """Start a span below the present one, or below `parent`.

    `capture` lets it and the spans below it hold texts. A sampler sees `attributes`;
    those known later are `put`.
    """
    tracer = _tracer()
    if tracer is None:
        return NO_SPAN
    started = tracer.start_span(
        name,
        context=parent,
        kind=trace.SpanKind[kind.upper()],
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    )
    return _Live(started, parent, capture=capture)


def operation_span(operation: str, *, capture: bool = False) -> Span:
    """Start a span of an operation that the conventions name, such as `search_memory`."""
    return span(operation, capture=capture, attributes={"gen_ai.operation.name": operation})


def agent_span(design: str, *, capture: bool) -> Span:
    """Start the span of an answer or a reply by an agent with this design."""
    agent_span_ = operation_span("invoke_agent", capture=capture)
    if agent_span_.recording:
        agent_span_.rename(f"invoke_agent {_AGENT_NAME}")
        agent_span_.put({"gen_ai.agent.name": _AGENT_NAME, "memagent.design": design})
    return agent_span_


async def within(span_: Span, stream: AsyncIterator[T]) -> AsyncGenerator[T]:
    """Run the steps of a stream below a span, which ends with it."""
    failure: BaseException | None = None
    try:
        while True:
            with span_.step():
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
        span_.end(failure)


def step(node: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Give a node of a graph a span named after it."""
    name = getattr(node, "__name__", "step")

    @wraps(node)
    async def traced_node(*args: P.args, **kwargs: P.kwargs) -> T:
        with span(name, attributes={"memagent.step": name}):
            return await node(*args, **kwargs)

    return traced_node


class _Verbs(Protocol):
    capture_content: bool


V = TypeVar("V", bound=_Verbs)


def verb(
    operation: str,
) -> Callable[
    [Callable[Concatenate[V, P], Awaitable[T]]], Callable[Concatenate[V, P], Coroutine[Any, Any, T]]
]:
    """Give a direct verb on a memory a span of the operation, with the memories it gave."""

    def decorate(
        method: Callable[Concatenate[V, P], Awaitable[T]],
    ) -> Callable[Concatenate[V, P], Coroutine[Any, Any, T]]:
        @wraps(method)
        async def traced_verb(self: V, *args: P.args, **kwargs: P.kwargs) -> T:
            with operation_span(operation, capture=self.capture_content) as verb_span:
                result = await method(self, *args, **kwargs)
                if verb_span.recording:
                    verb_span.put({"memagent.verb": method.__name__, **result_figures(result)})
                    if items := items_of(result):
                        verb_span.content(lambda: records_content(items))
                return result

        return traced_verb

    return decorate


def put_search(
    search_span: Span,
    query: Query | Question,
    records: Sequence[MemoryItem | Hit],
    *,
    k: int | None = None,
) -> None:
    """Put a search into its span."""
    search_span.put(search_figures(query.recipe, len(records), k=k))
    search_span.content(
        lambda: {"gen_ai.memory.query.text": query.text, **records_content(records)}
    )


# -- across processes and tasks --------------------------------------------------------


def caller_span(name: str, carrier: Mapping[str, str]) -> Span:
    """Start the span of a request from outside.

    It stands below the caller's own span where `carrier` names one (`traceparent`).
    """
    if _tracer() is None:
        return NO_SPAN
    return span(name, kind="server", parent=propagate.extract(carrier, context.get_current()))


def request_span(headers: Iterable[tuple[bytes, bytes]]) -> Span:
    """Start and enter the span of a request to the service; end it with `end_request`."""
    if _tracer() is None:
        return NO_SPAN
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return caller_span("HTTP", carrier).__enter__()


def end_request(span_: Span, *, method: str, route: str, status: int, request_id: str) -> None:
    """End a `request_span`, named by the template of the route, never by a path as called."""
    if span_.recording:
        known = method in METHODS
        span_.rename(f"{method if known else 'HTTP'} {route}")
        span_.put(
            {
                "http.request.method": method if known else "_OTHER",
                "http.route": route,
                "http.response.status_code": status,
                "memagent.request.id": request_id,
            }
        )
        if status >= 500:
            span_.fail(str(status))
    span_.__exit__(None, None, None)


def trace_id() -> str | None:
    """Return the id (32 hex digits) of the present trace, for log lines; None without one."""
    if _tracer() is None:
        return None
    place = trace.get_current_span().get_span_context()
    return f"{place.trace_id:032x}" if place.is_valid else None


def trace_context() -> Context:
    """Make a new context for a task that outlives its caller.

    It has nothing of the caller's but the place in the trace.
    """
    fresh = Context()
    if _tracer() is not None:
        fresh.run(context.attach, context.get_current())
    return fresh
