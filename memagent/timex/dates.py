"""Atoms that name a date, a month, a season or a year: "7 May 2023", "Easter", "the 90s".

A reader raises `ValueError` or `OverflowError` for a date that the calendar does not
have and `Unanchored` where only an anchor tells the year and there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta

from memagent.core.records import Granularity
from memagent.language import vocabulary as lexicon
from memagent.timex import calendar as cal
from memagent.timex import vocabulary as words
from memagent.timex.calendar import Lean, Reading
from memagent.timex.vocabulary import Context, Match

_M, _Y = rf"(?P<m>{words.MONTH})", words.YEAR4
_MAYBE_YEAR = f"{words.OF_YEAR}?"
_HOLIDAY = rf"(?P<h>{'|'.join(cal.HOLIDAYS)})\b"
_NUMBER_END = r"(?!\d|[-/.]\d)"
_DECADES: Sequence[str] = (
    "twenties thirties forties fifties sixties seventies eighties nineties".split()
)


# -- dates -----------------------------------------------------------------------------


def _iso_date(match: Match, _ctx: Context) -> Reading:
    return cal.one_day(
        date(int(match["y"]), int(match["month"]), int(match["day"])), relative=False
    )


def _numeric_date(match: Match, _ctx: Context) -> Reading:
    month, day = int(match["month"]), int(match["day"])
    if month > 12 and day <= 12:
        month, day = day, month
    year = match["y"]
    full = words.short_year(year) if len(year) == 2 else int(year)
    return cal.one_day(date(full, month, day), relative=False)


def day_of_month(match: Match, ctx: Context) -> Reading:
    """Read the groups d, m and, where they are told, name and y."""
    month, day = lexicon.month_number(match["m"]), int(match["d"])
    year, relative = words.stated_year(match, ctx)
    if year is not None:
        return cal.one_day(date(year, month, day), relative=relative)

    def in_year(year: int) -> date:  # 29 February stands for the 28th while a year is being chosen
        return date(year, month, 28 if (month, day) == (2, 29) and year % 4 else day)

    if name := match.groupdict().get("name"):
        near = (in_year(ctx.today.year + shift) for shift in (0, -1, 1))
        fitting = (day for day in near if day.weekday() == lexicon.weekday_number(name))
        if named := next(fitting, None):
            return cal.one_day(named, relative=True)
    return cal.one_day(cal.pick_year(in_year, ctx.today, ctx.lean), relative=True)


def _days_of_month(match: Match, ctx: Context) -> Reading:
    first = day_of_month(match, ctx)
    stop = first.first_day.replace(day=int(match["d2"])) + cal.DAY
    if stop <= first.first_day:
        raise ValueError("the last day lies before the first")
    return cal.days(first.first_day, stop, Granularity.RANGE, relative=first.relative)


def _ordinal_day(match: Match, ctx: Context) -> Reading:
    day, here = int(match["d"]), ctx.today.replace(day=1)
    turn = words.turn_of(match)
    if turn is not None:
        return cal.one_day(cal.add_months(here, turn).replace(day=day), relative=True)
    months = [cal.add_months(here, shift) for shift in (-2, -1, 0, 1, 2)]
    dates = [month + timedelta(day - 1) for month in months]
    dates = [day for day, month in zip(dates, months, strict=True) if day.month == month.month]
    if ctx.lean is Lean.FUTURE:
        return cal.one_day(min(day for day in dates if day >= ctx.today), relative=True)
    return cal.one_day(max(day for day in dates if day <= ctx.today), relative=True)


def _holiday(match: Match, ctx: Context) -> Reading:
    on = next(day for names, day in cal.HOLIDAYS.items() if re.fullmatch(names, match["h"]))
    year, relative = words.stated_year(match, ctx)
    if year is not None:
        return cal.one_day(on(year), relative=relative)
    today, turn = ctx.today, words.turn_of(match)
    if turn is None:
        day = cal.pick_year(on, today, ctx.lean)
    elif turn < 0:
        day = max(day for shift in (-1, 0) if (day := on(today.year + shift)) < today)
    elif turn > 0:
        day = min(day for shift in (0, 1) if (day := on(today.year + shift)) > today)
    else:
        day = on(today.year)
    return cal.one_day(day, relative=True)


# -- months, seasons, years ------------------------------------------------------------


def _numeric_month(match: Match, _ctx: Context) -> Reading:
    return cal.unit_reading(date(int(match["y"]), int(match["month"]), 1), "month", relative=False)


def month_of_year(match: Match, ctx: Context) -> Reading:
    """Read the groups m and, where they are told, which and y."""
    year, relative = words.stated_year(match, ctx)
    month = lexicon.month_number(match["m"])
    if year is None:
        year = words.year_of_month(month, words.which_of(match), ctx)
    return cal.unit_reading(date(year, month, 1), "month", relative=relative)


def _year(match: Match, _ctx: Context) -> Reading:
    year = int(match["y"]) if match["y"] else words.short_year(match["yy"])
    return cal.unit_reading(date(year, 1, 1), "year", relative=False)


def _decade(match: Match, _ctx: Context) -> Reading:
    if match["word"]:
        year = 1920 + 10 * _DECADES.index(match["word"])
    else:
        year = int(match["n"])
        year += 0 if year >= 100 else 1900 if year >= 30 else 2000
    return cal.unit_reading(date(year, 1, 1), "decade", relative=False)


def _quarter(match: Match, ctx: Context) -> Reading:
    year, relative = words.stated_year(match, ctx)
    first = date(ctx.today.year if year is None else year, 3 * int(match["q"]) - 2, 1)
    return cal.unit_reading(first, "quarter", relative=relative)


def _season(match: Match, ctx: Context) -> Reading:
    name, turn = match["s"], words.turn_of(match)
    year, relative = words.stated_year(match, ctx)
    if year is not None:
        return cal.season_reading(name, year, relative=relative)
    years = [ctx.today.year + shift for shift in (-2, -1, 0, 1, 2)]
    around = [cal.season_reading(name, year, relative=True) for year in years]
    past = [season for season in around if season.last_day < ctx.today]
    future = [season for season in around if season.first_day > ctx.today]
    if turn:
        return past[-1] if turn < 0 else future[0]
    if len(past) + len(future) < len(around):  # it is that season now
        return around[len(past)]
    if turn == 0:
        return next(season for season in around if season.first_day.year == ctx.today.year)
    return future[0] if ctx.lean is Lean.FUTURE else past[-1]


ATOMS = (
    words.atom(
        rf"(?<![\d./-])(?P<y>\d{{4}})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}}){_NUMBER_END}",
        _iso_date,
    ),
    words.atom(
        rf"(?<![\d./-])(?P<month>\d{{1,2}})[-/](?P<day>\d{{1,2}})[-/](?P<y>\d{{4}}|(?<=/)\d\d){_NUMBER_END}",
        _numeric_date,
    ),
    words.atom(
        rf"(?<![\d./-])(?P<day>\d{{1,2}})\.\s?(?P<month>\d{{1,2}})\.\s?(?P<y>\d{{4}}){_NUMBER_END}",
        _numeric_date,
    ),
    words.atom(
        rf"\b{words.NAME}(?:the\s+)?{words.DAY}(?:\s+of)?[\s-]+{_M}(?:-(?=\d{{4}}))?{_MAYBE_YEAR}",
        day_of_month,
        words.guard_verb_month,
    ),
    words.atom(
        rf"\b{words.NAME}{_M}\s+(?:the\s+)?{words.DAY}(?!:\d){_MAYBE_YEAR}",
        day_of_month,
        words.guard_verb_month,
    ),
    words.atom(
        rf"\b(?:(?:from|between)\s+)?(?:the\s+)?{words.DAY}{words.TO}{words.DAY2}(?:\s+of)?\s+{_M}{_MAYBE_YEAR}",
        _days_of_month,
        words.guard_verb_month,
    ),
    words.atom(
        rf"\b(?:(?:from|between)\s+)?{_M}\s+(?:the\s+)?{words.DAY}{words.TO}{words.DAY2}{words.SPAN_END}",
        _days_of_month,
        words.guard_verb_month,
    ),
    words.atom(
        rf"\b(?:the\s+)?(?P<d>{words.DAY_OF_MONTH})(?:st|nd|rd|th)\b(?:\s+of\s+(?P<which>last|this|next)\s+month\b)?",
        _ordinal_day,
        words.guard_ordinal,
    ),
    words.atom(
        rf"\b(?:(?P<which>last|this|next)\s+)?{_HOLIDAY}{_MAYBE_YEAR}",
        _holiday,
        words.guard_holiday,
    ),
    words.atom(
        rf"(?<![\d./-])(?P<y>{_Y})-(?P<month>1[0-2]|0\d){_NUMBER_END}",
        _numeric_month,
        words.guard_preposition,
    ),
    words.atom(
        rf"(?<![\d./-])(?P<month>1[0-2]|0?[1-9])/(?P<y>{_Y}){_NUMBER_END}",
        _numeric_month,
        words.guard_preposition,
    ),
    words.atom(rf"\b{_M}{words.OF_YEAR}", month_of_year, words.guard_real_day),
    words.atom(rf"\b{words.WHICH}\s+{_M}", month_of_year, words.guard_which_month),
    words.atom(rf"\b{_M}", month_of_year, words.guard_month),
    words.atom(
        r"(?<![\d.,:/$€£])(?:(?<!-)|(?<=mid-)|(?<=early-)|(?<=late-))(?:(?P<y>19\d\d|20\d\d|2100)(?![\d%])(?![.,:/-]\d)|['’](?P<yy>\d\d)\b)",
        _year,
        words.guard_year,
    ),
    words.atom(
        r"\b(?:(?P<n>1[5-9]\d0|20\d0|\d0)['’]?s|(?P<word>(?:twent|thirt|fort|fift|sixt|sevent|eight|ninet)ies))\b",
        _decade,
        words.guard_decade,
    ),
    words.atom(rf"\bq(?P<q>[1-4])\b{_MAYBE_YEAR}", _quarter),
    words.atom(rf"\b(?P<s>{words.SEASON}){words.OF_YEAR}(?:[/–-]\d\d(?:\d\d)?\b)?", _season),
    words.atom(rf"\b{words.WHICH}\s+(?P<s>{words.SEASON})", _season),
    words.atom(rf"\b(?P<s>{words.SEASON})", _season, words.guard_season),
)
"""Atoms that need no anchor when they are written in full."""
