"""Folders that training runs leave, read into plain values: settings, progress, figures.

A run that is still going appends to its files, and others may have written them. What is
missing, cut off or of another shape is left out, never an error. Steps are counted
through all stages, so the first update of the second stage follows the last of the first.

The charts of a training run that the dashboard and the run's own report share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final, cast

from memagent.pages.charts import (
    Axes,
    Band,
    Chart,
    Curve,
    Figure,
    Point,
    column_chart,
    line_chart,
    number,
    share,
)

Json = dict[str, Any]
Interval = Callable[[Sequence[float]], tuple[float, float] | None]
MOST_BYTES: Final = 48 * 1024 * 1024
"""The most that the dashboard reads of one file."""
_MOST_RUNS: Final = 500


def normal_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by the normal approximation."""
    reach = 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 2 else 0.0
    return fmean(values) - reach, fmean(values) + reach


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a run."""

    name: str
    first: int
    """Updates of all stages before."""
    sessions: int | None
    planned: int | None
    updates: int
    ended: bool
    steps: Sequence[Json]
    """Lines of `steps.jsonl`, one for each batch of experience."""
    logs: Sequence[Json]
    """Lines of `log.jsonl` with a loss, one for each update."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run."""

    name: str
    began: datetime
    """The time at which its settings were written."""
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
        """The figure by which validations are compared."""
        return self.setting("validation", "measure") or "f1"

    @property
    def borders(self) -> list[float]:
        """Updates at which the stages after the first begin."""
        return [float(stage.first) for stage in self.stages[1:]]

    @property
    def steps(self) -> list[tuple[float, Json]]:
        """(update that learned from it, record) of every batch of experience."""
        return [
            (stage.first + line["step"] + 1.0, line)
            for stage in self.stages
            for line in stage.steps
        ]

    @property
    def subject(self) -> str:
        """The model, design, world and stages, in a few words."""
        size, world = self.setting("model", "size"), self.setting("environment", "kind")
        level = self.setting("environment", "level") if world == "synthetic" else ""
        lengths = [str(stage.sessions) for stage in self.stages if stage.sessions is not None]
        words = (
            self.setting("model", "path") or (f"{size} from scratch" if size else ""),
            self.setting("agent", "design"),
            f"{world} {level}".strip(),
            f"{' then '.join(lengths)} sessions" if lengths else "",
        )
        return ", ".join(filter(None, words))

    def figure(self, name: str) -> list[Point]:
        """Return a figure of every batch of experience that has it, by update."""
        return _series(((step, _part(line, "figures")) for step, line in self.steps), name)

    def logged(self, name: str) -> list[Point]:
        """Return a figure of every update that has it."""
        lines = [(stage.first, line) for stage in self.stages for line in stage.logs]
        return _series(
            ((first + float(line["step"]), _part(line, "logs")) for first, line in lines), name
        )

    def validated(
        self, name: str, interval: Interval = normal_interval
    ) -> tuple[list[Point], list[Band]]:
        """Return a figure's mean at every validation, and its interval over episodes."""
        points: list[Point] = []
        bands: list[Band] = []
        for step, record in self.validations:
            values = [y for _, y in _series(enumerate(_dicts(record.get("episodes"))), name)]
            if values:
                points.append((step, fmean(values)))
                ends = interval(values)
                bands += [(step, *ends)] if ends is not None else []
        return points, bands

    def setting(self, part: str, name: str) -> str:
        """Return a setting of a part as text; "" where there is none."""
        value = _part(self.settings, part).get(name)
        return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""

    def tests(self, names: Sequence[str]) -> list[tuple[str, str, dict[str, Figure]]]:
        """Return (policy, sessions, figures by name) of every test on held-out episodes."""
        tests: list[tuple[str, str, dict[str, Figure]]] = []
        for key in self.tested:
            policy, _, sessions = key.rpartition("@")
            stage, _, which = policy.partition("/")
            cells = {name: _tested(_part(_part(self.tested, key), name)) for name in names}
            known = {name: cell for name, cell in cells.items() if cell is not None}
            tests.append((f"{which} of {stage}" if which else "the start", sessions, known))
        return tests

    def best(self) -> tuple[int, float, Json] | None:
        """Return (update, measure, record) of the best validation, of equals the first."""
        candidates = [
            (step, value, record)
            for step, record in self.validations
            if (value := finite(_part(record, "figures").get(self.measure))) is not None
        ]
        return max(candidates, key=lambda entry: (entry[1], -entry[0]), default=None)


def runs_in(folder: Path) -> list[Run]:
    """Return the runs in a folder, newest first, without their figures by update.

    A folder that does not exist holds none.
    """
    runs = [read_run(folder / name, most_bytes=MOST_BYTES, steps=False) for name in _names(folder)]
    return sorted(filter(None, runs), key=lambda run: (-run.began.timestamp(), run.name))


def named_run(folder: Path, name: str) -> Run | None:
    """Return the run of that name in a folder of runs; no other name leads anywhere."""
    return read_run(folder / name, most_bytes=MOST_BYTES) if name in _names(folder) else None


def read_run(home: Path, *, most_bytes: int = -1, steps: bool = True) -> Run | None:
    """Read a run's folder, of each file at most `most_bytes`; None when it holds no settings.

    Without `steps` the figures by update are left out.
    """
    try:
        began = datetime.fromtimestamp((home / "settings.json").stat().st_mtime, UTC)
    except OSError:
        return None
    settings = _object(home / "settings.json", most_bytes)
    stages = list(_stages(home, settings, most_bytes, steps=steps))
    firsts = {stage.name: stage.first for stage in stages}
    summary = _object(home / "summary.json", most_bytes)
    return Run(
        name=home.resolve().name,
        began=began,
        settings=settings,
        versions=_object(home / "versions.json", most_bytes),
        finished=bool(summary),
        stages=stages,
        validations=[
            (firsts[stage] + int(step), line)
            for line in lines_of_file(home / "validation.jsonl", most_bytes=most_bytes)
            if (stage := str(line.get("stage"))) in firsts
            and (step := finite(line.get("step"))) is not None
        ],
        tested=_part(summary, "test"),
    )


