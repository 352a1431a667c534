"""The charts of a training run that the dashboard and the run's own report share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from memagent.pages.charts import (
    Axes,
    Chart,
    Curve,
    Point,
    column_chart,
    line_chart,
    number,
    share,
)
from memagent.pages.run_folders import Interval, Run, normal_interval

_VALIDATED: Final = (
    ("f1", "F1", "answers from memory, against the gold answers", number),
    ("overwritten", "Overwritten facts", "share of revised facts answered as they are now", share),
    ("lost", "Lost evidence", "M-Fail: gold turns that no memory cites; less is better", share),
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
    ("tokens/cut", "Cut replies", "share that ran into the length limit"),
)


def validation_charts(run: Run, interval: Interval = normal_interval) -> list[Chart]:
    """Draw the figures of every validation, with a ring around the best one."""
    best = run.best()
    axes = Axes(low=0.0, borders=run.borders, ring=best[0] if best is not None else None)
    charts: list[Chart] = []
    for tone, (name, title, note, format_y) in enumerate(_VALIDATED):
        points, bands = run.validated(name, interval)
        curve = Curve(name=title, points=points, bands=bands, tone=tone)
        charts.append(line_chart(title, [curve], replace(axes, format_y=format_y), note=note))
    return charts


def reward_charts(run: Run) -> list[Chart]:
    """Draw the rewards of each kind of group, the ops, and the groups that teach nothing."""
    shares = [dict(run.figure(f"ops/{name}")) for name in _OPS]
    rows = [(step, *(by_step.get(step, 0.0) for by_step in shares)) for step in shares[0]]
    axes = Axes(low=0.0, high=1.0, format_y=share, borders=run.borders)
    flat = "share in which all earned the same, which teaches nothing"
    return [
        branch_chart(run, "Reward", "reward/{}", "by which rollouts were compared"),
        column_chart("Ops", rows, _OPS, axes, note="shares of what was decided"),
        branch_chart(run, "Flat groups", "groups/{}_flat", flat, axes),
    ]


def branch_chart(run: Run, title: str, pattern: str, note: str, axes: Axes | None = None) -> Chart:
    """Draw a figure's curve for each kind of group; `pattern` makes the figure's name."""
    curves = [
        Curve(name=branch, points=_smooth(run.figure(pattern.format(branch))), tone=tone)
        for tone, branch in enumerate(_BRANCHES)
    ]
    return line_chart(title, curves, axes or Axes(borders=run.borders), note=note)


def update_charts(run: Run) -> list[Chart]:
    """Draw what the optimizer logged with every update."""
    return [
        plain_chart(run, title, note, run.logged(name), tone=tone % 6)
        for tone, (name, title, note) in enumerate(_LOGGED)
    ]


def plain_chart(run: Run, title: str, note: str, points: Sequence[Point], *, tone: int) -> Chart:
    """Draw one curve over the updates of a run."""
    curve = Curve(name=title, points=_smooth(points), tone=tone)
    return line_chart(title, [curve], Axes(borders=run.borders), note=note)


def _smooth(points: Sequence[Point]) -> list[Point]:
    """Return means over neighbours, a fortieth of the run wide; short runs stay as they are."""
    reach = len(points) // 80
    return [
        (x, fmean(y for _, y in points[max(0, place - reach) : place + reach + 1]))
        for place, (x, _) in enumerate(points)
    ]
