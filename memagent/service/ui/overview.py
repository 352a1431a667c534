"""The pages about the whole: overview, users, health, jobs, training runs.

The overview is the first page: a question, the size of the memory, its latest changes and
charts. The charts count the whole journal once a process and keep the figures. The first view of
a large memory does not wait for that: it shows the rest, and the next view counts.

Users: the list, choosing one, and a user's rights to an export and to erasure.

The health of the service: readiness, figures, versions, sizes, the audit of a memory.

Jobs of the user shown: the list, one of them with its result, and forms to retry or cancel.

Training runs of the folder that `service.runs_folder` names, as a list and as curves.

Runs belong to no user's memory, so a key that is bound to one user does not see them.
"""

from __future__ import annotations

import json
import platform
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from prometheus_client.parser import text_string_to_metric_families
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

import memagent
from memagent.async_agent import AsyncAgent
from memagent.client.wire import JobKind, JobState
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.long_work import Slices, aside
from memagent.core.records import Id, NodeKind, Scope
from memagent.journal.open_database import DatabaseJournal
from memagent.pages.journal_words import JournalFigures, describe_entry
from memagent.pages.run_folders import (
    Run,
    named_run,
    plain_chart,
    reward_charts,
    runs_in,
    update_charts,
    validation_charts,
)
from memagent.service.hosting import Service, service_file
from memagent.service.routes.exchange import PageRequest, page_of
from memagent.service.routes.users import file_response, find_job, reachable
from memagent.service.ui.frame import (
    Reader,
    Viewer,
    Visitor,
    constants,
    go,
    page,
    page_router,
    require_viewer,
)
from memagent.state.fold import BankState

router = page_router()
_LAST: Final = 5
# Journal entries that are searched for the latest changes.
_LOOK_BACK: Final = 16
# Memories up to which the first view counts the journal.
_COUNTED_AT_ONCE: Final = 2_000
# Seconds that one view spends on counting the journal.
_COUNTING_S: Final = 2.0
# Memories whose figures are kept, the ones looked at last.
_MOST_COUNTED: Final = 32


@router.get("/ui")
async def overview(viewer: Reader) -> Response:
    """Show figures, charts and the latest entries of the journal."""
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        active, nodes = await aside(_counts, state, agent.bank.expired)
        figures = (
            ("Memories", active),
            ("Deleted or expired", len(state.items) - active),
            ("Sessions", len(state.sessions)),
            ("Turns", len(state.turns)),
            ("Events and entities", nodes),
            ("Journal entries", state.seq),
        )
        rows = [row async for row in agent.bank.rows(after=max(0, state.seq - _LOOK_BACK))]
        entries = (describe_entry(row, state) for row in reversed(rows))
        told = (entry for entry in entries if entry.kind not in ("graph", "stats"))
        latest = list(islice(told, _LAST))
        counted, fresh = _figures_of(viewer, state.seq)
        if not fresh or len(state.items) <= _COUNTED_AT_ONCE:
            await count_journal(agent, counted, seconds=_COUNTING_S)
        degraded = agent.bank.degraded
    service = viewer.service
    counts = await run_in_threadpool(service.jobs.table.counts)
    return page(
        viewer.request,
        "overview.html",
        title="Overview",
        active="overview",
        figures=figures,
        latest=latest,
        charts=counted.charts(),
        counted=counted.seq,
        last=state.seq,
        degraded=degraded,
        has_model=service.model is not None,
        design=service.design.name,
        failed_jobs=counts["failed"] if viewer.may("admin") else 0,
        empty=not state.items and not state.sessions,
    )


def _counts(state: BankState, expired: Container[str]) -> tuple[int, int]:
    """Return the number of memories, and of nodes of the graph that are none."""
    active = sum(1 for item in state.active() if item.id not in expired)
    return active, sum(1 for node in state.graph.all_nodes() if node.kind is not NodeKind.ITEM)


async def count_journal(agent: AsyncAgent, figures: JournalFigures, *, seconds: float) -> None:
    """Count the rows that are new since the last call, for about this long."""
    over, slices = time.monotonic() + seconds, Slices()
    async for row in agent.bank.rows(after=figures.seq):
        if row.seq > figures.seq:  # another view may have counted it meanwhile
            figures.add(row)
        await slices.rest()
        if time.monotonic() > over:
            return


def _figures_of(viewer: Viewer, seq: int) -> tuple[JournalFigures, bool]:
    """Return the figures of a memory, and whether they are new.

    They are new when nobody has looked yet, or when the journal has begun anew.
    """
    kept: OrderedDict[str, JournalFigures] = viewer.request.app.state.figures
    figures = kept.pop(viewer.scope.key, None)
    fresh = figures is None or figures.seq > seq
    if figures is None or fresh:
        figures = JournalFigures()
    kept[viewer.scope.key] = figures
    if len(kept) > _MOST_COUNTED:
        kept.popitem(last=False)
    return figures, fresh


