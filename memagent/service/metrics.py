"""Counters, gauges and histograms of the service, by prometheus-client.

Routes are named by their templates (or `unmatched`), methods by the ones HTTP knows; no
label ever carries what a caller chose. Several workers keep their figures in files of one
folder (`shared_figures`), and whichever answers tells the sums of all.

The cost of language models: figures for `/metrics`, a log line a call, and sums.

Every request and job has a sum of its own.

Counts, never words. Labels are bounded: roles are ours, and of the models the first
twenty by name are told apart, later ones are `other`. The sum goes to a place that the
gate (its request) or a job (itself) sets for whatever runs below it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, MutableMapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from memagent.core.exchange import Delta, ModelRequest, ModelResponse, Usage
from memagent.llm.wrappers import ModelWrapper, name_of, stream_of
from memagent.protocols import ChatModel
from memagent.tracing import METHODS, trace_id

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


class MeteredModel(ModelWrapper):
    """A model whose calls are counted and told in the log; the answers are the model's own."""

    def __init__(self, model: ChatModel, figures: ModelFigures) -> None:
        super().__init__(model)
        self._figures = figures

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the model does."""
        with self._metered(request) as responses:
            responses.append(await self._model.complete(request))
        return responses[0]

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream as the model does; counted when the stream ends, also when it is given up."""
        with self._metered(request) as responses:
            async with aclosing(stream_of(self._model, request)) as deltas:
                async for delta in deltas:
                    if delta.response is not None:
                        responses.append(delta.response)
                    yield delta

    @contextmanager
    def _metered(self, request: ModelRequest) -> Generator[list[ModelResponse]]:
        """Count a call when it ends, with the last of the responses that are put into the list."""
        began, responses = time.perf_counter(), list[ModelResponse]()
        line = {"role": request.role.value, "model": "", "outcome": "ok"}
        try:
            yield responses
        except BaseException as exc:
            line["outcome"] = "given_up" if isinstance(exc, _GIVEN_UP) else "error"
            line["error"] = type(exc).__name__
            raise
        finally:
            seconds = time.perf_counter() - began
            response = responses[-1] if responses else None
            usage = response.usage if response is not None else Usage()
            model = name_of(self._model, request) or (response.model if response else "")
            self._figures.observe(
                line["role"], model, usage, seconds=seconds, outcome=line["outcome"]
            )
            place = PLACE.get()
            if place is not None:
                place[_SPENT] = place.get(_SPENT, Usage()) + usage.model_copy(update={"calls": 1})
            if _log.isEnabledFor(logging.INFO):
                line["model"] = model if _MODEL.fullmatch(model) else ""
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
    log: logging.Logger,
    event: str | None,
    place: MutableMapping[str, Any] | None,
    line: dict[str, Any],
) -> None:
    """Log one line of JSON, with the ids of the request and the trace."""
    entry = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "event": event,
        "request_id": place.get("memagent.request_id") if place is not None else None,
        "trace_id": trace_id(),
        **line,
    }
    words = (json.dumps({name: value for name, value in entry.items() if value is not None}),)
    # `log.info` would walk the stack for the name of this file.
    log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, "%s", words, None))


def _ms(seconds: float) -> float:
    return round(1_000 * seconds, 1)


def _tokens_of(usage: Usage) -> dict[str, Any]:
    cost = {} if usage.cost_usd is None else {"cost_usd": round(usage.cost_usd, 9)}
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens, **cost}


_BUCKETS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """The figures of the service. Used from one event loop."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self._requests = Counter(
            "memagent_requests", "Requests answered.", ("method", "route", "status"), registry=own
        )
        self._seconds = Histogram(
            "memagent_request_seconds",
            "Time from a request to the end of its answer.",
            ("route",),
            buckets=_BUCKETS_S,
            registry=own,
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._refused = Counter(
            "memagent_refused", "Requests turned away by a limit.", ("reason",), registry=own
        )
        self._events = Counter(
            "memagent_events", "Things that happened inside.", ("event",), registry=own
        )
        self.models = ModelFigures(own)
        """Calls and cost of language models."""
        # The same table for all workers: whoever looked last is right.
        self._jobs = Gauge(
            "memagent_jobs",
            "Jobs by state.",
            ("state",),
            registry=own,
            multiprocess_mode="mostrecent",
        )
        self.banks_open = Gauge(
            "memagent_banks_open", "Banks open.", registry=own, multiprocess_mode="livesum"
        )
        self.ready = Gauge("memagent_ready", "Ready.", registry=own, multiprocess_mode="livemin")
        self._at_work = Gauge(
            "memagent_requests_in_flight",
            "Requests in flight.",
            registry=own,
            multiprocess_mode="livesum",
        )
        self.in_flight = 0
        """The number of requests at work in this process; `work` changes it."""
        self._at_work.set_function(lambda: self.in_flight)
        self._all = own
        if _FOLDER in os.environ:
            self._all = CollectorRegistry()
            MultiProcessCollector(self._all)

    def work(self, more: int) -> None:
        """Count requests that begin, or with -1 one that ends."""
        self.in_flight += more
        if self._all is not self._registry:  # the other workers read it in a file
            self._at_work.set(self.in_flight)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        known = method if method in METHODS else "OTHER"
        series = self._series.get((known, route, status))
        if series is None:
            series = self._requests.labels(known, route, status), self._seconds.labels(route)
            self._series[known, route, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def refuse(self, reason: str) -> None:
        """Count a request turned away: `overloaded`, `rate`, `memory`, `too_large`."""
        self._refused.labels(reason).inc()

    def count(self, event: str) -> None:
        """Count something that happened inside.

        By name: `banks_opened`, `banks_evicted`, `jobs_done`, `jobs_failed`,
        `jobs_retried`, `replays`.
        """
        self._events.labels(event).inc()

    def value(self, name: str, **labels: str) -> float:
        """Return a figure of this process; 0 for one that was never counted."""
        return self._registry.get_sample_value(name, labels) or 0.0

    def text(self, jobs: Mapping[str, int]) -> str:
        """Return the figures of all workers in the text format, with the jobs by state."""
        for state, count in jobs.items():
            self._jobs.labels(state).set(count)
        return generate_latest(_WithoutTimes(self._all)).decode()


class _WithoutTimes(CollectorRegistry):
    """A registry's figures without the moments at which each was first counted.

    The library's own switch for that would hold for a whole process, and so for other apps in it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._inner = registry

    def collect(self) -> Iterable[Metric]:
        """Return the figures."""
        for family in self._inner.collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family


@contextmanager
def shared_figures() -> Generator[Path]:
    """Have processes that start meanwhile keep their figures in one folder."""
    before = os.environ.get(_FOLDER)
    with tempfile.TemporaryDirectory(prefix="memagent-figures-") as folder:
        os.environ[_FOLDER] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[_FOLDER]
            else:
                os.environ[_FOLDER] = before
