"""Training runs of the folder that `service.runs_folder` names, as a list and as curves.

Runs belong to no user's memory, so a key that is bound to one user does not see them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from memagent.core.errors import MemoryNotFound
from memagent.pages.run_folders import (
    Run,
    named_run,
    plain_chart,
    reward_charts,
    runs_in,
    update_charts,
    validation_charts,
)
from memagent.service.ui.frame import page, page_router
from memagent.service.ui.session_auth import Viewer, require_viewer

router = page_router()
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
