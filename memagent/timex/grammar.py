"""The atoms of the time grammar: every phrase that names a time by itself, with how to
read it against an anchor.

An atom is a regular expression, a reader that turns its match into a `Reading`, and a
guard that says what the match is worth in free text, where "may" is mostly a verb and
"2000" mostly a number. `temporal` joins atoms ("from X to Y") and puts operators before
them ("the week before X", "since X"). Patterns are written in lower case and matched
against lowered text, three times as fast as matching without regard to case; guards see
the text as written. The surprise: patterns are written once with named groups and used
twice, alone for reading and, with the names stripped, inside one compiled alternation
for scanning. Among the patterns that match at a place the longest readable one wins, so
their order means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from memagent.core.records import Granularity
from memagent.timex import calendar as cal
from memagent.timex import vocabulary as words
from memagent.timex.calendar import Lean, Reading
from memagent.timex.vocabulary import Context, Match, told_year

_TURN = {"last": -1, "this": 0, "next": 1}
_DECADES: tuple[str, ...] = tuple(
    "twenties thirties forties fifties sixties seventies eighties nineties".split()
)


def _which(match: Match) -> str:
    return re.sub(r"\s+", " ", match.groupdict().get("which") or "")


# --- dates -----------------------------------------------------------------------------------------------------------


def _numeric(year: str, month: int, day: int) -> Reading:
    """Month and day are swapped when only that gives a date."""
    if month > 12 and day <= 12:
        month, day = day, month
    full = words.short_year(year) if len(year) == 2 else int(year)
    return cal.one_day(date(full, month, day), relative=False)


def _read_iso(match: Match, ctx: Context) -> Reading:
    return cal.one_day(date(int(match["y"]), int(match["a"]), int(match["b"])), relative=False)


def _read_month_first(match: Match, ctx: Context) -> Reading:
    return _numeric(match["y"], int(match["a"]), int(match["b"]))


def _read_day_first(match: Match, ctx: Context) -> Reading:
    return _numeric(match["y"], int(match["b"]), int(match["a"]))


def _read_day(match: Match, ctx: Context) -> Reading:
    month, day = words.month_number(match["m"]), int(match["d"])
    year, relative = told_year(match, ctx)
    if year is not None:
        return cal.one_day(date(year, month, day), relative=relative)

    def in_year(year: int) -> date:  # 29 February stands for the 28th while a year is being chosen
        return date(year, month, 28 if (month, day) == (2, 29) and year % 4 else day)

    name = match.groupdict().get("name")
    if name:  # the weekday tells the year
        fitting = (
            found
            for shift in (0, -1, 1)
            if (found := in_year(ctx.today.year + shift)).weekday() == words.weekday_number(name)
        )
        if found := next(fitting, None):
            return cal.one_day(found, relative=True)
    return cal.one_day(cal.pick_year(in_year, ctx.today, ctx.lean), relative=True)


def _read_days(match: Match, ctx: Context) -> Reading:
    first = _read_day(match, ctx)
    stop = first.first_day.replace(day=int(match["d2"])) + cal.DAY
    return cal.days(first.first_day, stop, Granularity.RANGE, relative=first.relative)


def _read_ordinal(match: Match, ctx: Context) -> Reading:
    day, here = int(match["d"]), ctx.today.replace(day=1)
    if match["which"]:
        return cal.one_day(
            cal.add_months(here, _TURN[match["which"]]).replace(day=day), relative=True
        )
    months = [cal.add_months(here, shift) for shift in (-2, -1, 0, 1, 2)]
    dates = [
        month + timedelta(day - 1)
        for month in months
        if (month + timedelta(day - 1)).month == month.month
    ]
    if ctx.lean is Lean.FUTURE:
        return cal.one_day(min(found for found in dates if found >= ctx.today), relative=True)
    return cal.one_day(max(found for found in dates if found <= ctx.today), relative=True)


def _read_holiday(match: Match, ctx: Context) -> Reading:
    on = next(day for names, day in cal.HOLIDAYS.items() if re.fullmatch(names, match["h"]))
    year, relative = told_year(match, ctx)
    if year is not None:
        return cal.one_day(on(year), relative=relative)
    today, which = ctx.today, _which(match)
    if which == "last":
        day = max(found for shift in (-1, 0) if (found := on(today.year + shift)) < today)
    elif which == "next":
        day = min(found for shift in (0, 1) if (found := on(today.year + shift)) > today)
    elif which == "this":
        day = on(today.year)
    else:
        day = cal.pick_year(on, today, ctx.lean)
    return cal.one_day(day, relative=True)


# --- months, seasons, years ------------------------------------------------------------------------------------------


def _read_month_number(match: Match, ctx: Context) -> Reading:
    return cal.unit_reading(date(int(match["y"]), int(match["a"]), 1), "month", relative=False)


def _read_month(match: Match, ctx: Context) -> Reading:
    year, relative = told_year(match, ctx)
    month = words.month_number(match["m"])
    if year is None:
        year = words.year_of_month(month, _which(match), ctx)
    return cal.unit_reading(date(year, month, 1), "month", relative=relative)


def _read_year(match: Match, ctx: Context) -> Reading:
    year = int(match["y"]) if match["y"] else words.short_year(match["yy"])
    return cal.unit_reading(date(year, 1, 1), "year", relative=False)


def _read_decade(match: Match, ctx: Context) -> Reading:
    if match["word"]:
        year = 1920 + 10 * _DECADES.index(match["word"])
    else:
        year = int(match["n"])
        if year < 100:
            year += 1900 if year >= 30 else 2000
    return cal.unit_reading(date(year, 1, 1), "decade", relative=False)


def _read_quarter(match: Match, ctx: Context) -> Reading:
    year, relative = told_year(match, ctx)
    first = date(ctx.today.year if year is None else year, 3 * int(match["q"]) - 2, 1)
    return cal.unit_reading(first, "quarter", relative=relative)


def _read_season(match: Match, ctx: Context) -> Reading:
    name, which = match["s"], _which(match)
    year, relative = told_year(match, ctx)
    if year is not None:
        return cal.season_reading(name, year, relative=relative)
    around = [
        cal.season_reading(name, ctx.today.year + shift, relative=True)
        for shift in (-2, -1, 0, 1, 2)
    ]
    past = [season for season in around if season.last_day < ctx.today]
    future = [season for season in around if season.first_day > ctx.today]
    if which in ("last", "past", "this past", "previous"):
        return past[-1]
    if which in ("next", "coming", "this coming"):
        return future[0]
    if len(past) + len(future) < len(around):  # it is that season now
        return around[len(past)]
    if which == "this":
        return next(season for season in around if season.first_day.year == ctx.today.year)
    return future[0] if ctx.lean is Lean.FUTURE else past[-1]


# --- relative phrases ------------------------------------------------------------------------------------------------


def _read_near_day(match: Match, ctx: Context) -> Reading:
    first = match[0].split()[-1 if match[0].endswith("today") else 0]
    return cal.unit_reading(
        ctx.today, "day", {"yesterday": -1, "last": -1, "tomorrow": 1}.get(first, 0)
    )


def _read_other_day(match: Match, ctx: Context) -> Reading:
    return cal.units_between(ctx.today, "day", -7, -1)


def _trailing(ctx: Context, count: int, unit: cal.Unit) -> Reading:
    """The last `count` units up to and with today, as a duration."""
    return cal.days(
        cal.move(ctx.today, -count, unit), ctx.today + cal.DAY, Granularity.RANGE, relative=True
    )


def _read_unit(match: Match, ctx: Context) -> Reading:
    unit, times = words.unit_named(match["u"])
    which = _which(match)
    back = which in ("last", "past", "this past", "previous")
    if (
        back
        and which != "previous"
        and unit != "weekend"
        and (match["the"] or which == "this past")
    ):
        return _trailing(ctx, times, unit)
    offset = (
        -1
        if back
        else 0
        if which == "this" or (which == "this coming" and unit == "weekend")
        else 1
    )
    return cal.unit_reading(ctx.today, unit, offset * times)


def _read_rest_of_unit(match: Match, ctx: Context) -> Reading:
    first, stop = cal.bounds(ctx.today, words.unit_named(match["u"])[0])
    if match["side"] == "later":
        return cal.days(ctx.today, stop, Granularity.RANGE, relative=True)
    return cal.days(first, ctx.today + cal.DAY, Granularity.RANGE, relative=True)


def _read_over_weekend(match: Match, ctx: Context) -> Reading:
    now = ctx.today.weekday() >= 5 or ctx.lean is Lean.FUTURE
    return cal.unit_reading(ctx.today, "weekend", 0 if now else -1)


def _counted(match: Match, ctx: Context, sign: int) -> Reading:
    unit, times = words.unit_named(match["u"])
    amount = match["n"]
    if "half" in match[0]:
        if unit != "year":
            raise ValueError("halves are read for years only")
        months = 6 if "half" in amount else 12 * words.count_of(amount) + 6
        return cal.unit_reading(ctx.today, "month", sign * months)
    low, high = words.amount_range(amount, unit)
    if unit == "minute" or unit == "hour":
        step = timedelta(minutes=(60 if unit == "hour" else 1) * high)
        return cal.clock_reading(ctx.now + sign * step, unit, relative=True)
    low, high = sorted((sign * low * times, sign * high * times))
    return cal.units_between(ctx.today, unit, low, high)


def _read_ago(match: Match, ctx: Context) -> Reading:
    return _counted(match, ctx, -1)


def _read_ahead(match: Match, ctx: Context) -> Reading:
    return _counted(match, ctx, 1)


def _read_weekdays_ago(match: Match, ctx: Context) -> Reading:
    day = cal.weekday_before(ctx.today, words.weekday_number(match["d"]))
    return cal.one_day(day - timedelta(weeks=words.count_of(match["n"]) - 1), relative=True)


def _read_window(match: Match, ctx: Context) -> Reading:
    unit, times = words.unit_named(match["u"])
    count = words.amount_range(match["n"], unit)[1] * times
    if _which(match) in ("last", "past", "previous"):
        return _trailing(ctx, count, unit)
    return cal.days(
        ctx.today, cal.move(ctx.today, count, unit) + cal.DAY, Granularity.RANGE, relative=True
    )


def _read_duration(match: Match, ctx: Context) -> Reading:
    unit, times = words.unit_named(match["u"])
    start = cal.bounds(ctx.today, unit, -words.amount_range(match["n"], unit)[1] * times)[0]
    return cal.days(start, ctx.today + cal.DAY, Granularity.RANGE, relative=True)


def _read_weekday(match: Match, ctx: Context) -> Reading:
    weekday, which = words.weekday_number(match["d"]), _which(match)
    week = (match.groupdict().get("week") or "") or (which if which in ("this", "next") else "")
    if week:
        day = cal.weekday_in_week(ctx.today, weekday, _TURN[week])
    elif which in ("coming", "this coming") or (not which and ctx.lean is Lean.FUTURE):
        day = cal.weekday_after(ctx.today, weekday)
    else:
        day = cal.weekday_before(ctx.today, weekday)
    return cal.one_day(day, relative=True)


def _read_second(match: Match, ctx: Context) -> Reading:
    """The week before last, the Friday after next."""
    back = match["rel"].startswith("before")
    if match["d"]:
        weekday = words.weekday_number(match["d"])
        near = (
            cal.weekday_before(ctx.today, weekday)
            if back
            else cal.weekday_in_week(ctx.today, weekday, 1)
        )
        return cal.one_day(near + timedelta(weeks=-1 if back else 1), relative=True)
    unit, times = words.unit_named(match["u"])
    return cal.unit_reading(ctx.today, unit, (-2 if back else 2) * times)


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of atom: how it is written, read and guarded."""

    regex: re.Pattern[str]
    read: Callable[[Match, Context], Reading]
    guard: Callable[[str, Match], words.Standing]