_PAGE: Final = 50


@router.get("/ui/users")
async def list_users(
    viewer: Annotated[Viewer, Depends(require_viewer("memory:read", about_memory=False))],
    find: Annotated[str, Query(max_length=256)] = "",
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Show the users, and the forms about the one that is chosen."""
    users: dict[str, list[Scope]] = {}
    for scope in await reachable(viewer):
        narrowed = users.setdefault(scope.user_id, [])
        if scope.agent_id is not None or scope.run_id is not None:
            narrowed.append(scope)
    letters = find.strip().casefold()
    listed, further = page_of(
        viewer,
        list(users),
        PageRequest("ui/users", cursor or None, _PAGE, letters),
        id_of=str,
        visible=lambda user_id: letters in user_id.casefold(),
    )
    return page(
        viewer.request,
        "users.html",
        title="Users" if viewer.free else "This user",
        active="users",
        users=[(user_id, users[user_id]) for user_id in listed],
        total=len(users),
        further=further,
        find=find,
        known=viewer.scope.user_id in users,
        narrowed=viewer.scope.agent_id is not None or viewer.scope.run_id is not None,
    )


@router.post("/ui/users")
async def act(viewer: Reader) -> Response:
    """Do what the field `do` names: `export`, or `erase` with the user's id typed again."""
    form, scope = viewer.form, viewer.scope
    match form["do"]:
        case "export":
            kind, note = JobKind.EXPORT, "The export has begun."
        case "erase":
            viewer.require("memory:delete")
            if form["confirm"] != scope.user_id:
                viewer.fault = InputError("This is not the user's id; nothing was erased.")
                return await list_users(viewer)
            kind = JobKind.RESET if form["only"] else JobKind.ERASE
            note = "The erasure has begun."
        case _:
            raise InputError("the form names nothing to do")
    job = await viewer.service.jobs.accept(scope, kind, request_key=viewer.journal_key)
    return go(viewer, f"/ui/jobs/{job.id}", note=note)


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
# What is shown of the figures that are about no route.
_FIGURES: Final = ("refused_total", "events_total", "jobs", "banks_open", "requests_in_flight")
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

    def count_in(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add one of the route's figures."""
        if name == "requests_total":
            self.count += int(value)
            self.faults += int(value) if labels["status"] >= "500" else 0
            self.refusals += int(value) if "400" <= labels["status"] < "500" else 0
        elif name == "request_seconds_sum":
            self.seconds = value
        elif name == "request_seconds_bucket":
            self.buckets.append((float(labels["le"]), int(value)))

    @property
    def slow_ms(self) -> float | None:
        """The bound below which 95 of 100 answers came; None beyond the last bound."""
        return next(
            (
                1_000.0 * bound
                for bound, count in self.buckets
                if count >= _SLOW * self.count and bound != float("inf")
            ),
            None,
        )


@router.get("/ui/health")
async def health(
    viewer: Visitor,
) -> Response:
    """Show everything about the service that the viewer may know."""
    return await _show_health(viewer)


@router.post("/ui/health")
async def act_on_health(viewer: Annotated[Viewer, Depends(require_viewer("admin"))]) -> Response:
    """Do what the field `do` names: `verify` the chain of hashes of the memory shown."""
    if viewer.form["do"] != "verify":
        raise InputError("the form names nothing to do")
    journal = viewer.service.journal.inner
    if not isinstance(journal, DatabaseJournal):
        raise InputError("this store keeps no chain of hashes")
    return await _show_health(
        viewer, verified=await run_in_threadpool(journal.verify, viewer.scope)
    )


async def _show_health(viewer: Viewer, *, verified: list[str] | None = None) -> Response:
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
        has_model=service.model is not None,
        design=service.design.name,
        admin=admin,
        figures=_figures(service, counts) if admin else None,
        versions=_versions() if admin else {},
        sizes=await run_in_threadpool(_sizes, service) if admin else {},
        auditable=isinstance(service.journal.inner, DatabaseJournal),
        verified=verified,
    )


def _figures(service: Service, counts: dict[str, int]) -> dict[str, Any]:
    """Read the figures back from the text of `/metrics`, so that both say the same.

    Those of no route stand by name and the value of their first label, "" without any.
    """
    routes: dict[str, Route] = {}
    named: dict[str, dict[str, int]] = {name: {} for name in _FIGURES}
    families = text_string_to_metric_families(service.metrics.text(counts))
    for sample in chain.from_iterable(family.samples for family in families):
        name, labels = sample.name.removeprefix("memagent_"), sample.labels
        if "route" in labels:
            path = labels["route"]
            routes.setdefault(path, Route(path)).count_in(name, labels, sample.value)
        elif name in named:
            named[name][next(iter(labels.values()), "")] = int(sample.value)
    answered = (route for route in routes.values() if route.count)
    return {**named, "routes": sorted(answered, key=lambda route: (-route.count, route.path))}


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
    beside = service_file(store)
    return {
        "Journal": _bytes(store),
        "Journal, written last": _bytes(Path(f"{store}-wal")),
        "Service": _bytes(beside) + _bytes(Path(f"{beside}-wal")),
    }


def _bytes(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


@router.get("/ui/jobs")
async def list_jobs(
    viewer: Reader,
    state: JobState | None = None,
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Show the jobs, the newest first."""
    jobs = await run_in_threadpool(viewer.service.jobs.table.of_user, viewer.scope.user_id)
    listed, further = page_of(
        viewer,
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


@router.get("/ui/jobs/{job_id}")
async def one_job(job_id: Id, viewer: Reader) -> Response:
    """Show one job with its result."""
    job = await find_job(viewer, job_id)
    return page(
        viewer.request,
        "job.html",
        title="Job",
        active="jobs",
        job=job,
        result=job.result or {},
        open=job.state in (JobState.QUEUED, JobState.RUNNING),
    )


@router.post("/ui/jobs/{job_id}")
async def act_on_job(job_id: Id, viewer: Reader) -> Response:
    """Do what the field `do` names: `retry` or `cancel`."""
    viewer.require("memory:write")
    job = await find_job(viewer, job_id)
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
        viewer.fault = exc
        return await one_job(job_id, viewer)
    return go(viewer, f"/ui/jobs/{job.id}", note=note)


@router.get("/ui/jobs/{job_id}/files/{number}")
async def file(job_id: Id, number: int, viewer: Reader) -> Response:
    """Serve a file that an export wrote."""
    return await file_response(viewer, await find_job(viewer, job_id), number)


Watcher = Annotated[Viewer, Depends(require_viewer("admin", about_memory=False))]
_MOST_SETTINGS_CHARS: Final = 20_000
_TESTED: Final = ("f1", "exact", "overwritten", "lost", "memory_share", "failed")


@router.get("/ui/runs")
async def runs(viewer: Watcher) -> HTMLResponse:
    """Show the runs, newest first."""
    folder = _folder(viewer)
    runs = await run_in_threadpool(runs_in, folder) if folder is not None else []
    return page(
        viewer.request,
        "runs.html",
        title="Training runs",
        active="runs",
        folder=str(folder) if folder is not None else "",
        runs=[(run, run.best()) for run in runs],
    )


@router.get("/ui/runs/one")
async def run(
    viewer: Watcher, name: Annotated[str, Query(min_length=1, max_length=255)]
) -> HTMLResponse:
    """Show one run with its curves."""
    folder = _folder(viewer)
    run = await run_in_threadpool(named_run, folder, name) if folder is not None else None
    if run is None:
        raise MemoryNotFound(f"there is no run {name!r}")
    values = await run_in_threadpool(_values, run)
    return page(viewer.request, "runs_one.html", title="Training run", active="runs", **values)


def _folder(viewer: Viewer) -> Path | None:
    """Return the folder of runs. Raises `MemoryNotFound` for a key bound to one user."""
    if not viewer.free:
        raise MemoryNotFound("there are no runs here")
    return viewer.service.settings.runs_folder


def _values(run: Run) -> dict[str, Any]:
    """Read what the page of a run shows."""
    experience = [
        *reward_charts(run),
        plain_chart(
            run,
            "Tokens",
            "generated in a batch of experience",
            run.figure("tokens/completion"),
            tone=3,
        ),
    ]
    groups = [
        (
            "Validation",
            "means over held-out episodes, played greedily; bands are 95 % intervals",
            validation_charts(run),
        ),
        ("Experience", "of what is learned from", experience),
        ("Updates", "as the optimizer logged them", update_charts(run)),
    ]
    tested = run.tests(_TESTED)
    return {
        "run": run,
        "best": run.best(),
        "tokens": int(sum(value for _, value in run.figure("tokens/completion"))),
        "seconds": sum(value for _, value in run.logged("step_time")),
        "groups": [group for group in groups if any(chart.svg for chart in group[2])],
        "tested": tested,
        "test_names": [name for name in _TESTED if any(name in cells for _, _, cells in tested)],
        "settings": json.dumps(run.settings, indent=2, ensure_ascii=False)[:_MOST_SETTINGS_CHARS],
        "versions": [(str(name), str(value)) for name, value in run.versions.items()],
    }
