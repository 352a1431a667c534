"""Calendar arithmetic behind the time grammar.

Every function works on civil dates and gives a `Reading`: a half-open span with a
granularity and whether an anchor was needed. Days are UTC days, weeks run Monday to
Sunday, seasons are the meteorological ones of the northern hemisphere (winter 2022 is
December 2022 to February 2023). The surprise: an offset counts calendar units, not
durations, so "two weeks ago" is the whole week two weeks back and "a year ago" is the
whole previous year, the way people mean it in talk. Dates outside years 1..9999 raise
`OverflowError` or `ValueError`; the caller turns both into "not a time".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Literal

from memagent.core.records import Granularity

Unit = Literal[
    "minute", "hour", "day", "week", "weekend", "month", "quarter", "season", "year", "decade"
]
Part = Literal["early", "mid", "late"]

_GRANULARITY: dict[Unit, Granularity] = {
    "minute": Granularity.MINUTE,
    "hour": Granularity.HOUR,
    "day": Granularity.DAY,
    "week": Granularity.WEEK,
    "weekend": Granularity.WEEKEND,
    "month": Granularity.MONTH,
    "quarter": Granularity.RANGE,
    "season": Granularity.SEASON,
    "year": Granularity.YEAR,
    "decade": Granularity.DECADE,
}
_MONTHS_IN = {"month": 1, "quarter": 3, "season": 3, "half": 6, "year": 12, "decade": 120}
SEASON_MONTHS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""First month of each season."""
NEAR_FUTURE = timedelta(days=60)
"""A date told without its year lies in the future only if it is at most this far ahead."""
DAY = timedelta(days=1)


class Lean(Enum):
    """The side on which an incomplete date lies: the past in reports, the future in plans."""

    PAST = "past"
    FUTURE = "future"
    OPEN = "open"
    """Neither is sure; a reading is then the likelier side."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The meaning of a phrase: `[start, end)`; an open bound is `None`.

    `relative` says whether the anchor was needed.
    """

    start: datetime | None
    end: datetime | None
    granularity: Granularity
    relative: bool = False

    @property
    def first_day(self) -> date:
        """First day of a span with a start."""
        if self.start is None:
            raise ValueError("the span has no start")
        return self.start.date()

    @property
    def last_day(self) -> date:
        """Last day that a span with an end touches."""
        if self.end is None:
            raise ValueError("the span has no end")
        return (self.end - timedelta(microseconds=1)).date()


