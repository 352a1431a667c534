"""Counters, gauges and histograms of the service, by prometheus-client.

Routes are named by their templates (or `unmatched`), methods by the ones HTTP knows; no
label ever carries what a caller chose. Several workers keep their figures in files of one
folder (`shared_figures`), and whichever answers tells the sums of all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead  # pyright: ignore[reportUnknownVariableType]

from memagent.service.model_meter import ModelFigures

_BUCKETS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})
"""Methods that HTTP knows; any other is counted as `OTHER`."""


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
        self._in_flight = 0
        self._all = own
        if _FOLDER in os.environ:
            self._all = CollectorRegistry()
            MultiProcessCollector(self._all)

    @property
    def in_flight(self) -> int:
        """The number of requests at work in this process."""
        return self._in_flight

    @in_flight.setter
    def in_flight(self, number: int) -> None:
        self._in_flight = number
        self._at_work.set(number)

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
    """A registry's figures without the moments at which each was first counted."""

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


def forget_worker(folder: Path, pid: int) -> None:
    """Drop the gauges of a worker that ended; what it counted stays in the sums."""
    mark_process_dead(pid, str(folder))
