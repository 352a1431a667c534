"""How the service is: readiness, figures, versions, the size of the store, and the
audit of a memory's chain of hashes.
"""

from __future__ import annotations

import platform
import re
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Annotated, Final

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import memagent
from memagent.core.errors import InputError
from memagent.journal.database import DatabaseJournal
from memagent.service.hosting import Service, service_database_path
from memagent.service.ui.frame import page, page_router
from memagent.service.ui.session_auth import Viewer, viewer

router = page_router()
_PACKAGES: Final = (
    "pydantic",
    "numpy",
    "SQLAlchemy",
    "fastapi",
    "starlette",
    "uvicorn",
    "jinja2",
    "langgraph",
)
_SERIES: Final = re.compile(r"memagent_(\w+?)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_SLOW: Final = 0.95


@dataclass(slots=True)
class Route:
    """Figures of one route."""

    path: str
    count: int = 0
    faults: int = 0
    """Answers with a status of 500 and above."""
    refusals: int = 0
    """Answers with a status of 400 to 499."""
    seconds: float = 0.0
    buckets: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """(upper bound in seconds, answers up to it)."""

    @property
    def mean_ms(self) -> float:
        """Mean time of an answer."""
        return 1_000.0 * self.seconds / self.count if self.count else 0.0

    @property
    def slow_ms(self) -> float | None:
        """The bound below which 95 of 100 answers came; None beyond the last bound."""
        return next(
            (
                1_000.0 * bound
                for bound, count in self.buckets
                if count >= _SLOW * self.count and bound < inf
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """The metrics, sorted for showing."""

    routes: list[Route]
    refused: dict[str, int]
    events: dict[str, int]
    gauges: dict[str, float]
    jobs: dict[str, int]


@router.get("/ui/health")
async def health(seen: Annotated[Viewer, Depends(viewer(about_memory=False))]) -> Response:
    """Everything about the service that the viewer may know."""
    return await _show(seen)


@router.post("/ui/health")
async def act(seen: Annotated[Viewer, Depends(viewer("admin"))]) -> Response:
    """What the field `do` names: `verify`, which reads every entry of the memory shown
    and checks its chain of hashes.
    """
    if seen.form["do"] != "verify":
        raise InputError("the form names nothing to do")
    journal = seen.service.journal.inner
    if not isinstance(journal, DatabaseJournal):
        raise InputError("this store keeps no chain of hashes")
    return await _show(seen, verified=await run_in_threadpool(journal.verify, seen.scope))


async def _show(seen: Viewer, *, verified: list[str] | None = None) -> Response:
    service = seen.service
    counts = await run_in_threadpool(service.jobs.table.counts)
    admin = seen.may("admin")
    return page(
        seen.request,
        "health.html",
        title="Health",
        active="health",
        ready=service.ready,
        stopping=service.stopping,
        has_model=service.has_model,
        design=service.design.name,
        admin=admin,
        figures=_figures(service, counts) if admin else None,
        versions=_versions() if admin else {},
        sizes=await run_in_threadpool(_sizes, service) if admin else {},
        auditable=isinstance(service.journal.inner, DatabaseJournal),
        verified=verified,
    )


def _figures(service: Service, counts: dict[str, int]) -> Figures:
    """The figures of `/metrics`, read back from its text, so that both say the same."""
    text = service.metrics.text({"banks_open": len(service.banks)}, counts)
    routes: dict[str, Route] = {}
    named: defaultdict[str, dict[str, int]] = defaultdict(dict)
    gauges: dict[str, float] = {}
    for name, labels, value in (
        match.groups() for line in text.splitlines() if (match := _SERIES.fullmatch(line))
    ):
        known = dict(_LABEL.findall(labels or ""))
        if "route" in known:
            _count(
                routes.setdefault(known["route"], Route(known["route"])), name, known, float(value)
            )
        elif known:
            named[name][next(iter(known.values()))] = int(float(value))
        else:
            gauges[name] = float(value)
    ordered = sorted(
        (route for route in routes.values() if route.count),
        key=lambda route: (-route.count, route.path),
    )
    return Figures(ordered, named["refused_total"], named["events_total"], gauges, named["jobs"])


def _count(route: Route, name: str, labels: dict[str, str], value: float) -> None:
    match name:
        case "requests_total":
            route.count += int(value)
            route.faults += int(value) if labels["status"] >= "500" else 0
            route.refusals += int(value) if "400" <= labels["status"] < "500" else 0
        case "request_seconds_sum":
            route.seconds = value
        case "request_seconds_bucket":
            route.buckets.append(
                (inf if labels["le"] == "+Inf" else float(labels["le"]), int(value))
            )
        case _:
            pass


def _versions() -> dict[str, str]:
    found = {
        "memagent": memagent.__version__,
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "System": f"{platform.system()} {platform.machine()}",
    }
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _sizes(service: Service) -> dict[str, int]:
    """Bytes of the store's files, by what they hold; {} for a store that is no file."""
    store = service.path
    if store is None:
        return {}
    beside = service_database_path(store)
    return {
        "Journal": _bytes(store),
        "Journal, written last": _bytes(store.with_name(store.name + "-wal")),
        "Service": _bytes(beside) + _bytes(beside.with_name(beside.name + "-wal")),
    }


def _bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