def midnight(day: date) -> datetime:
    """Return the UTC moment at which a day begins."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def days(first: date, stop: date, granularity: Granularity, *, relative: bool) -> Reading:
    """Return the reading from `first` up to, not including, `stop`."""
    return Reading(midnight(first), midnight(stop), granularity, relative)


def one_day(day: date, *, relative: bool) -> Reading:
    """Return the reading of one day."""
    return days(day, day + DAY, Granularity.DAY, relative=relative)


def add_months(day: date, months: int) -> date:
    """Return the day `months` later, or the last day of that month when it is shorter."""
    years, month0 = divmod(day.month - 1 + months, 12)
    first = date(day.year + years, month0 + 1, 1)
    if day.day <= 28:
        return first.replace(day=day.day)
    stop = date(first.year + 1, 1, 1) if first.month == 12 else first.replace(month=first.month + 1)
    return first.replace(day=min(day.day, (stop - first).days))


def move(day: date, count: int, unit: Unit) -> date:
    """Return the day `count` units later, as a duration: no rounding to calendar units."""
    if unit in _MONTHS_IN:
        return add_months(day, count * _MONTHS_IN[unit])
    return day + timedelta(days=count * (7 if unit in ("week", "weekend") else 1))


def bounds(day: date, unit: Unit, offset: int = 0) -> tuple[date, date]:
    """Return first and stop day of the calendar unit that holds `day`, moved by `offset` units."""
    month = day.replace(day=1)
    match unit:
        case "week":
            first = weekday_in_week(day, 0, offset)
        case "weekend":
            first = weekday_in_week(day, 5, offset)
            return first, first + 2 * DAY
        case "month":
            first = add_months(month, offset)
        case "quarter":
            first = add_months(month, -((day.month - 1) % 3) + 3 * offset)
        case "season":
            first = add_months(month, -(day.month % 3) + 3 * offset)
        case "year":
            first = date(day.year + offset, 1, 1)
        case "decade":
            first = date(day.year - day.year % 10 + 10 * offset, 1, 1)
        case _:
            first = day + timedelta(days=offset)
    return first, move(first, 1, unit)


def unit_reading(day: date, unit: Unit, offset: int = 0, *, relative: bool = True) -> Reading:
    """Return the calendar unit (day or longer) that holds `day`, moved by `offset` units."""
    first, stop = bounds(day, unit, offset)
    return days(first, stop, _GRANULARITY[unit], relative=relative)


def units_between(day: date, unit: Unit, low: int, high: int, *, relative: bool = True) -> Reading:
    """Return the stretch from the unit at offset `low` through the one at `high`.

    It is one unit when the two agree, else a RANGE.
    """
    if low == high:
        return unit_reading(day, unit, low, relative=relative)
    first, stop = bounds(day, unit, low)[0], bounds(day, unit, high)[1]
    return days(first, stop, Granularity.RANGE, relative=relative)


def clock_reading(moment: datetime, unit: Literal["minute", "hour"], *, relative: bool) -> Reading:
    """Return the minute or hour that holds a moment."""
    minute, length = (0, 60) if unit == "hour" else (moment.minute, 1)
    start = moment.replace(minute=minute, second=0, microsecond=0)
    return Reading(start, start + timedelta(minutes=length), _GRANULARITY[unit], relative)


def weekday_before(day: date, weekday: int) -> date:
    """Return the latest such weekday (Monday is 0) strictly before `day`."""
    return day - timedelta(days=(day.weekday() - weekday - 1) % 7 + 1)


def weekday_after(day: date, weekday: int) -> date:
    """Return the earliest such weekday strictly after `day`."""
    return day + timedelta(days=(weekday - day.weekday() - 1) % 7 + 1)


def weekday_in_week(day: date, weekday: int, offset: int = 0) -> date:
    """Return that weekday of the week (from Monday) of `day`, moved by `offset` weeks."""
    return day + timedelta(days=weekday - day.weekday(), weeks=offset)


def pick_year(on: Callable[[int], date], today: date, lean: Lean) -> date:
    """Return the date of a yearly day that a speaker means on `today`.

    That is the coming one in plans and the latest in reports; where neither is sure, the
    nearest that is not far ahead.
    """
    options = [on(today.year + shift) for shift in (-1, 0, 1)]
    past = max(day for day in options if day <= today)
    future = min(day for day in options if day >= today)
    if lean is Lean.FUTURE:
        return future
    if lean is Lean.PAST:
        return past
    return future if future - today <= min(NEAR_FUTURE, today - past) else past


def season_reading(name: str, year: int, *, relative: bool) -> Reading:
    """Return the season that begins in `year`."""
    first = date(year, SEASON_MONTHS[name], 1)
    return days(first, add_months(first, 3), Granularity.SEASON, relative=relative)


def _nth_weekday(year: int, month: int, weekday: int, nth: int) -> date:
    return weekday_after(date(year, month, 1) - DAY, weekday) + timedelta(weeks=nth - 1)


def _easter(year: int) -> date:
    from dateutil.easter import easter  # lazy: only phrases that name Easter pay for the import

    return easter(year)


HOLIDAYS: dict[str, Callable[[int], date]] = {
    r"(?:christmas|xmas)\s+eve": lambda year: date(year, 12, 24),
    r"(?:christmas|xmas)(?:\s+day)?": lambda year: date(year, 12, 25),
    r"boxing\s+day": lambda year: date(year, 12, 26),
    r"new\s+year['’]?s?\s+eve": lambda year: date(year, 12, 31),
    r"new\s+year(?:['’]?s\s+day|['’]s)": lambda year: date(year, 1, 1),
    r"valentine['’]?s(?:\s+day)?": lambda year: date(year, 2, 14),
    r"(?:st\.?|saint)\s+patrick['’]?s(?:\s+day)?": lambda year: date(year, 3, 17),
    r"halloween": lambda year: date(year, 10, 31),
    r"thanksgiving(?:\s+day)?": lambda year: _nth_weekday(year, 11, 3, 4),
    r"mother['’]?s['’]?\s+day": lambda year: _nth_weekday(year, 5, 6, 2),
    r"father['’]?s['’]?\s+day": lambda year: _nth_weekday(year, 6, 6, 3),
    r"labou?r\s+day": lambda year: _nth_weekday(year, 9, 0, 1),
    r"memorial\s+day": lambda year: weekday_before(date(year, 6, 1), 0),
    r"good\s+friday": lambda year: _easter(year) - 2 * DAY,
    r"easter\s+monday": lambda year: _easter(year) + DAY,
    r"easter(?:\s+sunday)?": lambda year: _easter(year),
}
"""Date in a given year of each named day, keyed by a regular expression of its names; US
rules where countries differ.
"""

_YEARS_OF_PART: dict[Part, tuple[int, int]] = {"early": (0, 4), "mid": (3, 7), "late": (6, 10)}
_DAYS_OF_PART: dict[Part, tuple[int, int]] = {"early": (0, 2), "mid": (2, 4), "late": (4, 7)}


def part_of(whole: Reading, part: Part) -> Reading | None:
    """Return the early, middle or late third of a month, season, year, decade or week.

    It is a RANGE; `None` for anything else.
    """
    first, stop = whole.first_day, whole.last_day + DAY
    third = {"early": 0, "mid": 1, "late": 2}[part]
    match whole.granularity:
        case Granularity.MONTH:
            low = first + timedelta(days=10 * third)
            high = stop if part == "late" else low + timedelta(days=10)
        case Granularity.SEASON:
            low, high = add_months(first, third), add_months(first, third + 1)
        case Granularity.YEAR:
            low, high = add_months(first, 4 * third), add_months(first, 4 * third + 4)
        case Granularity.DECADE:
            low, high = (add_months(first, 12 * years) for years in _YEARS_OF_PART[part])
        case Granularity.WEEK:
            low, high = (first + timedelta(days=count) for count in _DAYS_OF_PART[part])
        case _:
            return None
    return days(low, high, Granularity.RANGE, relative=whole.relative)


def nth_of(whole: Reading, nth: int, what: Unit | Literal["half"] | int) -> Reading | None:
    """Return the `nth` part (from 1; -1 is the last) of a longer span.

    `what` is a day, week, weekend, weekday (an int, Monday 0), month, quarter or half.
    Weeks of a month are its days 1-7, 8-14 and so on; the last week is its last seven
    days. `None` when there is no such part.
    """
    first, stop = whole.first_day, whole.last_day + DAY
    match what:
        case "day":
            low = stop - DAY if nth < 0 else first + timedelta(days=nth - 1)
            found = one_day(low, relative=whole.relative)
        case "week":
            low = stop - timedelta(weeks=1) if nth < 0 else first + timedelta(weeks=nth - 1)
            high = min(low + timedelta(weeks=1), stop)
            found = days(low, high, Granularity.WEEK, relative=whole.relative)
        case "weekend" | int():
            weekday = 5 if what == "weekend" else what
            if nth < 0:
                low = weekday_before(stop, weekday)
            else:
                low = weekday_after(first - DAY, weekday) + timedelta(weeks=nth - 1)
            unit: Unit = "weekend" if what == "weekend" else "day"
            found = unit_reading(low, unit, relative=whole.relative)
            return found if first <= low < stop else None
        case "half" if whole.granularity is Granularity.MONTH and nth in (1, 2, -1):
            middle = first + timedelta(days=15)
            low, high = (first, middle) if nth == 1 else (middle, stop)
            found = days(low, high, Granularity.RANGE, relative=whole.relative)
        case "half" | "quarter" | "month" if whole.granularity is Granularity.YEAR:
            months = _MONTHS_IN[what]
            low = add_months(stop if nth < 0 else first, months * (nth if nth < 0 else nth - 1))
            granularity = Granularity.MONTH if what == "month" else Granularity.RANGE
            found = days(low, add_months(low, months), granularity, relative=whole.relative)
        case _:
            return None
    return found if first <= found.first_day and found.last_day < stop else None
