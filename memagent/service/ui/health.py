"""The health of the service: readiness, figures, versions, sizes, the audit of a memory.

Jobs of the user shown: the list, one of them with its result, and forms to retry or cancel.
"""

from __future__ import annotations

import platform
import re
import sqlite3
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import memagent
from memagent.client.wire import Job, JobState
from memagent.core.errors import InputError, MemAgentError
from memagent.core.records import Id
from memagent.journal.open_database import DatabaseJournal
from memagent.service.hosting import Service, service_database_path
from memagent.service.routes.exchange import PageRequest, page_of
from memagent.service.routes.talk import file_response, find_job
from memagent.service.ui.frame import constants, failure, go, page, page_router
from memagent.service.ui.session_auth import Reader, Viewer, Visitor, require_viewer

health_router = page_router()
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
_SERIES: Final = re.compile(r"^memagent_(\w+?)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'\b(\w+)="([^"]*)"')
_SLOW: Final = 0.95


@dataclass(slots=True)
class Route:
    """Figures of one route."""

    path: str
    count: int = 0
    faults: int = 0
    refusals: int = 0
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


@health_router.get("/ui/health")
async def health(
    viewer: Visitor,
) -> Response:
    """Show everything about the service that the viewer may know."""
    return await _show(viewer)


@health_router.post("/ui/health")
async def act(viewer: Annotated[Viewer, Depends(require_viewer("admin"))]) -> Response:
    """Do what the field `do` names: `verify` the chain of hashes of the memory shown."""
    if viewer.form["do"] != "verify":
        raise InputError("the form names nothing to do")
    journal = viewer.service.journal.inner
    if not isinstance(journal, DatabaseJournal):
        raise InputError("this store keeps no chain of hashes")
    return await _show(viewer, verified=await run_in_threadpool(journal.verify, viewer.scope))


async def _show(viewer: Viewer, *, verified: list[str] | None = None) -> Response:
    service = viewer.service
    counts = await run_in_threadpool(service.jobs.table.counts)
    admin = viewer.may("admin")
    return page(
        viewer.request,
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
    """Read the figures back from the text of `/metrics`, so that both say the same."""
    text = service.metrics.text(counts)
    routes: dict[str, Route] = {}
    named: defaultdict[str, dict[str, int]] = defaultdict(dict)
    gauges: dict[str, float] = {}
    for name, words, value in _SERIES.findall(text):
        labels = dict(_LABEL.findall(words))
        if "route" in labels:
            path = labels["route"]
            _count(routes.setdefault(path, Route(path)), name, labels, float(value))
        elif labels:
            named[name][next(iter(labels.values()))] = int(float(value))
        else:
            gauges[name] = float(value)
    answered = (route for route in routes.values() if route.count)
    ordered = sorted(answered, key=lambda route: (-route.count, route.path))
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
            route.buckets.append((float(labels["le"]), int(value)))
        case _:
            pass


def _versions() -> dict[str, str]:
    versions = {
        "memagent": memagent.__version__,
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "System": f"{platform.system()} {platform.machine()}",
    }
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _sizes(service: Service) -> dict[str, int]:
    """Return the bytes of the store's files; {} for a store that is no file."""
    store = service.path
    if store is None:
        return {}
    beside = service_database_path(store)
    return {
        "Journal": _bytes(store),
        "Journal, written last": _bytes(_log_of(store)),
        "Service": _bytes(beside) + _bytes(_log_of(beside)),
    }


def _log_of(file: Path) -> Path:
    return file.with_name(file.name + "-wal")


def _bytes(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


jobs_router = page_router()
_PAGE: Final = 50
_OPEN: Final = (JobState.QUEUED, JobState.RUNNING)


@jobs_router.get("/ui/jobs")
async def list_jobs(
    viewer: Reader,
    state: JobState | None = None,
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Show the jobs, the newest first."""
    jobs = await run_in_threadpool(viewer.service.jobs.table.of_user, viewer.scope.user_id)
    listed, further = page_of(
        viewer.call,
        jobs,
        PageRequest("ui/jobs", cursor or None, _PAGE, state.value if state is not None else ""),
        id_of=lambda job: job.id,
        visible=lambda job: state in (None, job.state),
    )
    counts = Counter(job.state for job in jobs)
    return page(
        viewer.request,
        "jobs.html",
        title="Jobs",
        active="jobs",
        jobs=listed,
        same=constants({"tries": [job.attempts for job in listed]}),
        further=further,
        counts={each: counts[each] for each in JobState},
        state=state,
        total=len(jobs),
    )


@jobs_router.get("/ui/jobs/{job_id}")
async def one_job(job_id: Id, viewer: Reader) -> Response:
    """Show one job with its result."""
    return _jobs_show(viewer, await find_job(viewer.call, job_id))


@jobs_router.post("/ui/jobs/{job_id}")
async def act_on_job(job_id: Id, viewer: Reader) -> Response:
    """Do what the field `do` names: `retry` or `cancel`."""
    viewer.need("memory:write")
    job = await find_job(viewer.call, job_id)
    try:
        match viewer.form["do"]:
            case "retry":
                begun = (await viewer.service.jobs.retry(job, viewer.scope)).state is not job.state
                note = "It begins again." if begun else "Only a failed job is tried again."
            case "cancel":
                job = await viewer.service.jobs.cancel(job, viewer.scope)
                note = "Cancelled. What it is about stays stored."
                note = "It was through before." if job.state is JobState.DONE else note
            case _:
                raise InputError("the form names nothing to do")
    except MemAgentError as exc:
        status, fault = failure(viewer.request, exc)
        return _jobs_show(viewer, await find_job(viewer.call, job_id), status=status, fault=fault)
    return go(viewer, f"/ui/jobs/{job.id}", note=note)


@jobs_router.get("/ui/jobs/{job_id}/files/{number}")
async def file(job_id: Id, number: int, viewer: Reader) -> Response:
    """Serve a file that an export wrote."""
    return await file_response(viewer.service, await find_job(viewer.call, job_id), number)


def _jobs_show(viewer: Viewer, job: Job, *, status: int = 200, fault: str = "") -> Response:
    return page(
        viewer.request,
        "job.html",
        title="Job",
        active="jobs",
        status=status,
        job=job,
        result=job.result or {},
        open=job.state in _OPEN,
        fault=fault,
    )