_M, _U, _Y = rf"(?P<m>{words.MONTH})", rf"(?P<u>{words.UNIT})", words.YEAR4
_DOW, _MAYBE_YEAR = words.WEEKDAY, f"{words.OF_YEAR}?"
_COUNT = rf"(?P<n>{words.AMOUNT})"
_HOLIDAY = rf"(?P<h>{'|'.join(cal.HOLIDAYS)})\b"
_ISO_END = r"(?!\d|[-/.]\d)"


def _atom(
    source: str,
    read: Callable[[Match, Context], Reading],
    guard: Callable[[str, Match], words.Standing] = words.guard_nothing,
) -> Pattern:
    return Pattern(re.compile(source), read, guard)


ATOMS = (
    _atom(
        rf"(?<![\d./-])(?P<y>\d{{4}})[-/.](?P<a>\d{{1,2}})[-/.](?P<b>\d{{1,2}}){_ISO_END}",
        _read_iso,
    ),
    _atom(
        rf"(?<![\d./-])(?P<a>\d{{1,2}})[-/](?P<b>\d{{1,2}})[-/](?P<y>\d{{4}}|(?<=/)\d\d){_ISO_END}",
        _read_month_first,
    ),
    _atom(
        rf"(?<![\d./-])(?P<a>\d{{1,2}})\.\s?(?P<b>\d{{1,2}})\.\s?(?P<y>\d{{4}}){_ISO_END}",
        _read_day_first,
    ),
    _atom(
        rf"\b{words.NAME}(?:the\s+)?{words.DAY}(?:\s+of)?[\s-]+{_M}(?:-(?=\d{{4}}))?{_MAYBE_YEAR}",
        _read_day,
        words.guard_verb_month,
    ),
    _atom(
        rf"\b{words.NAME}{_M}\s+(?:the\s+)?{words.DAY}(?!:\d){_MAYBE_YEAR}",
        _read_day,
        words.guard_verb_month,
    ),
    _atom(
        rf"\b(?:(?:from|between)\s+)?(?:the\s+)?{words.DAY}{words.TO}{words.DAY2}(?:\s+of)?\s+{_M}{_MAYBE_YEAR}",
        _read_days,
        words.guard_verb_month,
    ),
    _atom(
        rf"\b(?:(?:from|between)\s+)?{_M}\s+(?:the\s+)?{words.DAY}{words.TO}{words.DAY2}{words.SPAN_END}",
        _read_days,
        words.guard_verb_month,
    ),
    _atom(
        rf"\b(?:the\s+)?(?P<d>{words.DAY_OF_MONTH})(?:st|nd|rd|th)\b(?:\s+of\s+(?P<which>last|this|next)\s+month\b)?",
        _read_ordinal,
        words.guard_ordinal,
    ),
    _atom(
        rf"\b(?:(?P<which>last|this|next)\s+)?{_HOLIDAY}{_MAYBE_YEAR}",
        _read_holiday,
        words.guard_holiday,
    ),
    _atom(
        rf"(?<![\d./-])(?P<y>{_Y})-(?P<a>1[0-2]|0\d){_ISO_END}",
        _read_month_number,
        words.guard_preposition,
    ),
    _atom(
        rf"(?<![\d./-])(?P<a>1[0-2]|0?[1-9])/(?P<y>{_Y}){_ISO_END}",
        _read_month_number,
        words.guard_preposition,
    ),
    _atom(rf"\b{_M}{words.OF_YEAR}", _read_month),
    _atom(rf"\b{words.WHICH}\s+{_M}", _read_month, words.guard_which_month),
    _atom(rf"\b{_M}", _read_month, words.guard_month),
    _atom(
        r"(?<![\d.,:/$€£-])(?:(?P<y>19\d\d|20\d\d|2100)(?![\d%])(?![.,:/-]\d)|['’](?P<yy>\d\d)\b)",
        _read_year,
        words.guard_preposition,
    ),
    _atom(
        r"\b(?:(?P<n>1[5-9]\d0|20\d0|\d0)['’]?s|(?P<word>(?:twent|thirt|fort|fift|sixt|sevent|eight|ninet)ies))\b",
        _read_decade,
        words.guard_decade,
    ),
    _atom(rf"\bq(?P<q>[1-4])\b{_MAYBE_YEAR}", _read_quarter),
    _atom(rf"\b(?P<s>{words.SEASON}){words.OF_YEAR}(?:[/–-]\d\d(?:\d\d)?\b)?", _read_season),
    _atom(rf"\b{words.WHICH}\s+(?P<s>{words.SEASON})", _read_season),
    _atom(rf"\b(?P<s>{words.SEASON})", _read_season, words.guard_season),
    _atom(
        rf"\b(?:(?:yesterday|tomorrow)(?:\s+{words.PART_OF_DAY})?|(?:earlier\s+|later\s+)?today|tonight"
        r"|this\s+(?:morning|afternoon|evening)|last\s+(?:night|evening))\b",
        _read_near_day,
    ),
    _atom(r"\bthe\s+other\s+(?:day|night)\b", _read_other_day),
    _atom(rf"\b(?P<the>the\s+)?{words.WHICH}\s+(?P<u>{words.LONG_UNIT})(?!\s+of\b)", _read_unit),
    _atom(r"\b(?P<side>earlier|later)\s+this\s+(?P<u>week|month|year)\b", _read_rest_of_unit),
    _atom(r"\b(?:over|on|at|during)\s+the\s+weekend\b", _read_over_weekend),
    _atom(
        rf"\b{words.ABOUT}?{_COUNT}(?:\s+and\s+a\s+half)?\s+{_U}(?:\s+and\s+a\s+half)?\s+(?:ago\b|back\b(?!\s+(?:to|in|from|at|on|home)\b))",
        _read_ago,
    ),
    _atom(rf"\b{words.ABOUT}?{_COUNT}\s+{_U}\s+from\s+(?:now|today)\b", _read_ahead),
    _atom(
        rf"\bin\s+{words.ABOUT}?{_COUNT}\s+{_U}(?:['’]?s?['’]?\s+time\b)?",
        _read_ahead,
        words.guard_plan,
    ),
    _atom(
        r"\b(?P<n>one|two|three|four|five|six|[1-9])\s+(?P<d>(?:mon|tues|wednes|thurs|fri|satur|sun)day)s\s+ago\b",
        _read_weekdays_ago,
    ),
    _atom(
        rf"\b(?:the\s+|these\s+)?(?P<which>last|past|previous|next|coming)\s+{_COUNT}\s+{_U}",
        _read_window,
    ),
    _atom(
        rf"\bfor\s+{words.ABOUT}?{_COUNT}\s+(?P<u>years?|yrs?)\b(?!\s+(?:ago|old|to\s+come|from))",
        _read_duration,
        words.guard_report,
    ),
    _atom(
        rf"\b(?:for\s+)?{words.ABOUT}?{_COUNT}\s+(?P<u>(?:week|month|year|yr)s?)\s+(?:now|already)\b",
        _read_duration,
    ),
    _atom(
        rf"\b{words.WHICH}\s+(?P<d>{_DOW})(?:\s+{words.PART_OF_DAY})?",
        _read_weekday,
        words.guard_weekday,
    ),
    _atom(
        rf"\b(?P<d>{_DOW})(?:\s+{words.PART_OF_DAY})?(?:\s+(?:of\s+)?(?P<week>last|this|next)\s+week\b)?",
        _read_weekday,
        words.guard_weekday,
    ),
    _atom(
        rf"\b(?P<week>last|next)\s+week(?:\s+on)?\s+(?P<d>{_DOW})",
        _read_weekday,
        words.guard_weekday,
    ),
    _atom(
        rf"\b(?:the\s+)?(?:(?P<d>{_DOW})|(?P<u>{words.LONG_UNIT}))\s+(?P<rel>before\s+last|after\s+next)\b",
        _read_second,
    ),
)
"""Every kind of atom; patterns are in lower case and match lowered text."""


def _alternation() -> re.Pattern[str]:
    """All atoms in one: those that start with a word share one test for its edge, the
    numeric ones one for a digit.
    """
    bare = [
        re.sub(r"[?]P<[a-z0-9]+>", "?:", source)
        for source in (atom.regex.pattern for atom in ATOMS)
    ]
    worded = "|".join(source.removeprefix(r"\b") for source in bare if source.startswith(r"\b"))
    numeric = "|".join(source for source in bare if not source.startswith(r"\b"))
    return re.compile(rf"(?<!\w)(?=\w)(?:{worded})|(?=[\d'’])(?:{numeric})")


ANY_ATOM = _alternation()
"""Finds where an atom may start in lowered text."""
