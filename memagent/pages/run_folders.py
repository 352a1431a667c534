"""Folders that training runs leave, read into plain values: what was asked for, how far
it came, and its figures by update.

The files are somebody else's: lines of JSON that a run which is still going appends to,
perhaps cut off at the end. Whatever is missing or of another shape is left out, never
an error; only so much of a file is read. Steps are counted through all stages, so the
first update of the second stage follows the last of the first. A run is named by its
folder, which lies directly in the folder of runs; no other name leads anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final, cast

from memagent.pages.charts import Band, Point

Json = dict[str, Any]
Tested = tuple[float, float | None, float | None]
"""A mean, and the ends of its interval where it has one."""
MOST_BYTES: Final = 48 * 1024 * 1024
"""Most that is read of one file."""
_MOST_RUNS: Final = 500


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a run."""

    name: str
    first: int
    """Updates of all stages before."""
    sessions: int | None
    """How long its conversations are."""
    planned: int | None
    """Updates it was to make."""
    updates: int
    """Updates it has made."""
    ended: bool
    steps: Sequence[Json]
    """Lines of `steps.jsonl`, one for each batch of experience."""
    logs: Sequence[Json]
    """Lines of `log.jsonl` that tell of an update."""
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run."""

    name: str
    began: datetime
    """When its settings were written."""
    settings: Json
    versions: Json
    finished: bool
    stages: Sequence[Stage]
    validations: Sequence[tuple[int, Json]]
    """(update, record) through all stages."""
    tested: Json
    """Figures on held-out episodes by `policy@sessions`; {} before the end."""

    @property
    def updates(self) -> int:
        """Updates made."""
        return sum(stage.updates for stage in self.stages)

    @property
    def measure(self) -> str:
        """By which figure validations are compared."""
        return _text(_part(self.settings, "validation").get("measure")) or "f1"

    @property
    def borders(self) -> list[float]:
        """Where stages after the first begin."""
        return [float(stage.first) for stage in self.stages[1:]]

    def figure(self, name: str) -> list[Point]:
        """A figure of every batch of experience that has it, by the update that learned from it."""
        found: list[Point] = []
        for stage in self.stages:
            for line in stage.steps:
                value, step = finite(_part(line, "figures").get(name)), finite(line.get("step"))
                if value is not None and step is not None:
                    found.append((stage.first + step + 1, value))
        return found

    def logged(self, name: str) -> list[Point]:
        """A figure of every update that has it."""
        found: list[Point] = []
        for stage in self.stages:
            for line in stage.logs:
                value, step = finite(_part(line, "logs").get(name)), finite(line.get("step"))
                if value is not None and step is not None:
                    found.append((stage.first + step, value))
        return found

    def validated(self, name: str) -> tuple[list[Point], list[Band]]:
        """A figure's mean at every validation, and its 95 % interval over episodes by
        the normal approximation.
        """
        points: list[Point] = []
        bands: list[Band] = []
        for step, record in self.validations:
            each = [
                value
                for one in _dicts(record.get("episodes"))
                if (value := finite(one.get(name))) is not None
            ]
            if each:
                middle = fmean(each)
                points.append((float(step), middle))
                reach = 1.96 * stdev(each) / math.sqrt(len(each)) if len(each) > 2 else 0.0
                bands.append((float(step), middle - reach, middle + reach))
        return points, bands

    def asked(self, part: str, name: str) -> str:
        """A setting of a part as text; "" where there is none."""
        value = _part(self.settings, part).get(name)
        return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""

    def tests(self, names: Sequence[str]) -> list[tuple[str, str, dict[str, Tested]]]:
        """(policy, sessions, its figures by name) on held-out episodes, of the figures named."""
        found: list[tuple[str, str, dict[str, Tested]]] = []
        for key in self.tested:
            policy, _, sessions = key.rpartition("@")
            cells = {name: _tested(_part(_part(self.tested, key), name)) for name in names}
            known = {name: cell for name, cell in cells.items() if cell is not None}
            stage, _, which = policy.partition("/")
            found.append((f"{which} of {stage}" if which else "the start", sessions, known))
        return found

    def best(self) -> tuple[int, float] | None:
        """(update, value) of the validation with the best measure."""
        found = [
            (step, value)
            for step, record in self.validations
            if (value := finite(_part(record, "figures").get(self.measure))) is not None
        ]
        return max(found, key=lambda one: (one[1], -one[0])) if found else None


def runs_in(folder: Path) -> list[Run]:
    """The runs in a folder, newest first, without their figures by update; [] when
    there is no such folder.
    """
    found = [
        run
        for name in _names(folder)
        if (run := _run(folder / name, name, steps=False)) is not None
    ]
    return sorted(found, key=lambda run: (-run.began.timestamp(), run.name))


def read_run(folder: Path, name: str) -> Run | None:
    """One run with all its figures; None when the folder holds no run of that name."""
    return _run(folder / name, name, steps=True) if name in _names(folder) else None


def finite(value: object) -> float | None:
    """The value as a float if it is a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


