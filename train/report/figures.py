"""Figures of a training run that only its report shows: time, credit, reward by session."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from memagent.pages.charts import Point, Row
from memagent.pages.run_folders import Run

PHASES = (
    "generation",
    "agent and scoring",
    "log-probabilities",
    "loss and optimizer",
    "credit and packing",
)
"""The phases of an update by time; the last is the rest."""


def phases(run: Run) -> list[Row]:
    """Return (update, seconds of each of `PHASES`) for every batch of experience."""
    seconds = dict(run.logged("step_time"))
    rows: list[Row] = []
    for stage in run.stages:
        starts = [line["step"] for line in stage.steps]
        span = starts[1] - starts[0] if len(starts) > 1 else 1
        ends = [*starts[1:], *(at + span for at in starts[-1:])]
        for line, until in zip(stage.steps, ends, strict=True):
            updates = range(stage.first + line["step"] + 1, stage.first + until + 1)
            if not updates or any(update not in seconds for update in updates):
                continue
            time = {name.removeprefix("time/"): value for name, value in line["figures"].items()}
            playing, agent, logps = time["generation"], time["agent"], time["logps"]
            credit = max(0.0, time["experience"] - playing - agent)
            whole = sum(seconds[update] for update in updates)
            learning = max(0.0, whole - time["experience"] - logps)
            rows.append((updates[0], playing, agent, logps, learning, credit))
    return rows


def anchors(run: Run) -> list[Point]:
    """Return (global, local) advantages of the anchors' sessions, without those of no credit."""
    pairs = [(float(x), float(y)) for _, line in run.steps for x, y in line.get("anchors", ())]
    return [(x, y) for x, y in pairs if x or y]


def rewards_by_session(run: Run, *, first: float, last: float) -> dict[int, float]:
    """Return the mean global reward by a session's place over a part of the run.

    The part goes from `first` to `last`, in shares of the run's batches.
    """
    steps = run.steps
    start = int(first * len(steps))
    rewards: dict[int, list[float]] = {}
    for _, line in steps[start : max(start + 1, int(last * len(steps)))]:
        for group in line["groups"]:
            if group["branch"] == "global" and group["session"] is not None:
                earned = [reward for reward in group["rewards"] if reward is not None]
                rewards.setdefault(group["session"], []).extend(earned)
    return {place: fmean(values) for place, values in sorted(rewards.items()) if values}


def correlation(points: Sequence[Point]) -> float | None:
    """Return Pearson's r; None for fewer than three points or no variance."""
    if len(points) < 3:
        return None
    mean_x, mean_y = fmean([x for x, _ in points]), fmean([y for _, y in points])
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    if not xx or not yy:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / (xx * yy) ** 0.5
