"""A training run as one HTML page: charts, figures as tables, and what was said.

The page is written for a run that has ended, is still going or was stopped; what is not
there yet is left out. Intervals are 95 % bootstrap intervals over episodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path

from environments.rewards.metrics import ratio_interval
from memagent.core.errors import ConfigError
from memagent.pages.charts import Axes, Chart, column_chart, dot_chart, number, share
from memagent.pages.document import figure_cells, figures, fold, report_page, section, table, tiles
from memagent.pages.run_folders import (
    Json,
    Run,
    branch_chart,
    plain_chart,
    read_run,
    reward_charts,
    update_charts,
    validation_charts,
)
from train.report.figures import PHASES, anchors, correlation, phases, rewards_by_session

_TESTED = (
    "f1",
    "facts",
    "exact",
    "overwritten",
    "lost",
    "memory_share",
    "add",
    "update",
    "delete",
    "noop",
    "rejected",
    "failed",
)
_BEST = {"f1": max, "exact": max, "overwritten": max, "facts": max, "lost": min}
"""The choice of the best value of a figure; of others none is marked."""
_MOST_MEMORIES = 12


def write_report(folder: Path, out: Path, *, control: Path | None = None) -> Path:
    """Write the page about a run and return its path; `control` is a run to show beside it.

    Raises `ConfigError` when a folder holds no run.
    """
    run = _opened(Path(folder))
    beside = _opened(Path(control)) if control is not None else None
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(training_page(run, control=beside), encoding="utf-8")
    return out


def _opened(folder: Path) -> Run:
    run = read_run(folder)
    if run is None:
        raise ConfigError(f"{folder} holds no training run: it has no settings.json")
    return run


def training_page(run: Run, *, control: Run | None = None) -> str:
    """Return the page as text."""
    state = '<span class="status">finished</span>' if run.finished else "not finished"
    words = escape(f"{run.subject}, seed {run.settings.get('seed')}")
    return report_page(f"memagent-train: {run.name}", f"{words}; {state}", _parts(run, control))


def _parts(run: Run, control: Run | None) -> Iterator[str]:
    """Yield the parts of the page, top to bottom."""
    reward, ops, flat = reward_charts(run)
    yield tiles(_tiles(run))
    charts = validation_charts(
        run, lambda values: ratio_interval([[(value, 1.0)] for value in values]), control=control
    )
    yield section("Validation", _validation_note(run, control), figures(charts))
    yield from _test(run, control)
    note = "of the rollouts that are learned from, sampled at the training temperature"
    yield section("Reward and ops", note, figures([reward, ops, _session_chart(run)]))
    note = "what there is to compare, and whether the two comparisons agree"
    spread_note = "standard deviation within a group"
    spread = branch_chart(run, "Spread", "groups/{}_spread", spread_note, Axes(low=0.0))
    yield section("Groups and credit", note, figures([flat, spread, _anchor_chart(run)]))
    yield section("Time", _time_note(run), figures(_time_charts(run)))
    yield section("The update", "as the trainer logs it", figures(update_charts(run)))
    yield from _samples(run)
    yield from _spoken(run)
    settings = json.dumps(run.settings | {"versions": run.versions}, indent=2)
    yield fold("Settings and versions", "", f"<pre>{escape(settings)}</pre>")


def _tiles(run: Run) -> Iterator[tuple[str, str]]:
    points, best = run.validated(run.measure)[0], run.best()
    if points and best is not None:
        words = f"validation {run.measure}, start and best (step {best[0]})"
        yield f"<em>{points[0][1]:.3f} →</em> {best[1]:.3f}", words
    yield f"{run.updates:,}", "updates"
    tokens = sum(value for _, value in run.figure("tokens/completion"))
    yield number(tokens), "tokens generated to learn from"
    generating = sum(value for _, value in run.figure("time/generation"))
    if generating:
        yield number(tokens / generating), "tokens a second while generating"
    seconds = sum(value for _, value in run.logged("step_time"))
    words = f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"
    yield words, "in updates, validation not counted"


# -- charts ----------------------------------------------------------------------------


def _validation_note(run: Run, control: Run | None) -> str:
    count = len(run.validations[0][1]["episodes"]) if run.validations else 0
    note = (
        f"played greedily on {count} episodes; bands are 95 % bootstrap intervals over "
        "episodes; the ring is the best"
    )
    if control is not None:
        note += "; the control in grey: what training does without the reward's meaning"
    return f"{note}; dashed lines begin a stage" if run.borders else note


def _session_chart(run: Run) -> Chart:
    early = rewards_by_session(run, first=0.0, last=1 / 3)
    late = rewards_by_session(run, first=2 / 3, last=1.0)
    rows = [
        (place + 1, early.get(place, math.nan), late.get(place, math.nan))
        for place in sorted({*early, *late})
    ]
    return column_chart(
        "Reward by session",
        rows,
        ("first third of the run", "last third"),
        Axes(across="session"),
        grouped=True,
        note="global reward by the session's place",
    )


def _anchor_chart(run: Run) -> Chart:
    points = anchors(run)
    r = correlation(points)
    words = (
        f"r = {r:.2f} over {len(points)} runs" if r is not None else "too few differ to correlate"
    )
    axes = Axes(across="global advantage", up="local advantage")
    return dot_chart("Credit of the anchors", [(x, y, "") for x, y in points], axes, note=words)


def _time_note(run: Run) -> str:
    note = "seconds of an update by what they were spent on"
    rows = [row for _, *row in phases(run)]
    if not rows:
        return note
    sums = [sum(column) for column in zip(*rows, strict=True)]
    neither = 1 - (sums[0] + sums[3]) / (sum(sums) or 1)
    return f"{note}; {share(neither)} is neither generation nor loss"


def _time_charts(run: Run) -> list[Chart]:
    seconds = dict(run.figure("time/generation"))
    tokens = run.figure("tokens/completion")
    speed = [(x, value / seconds[x]) for x, value in tokens if seconds.get(x)]
    width = run.figure("batches/width")
    return [
        column_chart("Seconds", phases(run), PHASES, Axes(low=0.0), note="by phase"),
        plain_chart(run, "Tokens a second", "generated, while generating", speed, tone=1),
        plain_chart(run, "Batch width", "model calls answered together", width, tone=2),
    ]


# -- tables and text -------------------------------------------------------------------


def _test(run: Run, control: Run | None) -> Iterator[str]:
    tests = list(run.tests(_TESTED))
    if control is not None:
        name = control.setting("trainer", "control") or control.name
        tests += [
            (f"{name}: {policy}", sessions, cells)
            for policy, sessions, cells in control.tests(_TESTED)
        ]
    if not tests:
        return
    names = [name for name in _TESTED if any(name in cells for *_, cells in tests)]
    columns = [[f"<td>{escape(sessions)}</td>" for _, sessions, _ in tests]]
    columns += [
        figure_cells([cells.get(name) for *_, cells in tests], _BEST.get(name)) for name in names
    ]
    body = table("Test", ["policy", "sessions", *names], [policy for policy, *_ in tests], columns)
    same = run.setting("validation", "test_split") == "validation"
    words = "words and names of training" if same else "words and names of their own"
    episodes = run.setting("validation", "test_episodes")
    note = f"{episodes} held-out episodes each, with {words}; means and 95 % intervals"
    yield section("Test", note, body)


def _samples(run: Run) -> Iterator[str]:
    """Yield memory and replies of one validation episode, at the start and at the best."""
    samples = [(step, record) for step, record in run.validations if record.get("shown")]
    best = run.best()
    if not samples or best is None:
        return
    step, _, record = best
    before, after = samples[0], (step, record) if record.get("shown") else samples[-1]
    sides = [("Before", *before), ("After", *after)]
    if after[0] == before[0]:
        sides = [("At the start, which is still the best", *before)]
    body = "".join(
        f"<div>{_sample(title, step, record['shown'][0])}</div>" for title, step, record in sides
    )
    note = "one validation episode, played greedily"
    yield section("Before and after", note, f'<div class="pair">{body}</div>')


def _sample(title: str, step: int, sample: Json) -> str:
    memory = sample["memory"]
    lines = "".join(f"<li>{escape(text)}</li>" for text in memory[:_MOST_MEMORIES])
    more = len(memory) - _MOST_MEMORIES
    lines += f'<li class="soft">and {more} more</li>' if more > 0 else ""
    notes = f'<ol class="memory">{lines}</ol>' if lines else '<p class="soft">nothing was kept</p>'
    head = f"step {step}; {len(memory)} memories of {sample['episode']}"
    replies = "".join(_reply(role, text) for role, text in sample["replies"])
    return (
        f'<h3>{escape(title)} <span class="soft">{escape(head)}</span></h3>{notes}'
        f"<h3>First replies</h3>{replies}"
    )


def _spoken(run: Run) -> Iterator[str]:
    """Yield some of the replies that were learned from, with their advantages."""
    steps = run.steps
    if steps:
        parts: list[str] = []
        for place in dict.fromkeys((0, len(steps) // 2, len(steps) - 1)):
            step, record = steps[place]
            parts.append(f"<h3>Step {step:g}</h3>")
            parts += [
                _reply(f"{reply['role']}, advantage {reply['advantage']:+.2f}", reply["text"])
                for reply in record["samples"]
            ]
        yield fold("Replies that were learned from", "", "".join(parts))


def _reply(head: str, text: str) -> str:
    return f'<p class="said"><b>{escape(head)}</b> {escape(text)}</p>'
