"""Answers that follow from the days of some events, whoever remembers those days. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Final

from environments.worlds.language.days import Calendar, count_answers, day_text

Moments = Sequence[tuple[str, date]]
"""(event, its day), in the order of the question."""


def solve(kind: str, moments: Moments, *, number: int, calendar: Calendar) -> tuple[str, ...]:
    """Return the accepted answers, the usual one first; () where the days do not decide.

    `number` is the place asked for, or the days by which the first event is put off.
    """
    if kind == "extract":
        return (", ".join(day_text(calendar, day) for _, day in moments),)
    if kind == "computation":
        count = abs((moments[0][1] - moments[1][1]).days)
        return tuple(
            dict.fromkeys(
                f"{text}{unit}" for unit in ("", " days") for text in count_answers(calendar, count)
            )
        )
    return _SOLVERS[kind](moments, number)


def _in_order(moments: Moments) -> list[str]:
    return [name for name, _ in sorted(moments, key=lambda moment: moment[1])]


def _longer(moments: Moments, _: int) -> tuple[str, ...]:
    first, last = (abs((one[1] - other[1]).days) for one, other in (moments[:2], moments[2:]))
    return () if first == last else ("the first two" if first > last else "the last two",)


def _first(moments: Moments, _: int) -> tuple[str, ...]:
    return (_in_order(moments)[0],)


def _at_place(moments: Moments, number: int) -> tuple[str, ...]:
    return (_in_order(moments)[number - 1],)


def _next(moments: Moments, _: int) -> tuple[str, ...]:
    order = _in_order(moments)
    place = order.index(moments[-1][0]) + 1
    return (order[place],) if place < len(order) else ()


def _timeline(moments: Moments, _: int) -> tuple[str, ...]:
    order = ", ".join(_in_order(moments))
    return (order, " and ".join(order.rsplit(", ", 1)))


def _put_off(moments: Moments, number: int) -> tuple[str, ...]:
    (name, day), *others = moments
    moved = [(name, day + timedelta(number)), *others]
    days = {day for _, day in moved}
    return _first(moved, 0) if len(days) == len(moved) else ()


_SOLVERS: Final[Mapping[str, Callable[[Moments, int], tuple[str, ...]]]] = {
    "duration_compare": _longer,
    "order_compare": _first,
    "order_reasoning": _at_place,
    "relative_reasoning": _next,
    "timeline": _timeline,
    "counterfactual": _put_off,
}