# -- reading ---------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    """Folders directly below that hold settings; links are passed over, for they may lead out."""
    try:
        inside = sorted(
            one.name for one in folder.iterdir() if one.is_dir() and not one.is_symlink()
        )
    except OSError:
        return []
    return [name for name in inside if (folder / name / "settings.json").is_file()][:_MOST_RUNS]


def _run(home: Path, name: str, *, steps: bool) -> Run | None:
    settings = _object(home / "settings.json")
    try:
        began = datetime.fromtimestamp((home / "settings.json").stat().st_mtime, UTC)
    except OSError:
        return None
    stages = list(_stages(home, settings, steps=steps))
    firsts = {stage.name: stage.first for stage in stages}
    validations = [
        (firsts[stage] + int(step), line)
        for line in _lines(home / "validation.jsonl")
        if (stage := _text(line.get("stage"))) in firsts
        and (step := finite(line.get("step"))) is not None
    ]
    summary = _object(home / "summary.json")
    return Run(
        name=name,
        began=began,
        settings=settings,
        versions=_object(home / "versions.json"),
        finished=bool(summary),
        stages=stages,
        validations=validations,
        tested=_part(summary, "test"),
    )


def _stages(home: Path, settings: Json, *, steps: bool) -> Iterator[Stage]:
    first = 0
    for number, asked in enumerate(_dicts(settings.get("stage"))):
        place = home / f"stage{number}"
        if not place.is_dir():
            return
        ended = _object(place / "ended.json")
        made, planned = finite(ended.get("steps")), finite(asked.get("steps"))
        logs = [] if made is not None and not steps else list(_lines(place / "log.jsonl"))
        logs = [line for line in logs if finite(_part(line, "logs").get("loss")) is not None]
        counted = (
            made
            if made is not None
            else max((finite(line.get("step")) or 0.0 for line in logs), default=0.0)
        )
        sessions = finite(asked.get("sessions"))
        yield Stage(
            name=place.name,
            first=first,
            sessions=int(sessions) if sessions is not None else None,
            planned=int(planned) if planned is not None else None,
            updates=int(counted),
            ended=bool(ended),
            steps=list(_lines(place / "steps.jsonl")) if steps else [],
            logs=logs if steps else [],
            seconds=finite(ended.get("seconds")),
        )
        first += int(counted)


def _object(path: Path) -> Json:
    """The object in a file; {} where there is none."""
    try:
        return _dict(json.loads(_read(path)))
    except (OSError, ValueError, RecursionError):
        return {}


def _lines(path: Path) -> Iterator[Json]:
    """The objects of a file of lines; what comes after a line that cannot be read is left out."""
    try:
        text = _read(path)
    except OSError:
        return
    for line in text.splitlines():
        try:
            yield _dict(json.loads(line))
        except (ValueError, RecursionError):
            return


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")


# -- shapes ----------------------------------------------------------------------------


def _dict(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> list[Json]:
    return (
        [cast("Json", one) for one in cast("list[object]", value) if isinstance(one, dict)]
        if isinstance(value, list)
        else []
    )


def _part(value: Mapping[str, Any], name: str) -> Json:
    return _dict(value.get(name))


def _tested(figure: Json) -> Tested | None:
    mean = finite(figure.get("mean"))
    if mean is None:
        return None
    ends = figure.get("interval")
    pair = [finite(end) for end in cast("list[object]", ends)] if isinstance(ends, list) else []
    return (mean, pair[0], pair[1]) if len(pair) == 2 else (mean, None, None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
