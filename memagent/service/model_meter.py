"""The cost of language models: figures for `/metrics`, a log line a call, and sums.

Every request and job has a sum of its own.

Counts, never words. Labels are bounded: roles are ours, and of the models the first
twenty by name are told apart, later ones are `other`. The sum goes to a place that the
gate (its request) or a job (itself) sets for whatever runs below it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Generator, MutableMapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter

from memagent.core.exchange import Delta, ModelRequest, ModelResponse, Usage
from memagent.llm.wrappers import name_of, stream_of, takes_options
from memagent.protocols import ChatModel
from memagent.tracing import trace_id

MOST_MODELS: Final = 20
"""Models that are told apart; further ones are counted as `other`."""
PLACE: ContextVar[MutableMapping[str, Any] | None] = ContextVar(
    "memagent_spending_place", default=None
)
"""The place in which the calls of the present request or job are added up."""
_SPENT: Final = "memagent.spent"
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}")
_GIVEN_UP: Final = (asyncio.CancelledError, GeneratorExit)
_log = logging.getLogger("memagent.service.models")
_job_log = logging.getLogger("memagent.service.jobs")


class ModelFigures:
    """Calls, tokens, seconds and money by role and model. Used from one event loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, help: str, *more: str) -> Counter:
            return Counter(
                f"memagent_model_{name}", help, ("role", "model", *more), registry=registry
            )

        self._models: set[str] = set()
        self._calls = counter("calls", "Calls of language models.", "outcome")
        self._tokens = counter(
            "tokens", "Tokens sent to and received from language models.", "kind"
        )
        self._seconds = counter("seconds", "Time that calls of language models took.")
        self._usd = counter("cost_usd", "US dollars, of calls whose price is known.")

    def observe(self, role: str, model: str, usage: Usage, *, seconds: float, outcome: str) -> None:
        """Count a call; one without a price adds nothing to the money."""
        name = self._label(model)
        self._calls.labels(role, name, outcome).inc()
        self._tokens.labels(role, name, "input").inc(usage.prompt_tokens)
        self._tokens.labels(role, name, "output").inc(usage.completion_tokens)
        self._seconds.labels(role, name).inc(seconds)
        self._usd.labels(role, name).inc(usage.cost_usd or 0.0)

    def _label(self, model: str) -> str:
        if model in self._models:
            return model
        if not model:
            return "unknown"
        if len(self._models) >= MOST_MODELS or not _MODEL.fullmatch(model):
            return "other"
        self._models.add(model)
        return model


class MeteredModel:
    """A model whose calls are counted and told in the log; the answers are the model's own."""

    def __init__(self, model: ChatModel, figures: ModelFigures) -> None:
        self._model, self._figures = model, figures

    def name_for(self, request: ModelRequest) -> str:
        """Name of the model that would answer."""
        return name_of(self._model, request)

    def takes_options(self, request: ModelRequest) -> bool:
        """Return whether the model heeds the options of a request."""
        return takes_options(self._model, request)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the model does."""
        began = time.perf_counter()
        try:
            response = await self._model.complete(request)
        except BaseException as exc:
            self._settle(request, None, began, exc)
            raise
        self._settle(request, response, began)
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream as the model does; counted when the stream ends, also when it is given up."""
        began = time.perf_counter()
        response: ModelResponse | None = None
        failure: BaseException | None = None
        try:
            async with aclosing(stream_of(self._model, request)) as deltas:
                async for delta in deltas:
                    response = delta.response or response
                    yield delta
        except BaseException as exc:
            failure = exc
            raise
        finally:
            self._settle(request, response, began, failure)

    def _settle(
        self,
        request: ModelRequest,
        response: ModelResponse | None,
        began: float,
        failure: BaseException | None = None,
    ) -> None:
        seconds = time.perf_counter() - began
        usage = response.usage if response is not None else Usage()
        model = name_of(self._model, request) or (response.model if response is not None else "")
        outcome = (
            "ok" if failure is None else "given_up" if isinstance(failure, _GIVEN_UP) else "error"
        )
        self._figures.observe(request.role.value, model, usage, seconds=seconds, outcome=outcome)
        place = PLACE.get()
        if place is not None:
            place[_SPENT] = place.get(_SPENT, Usage()) + usage.model_copy(update={"calls": 1})
        if _log.isEnabledFor(logging.INFO):
            line = {
                "role": request.role.value,
                "model": model if _MODEL.fullmatch(model) else "",
                "outcome": outcome,
            }
            if failure is not None:
                line["error"] = type(failure).__name__
            tell(_log, "model_call", place, {**line, "ms": _ms(seconds), **_tokens_of(usage)})


def spent_in(place: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return what was spent below a place, for its log line; {} when no model was asked."""
    usage: Usage | None = place.get(_SPENT)
    return {} if usage is None else {"model_calls": usage.calls, **_tokens_of(usage)}


@contextmanager
def job_line(job_id: str, kind: str, attempt: int) -> Generator[dict[str, Any]]:
    """Log one try of a job when it ends, with its model calls added up.

    The line also holds what the block puts into the yielded dict.
    """
    place: dict[str, Any] = {}
    line: dict[str, Any] = {"job_id": job_id, "kind": kind, "attempt": attempt, "outcome": "ok"}
    token, began = PLACE.set(place), time.perf_counter()
    try:
        yield line
    except BaseException as exc:
        line["outcome"] = "given_up" if isinstance(exc, _GIVEN_UP) else "error"
        line["error"] = str(getattr(exc, "code", type(exc).__name__))
        raise
    finally:
        PLACE.reset(token)
        if _job_log.isEnabledFor(logging.INFO):
            tell(
                _job_log,
                "job",
                None,
                {**line, "ms": _ms(time.perf_counter() - began), **spent_in(place)},
            )


def tell(
    log: logging.Logger, event: str, place: MutableMapping[str, Any] | None, line: dict[str, Any]
) -> None:
    """Log one line of JSON, with the ids of the request and the trace."""
    ids = {
        "request_id": place.get("memagent.request_id") if place is not None else None,
        "trace_id": trace_id(),
    }
    known = {name: value for name, value in ids.items() if value is not None}
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    log.info("%s", json.dumps({"at": at, "event": event, **known, **line}))


def _ms(seconds: float) -> float:
    return round(1_000 * seconds, 1)


def _tokens_of(usage: Usage) -> dict[str, Any]:
    cost = {} if usage.cost_usd is None else {"cost_usd": round(usage.cost_usd, 9)}
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens, **cost}
