"""Axes along time for charts: round moments, their words, and equal stretches.

Moments are epoch seconds, in UTC. A step is a number of seconds, or of months when it is
longer than four weeks: months and years differ in length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from memagent.pages.charts import Axes

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_MONTH_S: Final = 30.4 * _DAY
_STEPS: Final = (
    *(1, 5, 15, 30),
    *(count * _MINUTE for count in (1, 5, 15, 30)),
    *(count * _HOUR for count in (1, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14)),
)
_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1_200)


def moments(first: float, last: float, *, most: int) -> list[float]:
    """Return the starts of at most `most` equal stretches that cover first to last.

    They begin at round moments: at full minutes, at midnight, on the first of a month.
    """
    for step in _STEPS:
        start = first // step * step
        if (last - start) // step + 1 <= most:
            count = int((last - start) // step) + 1
            return [start + place * step for place in range(count)]
    for months in _MONTHS:
        starts = list(_month_starts(first, last, months))
        if len(starts) <= most:
            return starts
    return [first]


def _month_starts(first: float, last: float, months: int) -> Iterator[float]:
    at = datetime.fromtimestamp(first, UTC)
    place = (at.year * 12 + at.month - 1) // months * months
    while place // 12 <= 9_999:
        start = datetime(max(place // 12, 1), place % 12 + 1, 1, tzinfo=UTC).timestamp()
        if start > last:
            return
        yield start
        place += months


def time_axes(first: float, last: float, axes: Axes | None = None) -> Axes:
    """Return axes whose x are moments from first to last, labelled at round moments."""
    places = _labels(first, last)
    step = places[1] - places[0] if len(places) > 1 else max(last - first, 1.0)
    same_day = first // _DAY == last // _DAY
    pattern = _pattern(step, same_day=same_day)
    across = f"{_in_words(first, '%d %b %Y')}, UTC" if same_day else "UTC"
    format_x = partial(_in_words, pattern=pattern)
    return replace(axes or Axes(), across=across, places=places, format_x=format_x)


def _labels(first: float, last: float) -> list[float]:
    """Return at least two round moments from first to last, where there are so many."""
    for most in (5, 8, 12):
        places = [place for place in moments(first, last, most=most) if place >= first]
        if len(places) > 1:
            return places
    return [first]


def _in_words(moment: float, pattern: str) -> str:
    words = f"{datetime.fromtimestamp(moment, UTC):{pattern}}"
    return words.removeprefix("0") if pattern.startswith("%d") else words


def _pattern(step: float, *, same_day: bool) -> str:
    if step >= 12 * _MONTH_S:
        return "%Y"
    if step >= _MONTH_S * 0.9:
        return "%b %Y"
    if step >= _DAY:
        return "%d %b"
    clock = "%H:%M:%S" if step < _MINUTE else "%H:%M"
    return clock if same_day else f"%d %b {clock}"
