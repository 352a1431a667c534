"""Curves over steps as values that a template can draw: places in a picture of 360 by
220 units, ticks with their labels, and words.

Nothing here writes markup. Values that are not finite are left out, and long curves are
thinned to means over equal stretches, so a picture stays small however long a run was.
What a picture shows is also told in words (`Chart.told`), for readers who do not see
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Final

Point = tuple[float, float]
Band = tuple[float, float, float]
"""(x, low, high)"""
WIDTH: Final = 360
HEIGHT: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 12, 40
_MOST_POINTS: Final = 240
_MOST_DOTS: Final = 16


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line: points in order of x, and an interval around each where it is known."""

    name: str
    points: Sequence[Point]
    bands: Sequence[Band] = ()
    tone: int = 0
    """Which of the six colours of charts."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A curve at its places."""

    name: str
    tone: int
    path: str
    """Points of a polyline."""
    band: str
    """Points of a polygon; "" without intervals."""
    dots: tuple[tuple[float, float, str], ...]
    """(x, y, what it says); few, or none."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A picture of curves."""

    title: str
    note: str
    across: str
    """What x is."""
    curves: tuple[Drawn, ...] = ()
    levels: tuple[tuple[float, str], ...] = ()
    """(y, label) of the horizontal lines."""
    steps: tuple[tuple[float, str], ...] = ()
    """(x, label) below."""
    borders: tuple[float, ...] = ()
    """x of the dashed lines."""
    told: str = ""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.curves


Shown = Callable[[float], str]
"""A value as text."""


def number(value: float) -> str:
    """A value in few letters: `0.25`, `12`, `1.2k`, `3M`, `2e-05`."""
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.001:
        return f"{value:.0e}"
    for limit, sign in ((1_000_000, "M"), (1_000, "k")):
        if size >= limit:
            return f"{value / limit:.1f}".removesuffix(".0") + sign
    return f"{value:.3g}"


def share(value: float) -> str:
    """A value as per cent."""
    return f"{100 * value:.0f} %"


def chart(
    title: str,
    curves: Sequence[Curve],
    *,
    note: str = "",
    across: str = "update",
    low: float | None = None,
    high: float | None = None,
    shown: Shown = number,
    borders: Sequence[float] = (),
) -> Chart:
    """Curves in one picture; without `low` and `high` the values themselves bound it.

    Curves without a finite value are left out.
    """
    kept = [one for one in map(_finite, curves) if one.points]
    if not kept:
        return Chart(title=title, note=note, across=across, told="no figures yet")
    xs = [x for curve in kept for x, _ in curve.points]
    ys = [y for curve in kept for _, y in curve.points] + [
        y for c in kept for _, *ends in c.bands for y in ends
    ]
    frame = _Frame.around(xs, ys, low=low, high=high)
    return Chart(
        title=title,
        note=note,
        across=across,
        curves=tuple(_drawn(curve, frame, shown) for curve in kept),
        levels=tuple((frame.y(value), shown(value)) for value in ticks(frame.y0, frame.y1)),
        steps=tuple(
            (frame.x(value), number(value))
            for value in ticks(frame.x0, frame.x1)
            if value == round(value)
        ),
        borders=tuple(frame.x(x) for x in borders if frame.x0 < x < frame.x1),
        told="; ".join(_told(curve, across, shown) for curve in kept),
    )


def ticks(low: float, high: float, *, wanted: int = 4) -> list[float]:
    """Round values from `low` to `high`, about `wanted` of them; `low` alone where
    there is no room between.
    """
    if not high > low:
        return [low]
    rough = (high - low) / wanted
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(
        factor * unit for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * unit >= rough * 0.999
    )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(at * step, 12) + 0.0 for at in range(first, last + 1)]


def thinned(points: Sequence[Point], *, most: int = _MOST_POINTS) -> list[Point]:
    """At most `most` points: means over equal stretches of the list."""
    if len(points) <= most:
        return list(points)
    cuts = [round(at * len(points) / most) for at in range(most + 1)]
    parts = [points[start:end] for start, end in pairwise(cuts) if end > start]
    return [(fmean(x for x, _ in part), fmean(y for _, y in part)) for part in parts]


# -- places ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Where values lie in the picture."""

    x0: float
    x1: float
    y0: float
    y1: float
    wide: float = field(default=WIDTH - _LEFT - _RIGHT)
    tall: float = field(default=HEIGHT - _TOP - _BOTTOM)

    @classmethod
    def around(
        cls, xs: Sequence[float], ys: Sequence[float], *, low: float | None, high: float | None
    ) -> _Frame:
        y0, y1 = min(ys), max(ys)
        room = (y1 - y0) * 0.06 or abs(y1) * 0.1 or 0.5
        bottom = y0 - room if low is None else min(low, y0)
        top = y1 + room if high is None else max(high, y1)
        return cls(x0=min(xs), x1=max(xs), y0=bottom, y1=top)

    def x(self, value: float) -> float:
        if self.x1 == self.x0:
            return _LEFT + self.wide / 2
        return round(_LEFT + self.wide * (value - self.x0) / (self.x1 - self.x0), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - _BOTTOM - self.tall * (value - self.y0) / (self.y1 - self.y0), 1)


def _finite(curve: Curve) -> Curve:
    points = [(x, y) for x, y in curve.points if math.isfinite(x) and math.isfinite(y)]
    bands = [band for band in curve.bands if all(map(math.isfinite, band))]
    return Curve(
        name=curve.name, points=thinned(points), bands=bands[:_MOST_POINTS], tone=curve.tone
    )


def _drawn(curve: Curve, frame: _Frame, shown: Shown) -> Drawn:
    upper = [f"{frame.x(x)},{frame.y(top)}" for x, _, top in curve.bands]
    lower = [f"{frame.x(x)},{frame.y(bottom)}" for x, bottom, _ in reversed(curve.bands)]
    dotted = curve.points if len(curve.points) <= _MOST_DOTS else ()
    return Drawn(
        name=curve.name,
        tone=curve.tone,
        path=" ".join(f"{frame.x(x)},{frame.y(y)}" for x, y in curve.points),
        band=" ".join(upper + lower) if len(curve.bands) > 1 else "",
        dots=tuple(
            (frame.x(x), frame.y(y), f"{curve.name}, {number(x)}: {shown(y)}") for x, y in dotted
        ),
    )


def _told(curve: Curve, across: str, shown: Shown) -> str:
    (x0, y0), (x1, y1) = curve.points[0], curve.points[-1]
    if x0 == x1:
        return f"{curve.name}: {shown(y0)} at {across} {number(x0)}"
    values = [y for _, y in curve.points]
    ends = f"{shown(y0)} at {across} {number(x0)}, {shown(y1)} at {number(x1)}"
    return f"{curve.name}: {ends}, between {shown(min(values))} and {shown(max(values))}"
