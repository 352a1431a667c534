"""What lies in a run's folder, read into plain values; no torch.

A folder of a run that is still going or was stopped reads as well.

Steps are counted through all stages: the first step of the second stage follows the
last of the first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from environments.rewards.metrics import ratio_interval
from memagent.core.errors import ConfigError
from train.report.traces import lines_of_file

Json = dict[str, Any]
Point = tuple[float, float]
Band = tuple[float, float, float]
PHASES = (
    "generation",
    "agent and scoring",
    "log-probabilities",
    "loss and optimizer",
    "credit and packing",
)
"""Where the time of an update goes; the last is what is left."""


@dataclass(frozen=True, kw_only=True)
class StageData:
    """One stage."""

    name: str
    first: int
    """Steps of all stages before."""
    sessions: int
    steps: Sequence[Json]
    """Lines of `steps.jsonl`, one a generation batch."""
    logs: Sequence[Json]
    """Lines of `log.jsonl`, one an optimizer step."""
    validations: Sequence[Json]
    ended: Json | None


@dataclass(frozen=True, kw_only=True)
class RunData:
    """One run."""

    folder: Path
    settings: Json
    versions: Json
    summary: Json | None
    """None until the run has ended."""
    stages: Sequence[StageData]

    @property
    def validations(self) -> list[tuple[int, Json]]:
        """(step, record) through all stages."""
        return [
            (stage.first + one["step"], one) for stage in self.stages for one in stage.validations
        ]

    @property
    def steps(self) -> list[tuple[int, Json]]:
        """(step, record) through all stages; the step is the update that learned from it."""
        return [
            (stage.first + one["step"] + 1, one) for stage in self.stages for one in stage.steps
        ]

    @property
    def borders(self) -> list[float]:
        """Where stages after the first begin."""
        return [float(stage.first) for stage in self.stages[1:]]

    def figure(self, name: str) -> list[Point]:
        """A figure of every generation batch that has it."""
        return [
            (float(step), one["figures"][name])
            for step, one in self.steps
            if name in one["figures"]
        ]

    def logged(self, name: str) -> list[Point]:
        """A figure of every optimizer step that has it."""
        found: list[Point] = []
        for stage in self.stages:
            for line in stage.logs:
                value = line["logs"].get(name)
                if isinstance(value, int | float):
                    found.append((float(stage.first + line["step"]), float(value)))
        return found

    def validated(self, name: str) -> tuple[list[Point], list[Band]]:
        """A figure's mean at every validation, and its 95 % bootstrap interval over episodes."""
        points: list[Point] = []
        bands: list[Band] = []
        for step, record in self.validations:
            values = [one[name] for one in record["episodes"] if name in one]
            if not values:
                continue
            points.append((float(step), fmean(values)))
            span = ratio_interval([[(value, 1.0)] for value in values])
            if span is not None:
                bands.append((float(step), span[0], span[1]))
        return points, bands

    def best(self) -> tuple[int, Json] | None:
        """(step, record) of the validation with the best measure."""
        measure = self.settings["validation"]["measure"]
        found = self.validations
        return (
            max(found, key=lambda one: one[1]["figures"].get(measure, float("-inf")))
            if found
            else None
        )

    def phases(self) -> list[tuple[float, list[float]]]:
        """Seconds of every generation batch by phase, in the order of `PHASES`."""
        found: list[tuple[float, list[float]]] = []
        for stage in self.stages:
            seconds = {line["step"]: line["logs"].get("step_time") for line in stage.logs}
            starts = [one["step"] for one in stage.steps]
            for place, one in enumerate(stage.steps):
                until = (
                    starts[place + 1] if place + 1 < len(starts) else one["step"] + _span(starts)
                )
                spent = [seconds.get(step) for step in range(one["step"] + 1, until + 1)]
                if not spent or any(value is None for value in spent):
                    continue
                time = {name.removeprefix("time/"): value for name, value in one["figures"].items()}
                whole = sum(value for value in spent if value is not None)
                playing, agent, logps = time["generation"], time["agent"], time["logps"]
                rest = max(0.0, time["experience"] - playing - agent)
                learning = max(0.0, whole - time["experience"] - logps)
                found.append(
                    (float(stage.first + one["step"] + 1), [playing, agent, logps, learning, rest])
                )
        return found

    def anchors(self) -> list[Point]:
        """(global, local) advantages of the anchors' sessions."""
        return [(float(a), float(b)) for _, one in self.steps for a, b in one.get("anchors", ())]

    def by_place(self, branch: str, *, first: float, last: float) -> dict[int, float]:
        """Mean reward by the session's place over a part of the run: from `first` to
        `last`, in shares of its batches.
        """
        steps = [one for _, one in self.steps]
        part = steps[
            int(first * len(steps)) : max(int(first * len(steps)) + 1, int(last * len(steps)))
        ]
        found: dict[int, list[float]] = {}
        for one in part:
            for group in one["groups"]:
                if group["branch"] == branch and group["session"] is not None:
                    rewards = [reward for reward in group["rewards"] if reward is not None]
                    found.setdefault(group["session"], []).extend(rewards)
        return {place: fmean(values) for place, values in sorted(found.items()) if values}


def read_run(folder: Path) -> RunData:
    """The run in a folder. Raises `ConfigError` when there is none."""
    if not (folder / "settings.json").is_file():
        raise ConfigError(f"{folder} holds no training run: it has no settings.json")
    settings = _json(folder / "settings.json") or {}
    records = lines_of_file(folder / "validation.jsonl")
    stages: list[StageData] = []
    first = 0
    for number, stage in enumerate(settings.get("stage", ())):
        home = folder / f"stage{number}"
        if not home.is_dir():
            break
        logs = [line for line in lines_of_file(home / "log.jsonl") if "loss" in line["logs"]]
        ended = _json(home / "ended.json")
        stages.append(
            StageData(
                name=home.name,
                first=first,
                sessions=stage["sessions"],
                steps=lines_of_file(home / "steps.jsonl"),
                logs=logs,
                validations=[one for one in records if one["stage"] == home.name],
                ended=ended,
            )
        )
        first += ended["steps"] if ended else max((line["step"] for line in logs), default=0)
    return RunData(
        folder=folder,
        settings=settings,
        versions=_json(folder / "versions.json") or {},
        summary=_json(folder / "summary.json"),
        stages=stages,
    )


def correlation(points: Sequence[Point]) -> float | None:
    """Pearson's r; None for fewer than three points or no variance."""
    if len(points) < 3:
        return None
    mean_x, mean_y = fmean([x for x, _ in points]), fmean([y for _, y in points])
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    if not xx or not yy:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / (xx * yy) ** 0.5


def _span(starts: Sequence[int]) -> int:
    """Optimizer steps of a generation batch."""
    return starts[1] - starts[0] if len(starts) > 1 else 1


def _json(path: Path) -> Json | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
