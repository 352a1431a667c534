"""Counters and histograms in Prometheus' text format.

They are written by hand: a handful of series with bounded labels needs no library.

Routes are named by their templates (or `unmatched`), methods by the ones HTTP knows; no
label ever carries what a caller chose.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from memagent.service.model_meter import ModelFigures

_BUCKETS_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})
"""Methods that HTTP knows; any other is counted as `OTHER`."""


class Metrics:
    """The figures of the service. Used from one event loop."""

    def __init__(self) -> None:
        self.in_flight = 0
        # Requests turned away, by reason: `overloaded`, `rate`, `memory`, `too_large`.
        self.refused: Counter[str] = Counter()
        # Things that happened inside, by name: `banks_opened`, `banks_evicted`,
        # `jobs_done`, `jobs_failed`, `jobs_retried`, `replays`.
        self.events: Counter[str] = Counter()
        # Calls and cost of language models.
        self.models = ModelFigures()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._buckets: defaultdict[str, list[int]] = defaultdict(
            lambda: [0] * (len(_BUCKETS_S) + 1)
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[method if method in METHODS else "OTHER", route, status] += 1
        self._seconds[route] += seconds
        self._buckets[route][bisect_left(_BUCKETS_S, seconds)] += 1

    def text(self, gauges: Mapping[str, float], by_state: Mapping[str, int]) -> str:
        """Return all figures in the text format, with further gauges and the jobs by state."""
        return "\n".join([*self._lines(gauges, by_state), ""])

    def _lines(self, gauges: Mapping[str, float], by_state: Mapping[str, int]) -> Iterable[str]:
        yield from _head("memagent_requests_total", "counter", "Requests answered.")
        for (method, route, status), count in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"memagent_requests_total{{{labels}}} {count}"
        yield from _head(
            "memagent_request_seconds", "histogram", "Time from a request to the end of its answer."
        )
        for route, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*_BUCKETS_S, "+Inf"), buckets, strict=True):
                total += count
                yield f'memagent_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'memagent_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'memagent_request_seconds_count{{route="{route}"}} {total}'
        yield from _head("memagent_refused_total", "counter", "Requests turned away by a limit.")
        for reason, count in sorted(self.refused.items()):
            yield f'memagent_refused_total{{reason="{reason}"}} {count}'
        yield from _head("memagent_events_total", "counter", "Things that happened inside.")
        for name, count in sorted(self.events.items()):
            yield f'memagent_events_total{{event="{name}"}} {count}'
        for name, help, rows in self.models.series():
            yield from _head(name, "counter", help)
            yield from (f"{name}{{{labels}}} {value:.12g}" for labels, value in rows)
        yield from _head("memagent_jobs", "gauge", "Jobs by state.")
        for state, count in sorted(by_state.items()):
            yield f'memagent_jobs{{state="{state}"}} {count}'
        for name, value in sorted({**gauges, "requests_in_flight": self.in_flight}.items()):
            yield from _head(f"memagent_{name}", "gauge", name.replace("_", " ").capitalize() + ".")
            yield f"memagent_{name} {value:g}"


def _head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"