def lines_of_file(path: Path, *, most_bytes: int = -1) -> list[Json]:
    """Return the JSON objects of a file of lines, up to the first line that cannot be read.

    A file that does not exist has none.
    """
    lines: list[Json] = []
    with suppress(OSError, ValueError, RecursionError):
        lines.extend(_dict(json.loads(line)) for line in _read(path, most_bytes).splitlines())
    return lines


def finite(value: object) -> float | None:
    """Return the value as a float if it is a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


# -- reading ---------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    """Return the folders directly below that hold settings, without links, which may lead out."""
    try:
        inside = sorted(
            path.name
            for path in folder.iterdir()
            if path.is_dir() and not path.is_symlink() and (path / "settings.json").is_file()
        )
    except OSError:
        return []
    return inside[:_MOST_RUNS]


def _stages(home: Path, settings: Json, most_bytes: int, *, steps: bool) -> Iterator[Stage]:
    first = 0
    for at, planned in enumerate(_dicts(settings.get("stage"))):
        place = home / f"stage{at}"
        if not place.is_dir():
            return
        ended = _object(place / "ended.json", most_bytes)
        logs = _stepped(place / "log.jsonl", most_bytes) if steps or not ended else []
        logs = [line for line in logs if finite(_part(line, "logs").get("loss")) is not None]
        logged = max((int(line["step"]) for line in logs), default=0)
        updates = _whole(ended.get("steps"))
        updates = logged if updates is None else updates
        yield Stage(
            name=place.name,
            first=first,
            sessions=_whole(planned.get("sessions")),
            planned=_whole(planned.get("steps")),
            updates=updates,
            ended=bool(ended),
            steps=_stepped(place / "steps.jsonl", most_bytes) if steps else (),
            logs=logs if steps else (),
        )
        first += updates


def _stepped(path: Path, most_bytes: int) -> list[Json]:
    """Return the lines of a file that name their step."""
    lines = lines_of_file(path, most_bytes=most_bytes)
    return [line for line in lines if finite(line.get("step")) is not None]


def _object(path: Path, most_bytes: int) -> Json:
    """Return the object in a file; {} where there is none."""
    with suppress(OSError, ValueError, RecursionError):
        return _dict(json.loads(_read(path, most_bytes)))
    return {}


def _read(path: Path, most_bytes: int) -> str:
    with path.open("rb") as file:
        return file.read(most_bytes).decode("utf-8", "replace")


# -- shapes ----------------------------------------------------------------------------


def _series(rows: Iterable[tuple[float, Json]], name: str) -> list[Point]:
    """Return (x, value) of the rows whose figure is a finite number."""
    return [(x, value) for x, row in rows if (value := finite(row.get(name))) is not None]


def _dict(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> list[Json]:
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Json", entry) for entry in entries if isinstance(entry, dict)]


def _part(value: Mapping[str, Any], name: str) -> Json:
    return _dict(value.get(name))


def _whole(value: object) -> int | None:
    size = finite(value)
    return int(size) if size is not None else None


def _tested(figure: Json) -> Figure | None:
    mean, ends = finite(figure.get("mean")), figure.get("interval")
    pair = [finite(end) for end in cast("list[object]", ends)] if isinstance(ends, list) else []
    low, high = pair if len(pair) == 2 else (None, None)
    return (mean, low, high) if mean is not None else None


_VALIDATED: Final = (
    ("f1", "F1", "answers from memory, against the gold answers", number),
    ("overwritten", "Overwritten facts", "share of revised facts answered as they are now", share),
    ("lost", "Lost evidence", "M-Fail: gold turns that no memory cites; less is better", share),
    ("memory_share", "Memory share", "tokens of memory by tokens of dialogue", share),
)
_BRANCHES: Final = ("global", "local", "answer")
# The ops with their tones: red takes away, grey leaves things as they are.
_OPS: Final = {"add": 1, "update": 0, "delete": 3, "noop": 5, "rejected": 2}
_LOGGED: Final = (
    ("loss", "Loss", ""),
    ("grad_norm", "Gradient norm", "before clipping"),
    ("kl", "KL", "to where the run began"),
    ("entropy", "Entropy", "of the replies, nats a token"),
    ("clip_ratio/region_mean", "Clipped", "share of rows whose ratio is clipped"),
    ("step_time", "Seconds an update", ""),
    ("tokens/cut", "Cut replies", "share that ran into the length limit"),
)


def validation_charts(
    run: Run, interval: Interval = normal_interval, *, control: Run | None = None
) -> list[Chart]:
    """Draw the figures of every validation, with a ring around the best one.

    A control's curves stand beside them, on the same scale, in grey.
    """
    best = run.best()
    ring = best[0] if best is not None else None
    charts: list[Chart] = []
    for tone, (name, title, note, format_y) in enumerate(_VALIDATED):
        points, bands = run.validated(name, interval)
        curves = [Curve(name=title, points=points, bands=bands, tone=tone, ring=ring)]
        if control is not None:
            points, bands = control.validated(name, interval)
            curves.append(
                Curve(name=f"control: {control.name}", points=points, bands=bands, tone=5)
            )
        axes = Axes(low=0.0, borders=run.borders, format_y=format_y)
        charts.append(line_chart(title, curves, axes, note=note))
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
