"""Training runs: what lies in the folder that `service.runs_folder` names, as a list and as curves.

Read-only.

Runs belong to no user's memory, so a key that is bound to one user does not see them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse

from memagent.core.errors import MemoryNotFound
from memagent.pages.charts import Chart, Curve, chart, number, share
from memagent.pages.run_folders import Run, read_run, runs_in
from memagent.service.ui.frame import page, page_router
from memagent.service.ui.session_auth import Viewer, viewer

router = page_router()
Watcher = Annotated[Viewer, Depends(viewer("admin", about_memory=False))]
_MOST_SETTINGS_CHARS: Final = 20_000
_VALIDATED: Final = (
    ("f1", "F1", "answers from memory, against the gold answers", number),
    ("overwritten", "Overwritten facts", "share of revised facts answered as they are now", share),
    ("lost", "Lost evidence", "share of gold turns that no memory cites; less is better", share),
    ("memory_share", "Memory share", "tokens of memory by tokens of dialogue", share),
)
_BRANCHES: Final = ("global", "local", "answer")
_OPS: Final = ("add", "update", "delete", "noop", "rejected")
_LOGGED: Final = (
    ("loss", "Loss", ""),
    ("grad_norm", "Gradient norm", "before clipping"),
    ("kl", "KL", "to where the run began"),
    ("entropy", "Entropy", "of the replies, nats a token"),
    ("clip_ratio/region_mean", "Clipped", "share of rows whose ratio is clipped"),
    ("step_time", "Seconds an update", ""),
)
_TESTED: Final = ("f1", "exact", "overwritten", "lost", "memory_share", "failed")


@router.get("/ui/runs")
async def runs(request: Request, seen: Watcher) -> HTMLResponse:
    """The runs there are, newest first."""
    folder = _folder(seen)
    found = await run_in_threadpool(runs_in, folder) if folder is not None else []
    return page(
        request,
        "runs.html",
        title="Training runs",
        active="runs",
        folder=str(folder) if folder is not None else "",
        runs=[(run, _said(run), run.best()) for run in found],
    )


@router.get("/ui/runs/one")
async def run(
    request: Request, seen: Watcher, name: Annotated[str, Query(min_length=1, max_length=255)]
) -> HTMLResponse:
    """One run with its curves."""
    folder = _folder(seen)
    found = await run_in_threadpool(read_run, folder, name) if folder is not None else None
    if found is None:
        raise MemoryNotFound(f"there is no run {name!r}")
    return page(
        request,
        "runs_one.html",
        title="Training run",
        active="runs",
        **await run_in_threadpool(_shown, found),
    )


def _folder(seen: Viewer) -> Path | None:
    """Where runs lie. Raises `MemoryNotFound` for somebody bound to one user."""
    if not seen.free:
        raise MemoryNotFound("there are no runs here")
    return seen.service.settings.runs_folder


def _shown(found: Run) -> dict[str, Any]:
    """What the page of a run shows."""
    groups = [
        (
            "Validation",
            "means over held-out episodes, played greedily; bands are 95 % intervals",
            _validation(found),
        ),
        ("Experience", "of what is learned from", _experience(found)),
        ("Updates", "as the optimizer logged them", _updates(found)),
    ]
    tested = found.tests(_TESTED)
    tokens = sum(value for _, value in found.figure("tokens/completion"))
    return {
        "run": found,
        "said": _said(found),
        "best": found.best(),
        "tokens": int(tokens),
        "seconds": sum(value for _, value in found.logged("step_time")),
        "groups": [
            (title, note, charts)
            for title, note, charts in groups
            if any(not one.empty for one in charts)
        ],
        "tested": tested,
        "test_names": [name for name in _TESTED if any(name in cells for _, _, cells in tested)],
        "settings": json.dumps(found.settings, indent=2, ensure_ascii=False)[:_MOST_SETTINGS_CHARS],
        "versions": [(str(name), str(value)) for name, value in found.versions.items()],
    }


def _said(run: Run) -> list[str]:
    """What was trained, in a few words each."""
    size, world = run.asked("model", "size"), run.asked("environment", "kind")
    lengths = [str(stage.sessions) for stage in run.stages if stage.sessions is not None]
    found = (
        run.asked("model", "path") or (f"{size} from scratch" if size else ""),
        run.asked("agent", "design"),
        f"{world} {run.asked('environment', 'level')}".strip() if world == "synthetic" else world,
        f"{' then '.join(lengths)} sessions" if lengths else "",
    )
    return [one for one in found if one]


def _validation(run: Run) -> list[Chart]:
    found: list[Chart] = []
    for tone, (name, title, note, shown) in enumerate(_VALIDATED):
        points, bands = run.validated(name)
        curve = Curve(name=title, points=points, bands=bands, tone=tone)
        found.append(chart(title, [curve], note=note, low=0.0, shown=shown, borders=run.borders))
    return found


def _experience(run: Run) -> list[Chart]:
    flat = _by(run, _BRANCHES, "groups/{}_flat")
    return [
        chart(
            "Reward",
            _by(run, _BRANCHES, "reward/{}"),
            note="by which rollouts were compared",
            borders=run.borders,
        ),
        chart(
            "Ops",
            _by(run, _OPS, "ops/{}"),
            note="shares of what was decided",
            low=0.0,
            high=1.0,
            shown=share,
            borders=run.borders,
        ),
        chart(
            "Flat groups",
            flat,
            note="share in which all earned the same, which teaches nothing",
            low=0.0,
            high=1.0,
            shown=share,
            borders=run.borders,
        ),
        _plain(
            run,
            "Tokens",
            "generated in a batch of experience",
            run.figure("tokens/completion"),
            tone=3,
        ),
    ]


def _updates(run: Run) -> list[Chart]:
    return [
        _plain(run, title, note, run.logged(name), tone=place % 6)
        for place, (name, title, note) in enumerate(_LOGGED)
    ]


def _by(run: Run, names: Sequence[str], pattern: str) -> list[Curve]:
    return [
        Curve(name=name, points=run.figure(pattern.format(name)), tone=tone)
        for tone, name in enumerate(names)
    ]


def _plain(
    run: Run, title: str, note: str, points: list[tuple[float, float]], *, tone: int
) -> Chart:
    return chart(
        title, [Curve(name=title, points=points, tone=tone)], note=note, borders=run.borders
    )
