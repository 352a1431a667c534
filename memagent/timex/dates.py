"""Atoms that name a date, a month, a season or a year: "7 May 2023", "Easter", "the 90s".

A reader raises `ValueError` or `OverflowError` for a date that the calendar does not
have, and `ValueError` where only an anchor tells the year and there is none.

Atoms that are told from an anchor: "yesterday", "last week", "two days ago", "on Friday".

A reader raises `ValueError` without an anchor.

Atoms of German and Spanish: "am 3. Mai", "nächsten Freitag", "hace dos semanas".

Plain forms only. Readers are those of English; a bare month or weekday counts only
after its preposition or article, as "domingo" and "mayo" are other words too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial

from memagent.core.records import Granularity
from memagent.language import vocabulary as lexicon
from memagent.language.vocabulary import MONTHS, WEEKDAYS, any_of
from memagent.timex import calendar as cal, vocabulary as words
from memagent.timex.calendar import Lean, Reading, Unit
from memagent.timex.vocabulary import TURNS, Context, Match, Standing

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
    month, turn = cal.SEASON_MONTHS[match["s"]], words.turn_of(match)
    year, relative = words.stated_year(match, ctx)
    if year is not None:
        return cal.unit_reading(date(year, month, 1), "season", relative=relative)
    years = [ctx.today.year + shift for shift in (-2, -1, 0, 1, 2)]
    around = [cal.unit_reading(date(year, month, 1), "season") for year in years]
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
    words.Atom(
        rf"(?<![\d./-])(?P<y>\d{{4}})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}}){_NUMBER_END}",
        _iso_date,
    ),
    words.Atom(
        rf"(?<![\d./-])(?P<month>\d{{1,2}})[-/](?P<day>\d{{1,2}})[-/](?P<y>\d{{4}}|(?<=/)\d\d){_NUMBER_END}",
        _numeric_date,
    ),
    words.Atom(
        rf"(?<![\d./-])(?P<day>\d{{1,2}})\.\s?(?P<month>\d{{1,2}})\.\s?(?P<y>\d{{4}}){_NUMBER_END}",
        _numeric_date,
    ),
    words.Atom(
        rf"\b{words.NAME}(?:the\s+)?{words.DAY}(?:\s+of)?[\s-]+{_M}(?:-(?=\d{{4}}))?{_MAYBE_YEAR}",
        day_of_month,
        words.guard_verb_month,
    ),
    words.Atom(
        rf"\b{words.NAME}{_M}\s+(?:the\s+)?{words.DAY}(?!:\d){_MAYBE_YEAR}",
        day_of_month,
        words.guard_verb_month,
    ),
    words.Atom(
        rf"\b(?:(?:from|between)\s+)?(?:the\s+)?{words.DAY}{words.TO}{words.DAY2}(?:\s+of)?\s+{_M}{_MAYBE_YEAR}",
        _days_of_month,
        words.guard_verb_month,
    ),
    words.Atom(
        rf"\b(?:(?:from|between)\s+)?{_M}\s+(?:the\s+)?{words.DAY}{words.TO}{words.DAY2}{words.SPAN_END}",
        _days_of_month,
        words.guard_verb_month,
    ),
    words.Atom(
        rf"\b(?:the\s+)?(?P<d>{words.DAY_OF_MONTH})(?:st|nd|rd|th)\b(?:\s+of\s+(?P<which>last|this|next)\s+month\b)?",
        _ordinal_day,
        words.guard_ordinal,
    ),
    words.Atom(
        rf"\b(?:(?P<which>last|this|next)\s+)?{_HOLIDAY}{_MAYBE_YEAR}",
        _holiday,
        words.guard_holiday,
    ),
    words.Atom(
        rf"(?<![\d./-])(?P<y>{_Y})-(?P<month>1[0-2]|0\d){_NUMBER_END}",
        _numeric_month,
        words.guard_preposition,
    ),
    words.Atom(
        rf"(?<![\d./-])(?P<month>1[0-2]|0?[1-9])/(?P<y>{_Y}){_NUMBER_END}",
        _numeric_month,
        words.guard_preposition,
    ),
    words.Atom(rf"\b{_M}{words.OF_YEAR}", month_of_year, words.guard_real_day),
    words.Atom(rf"\b{words.WHICH}\s+{_M}", month_of_year, words.guard_which_month),
    words.Atom(rf"\b{_M}", month_of_year, words.guard_month),
    words.Atom(
        r"(?<![\d.,:/$€£])(?:(?<!-)|(?<=mid-)|(?<=early-)|(?<=late-))(?:(?P<y>19\d\d|20\d\d|2100)(?![\d%])(?![.,:/-]\d)|['’](?P<yy>\d\d)\b)",
        _year,
        words.guard_year,
    ),
    words.Atom(
        r"\b(?:(?P<n>1[5-9]\d0|20\d0|\d0)['’]?s|(?P<word>(?:twent|thirt|fort|fift|sixt|sevent|eight|ninet)ies))\b",
        _decade,
        words.guard_decade,
    ),
    words.Atom(rf"\bq(?P<q>[1-4])\b{_MAYBE_YEAR}", _quarter),
    words.Atom(rf"\b(?P<s>{words.SEASON}){words.OF_YEAR}(?:[/–-]\d\d(?:\d\d)?\b)?", _season),
    words.Atom(rf"\b{words.WHICH}\s+(?P<s>{words.SEASON})", _season),
    words.Atom(rf"\b(?P<s>{words.SEASON})", _season, words.guard_season),
)
"""Atoms that need no anchor when they are written in full."""


_U, _COUNT = rf"(?P<u>{words.UNIT})", rf"(?P<n>{words.AMOUNT})"
_DOW = words.WEEKDAY


def _stretch(first: date, stop: date) -> Reading:
    return cal.days(first, stop, Granularity.RANGE, relative=True)


def _trailing(ctx: Context, count: int, unit: cal.Unit) -> Reading:
    """Return the last `count` units up to and with today, as a duration."""
    return _stretch(cal.move(ctx.today, -count, unit), ctx.today + cal.DAY)


def _near_day(match: Match, ctx: Context) -> Reading:
    first = match[0].split()[-1 if match[0].endswith("today") else 0]
    offset = {"yesterday": -1, "last": -1, "tomorrow": 1}.get(first, 0)
    return cal.unit_reading(ctx.today, "day", offset)


def _other_day(_match: Match, ctx: Context) -> Reading:
    return cal.units_between(ctx.today, "day", -7, -1)


def _unit(match: Match, ctx: Context) -> Reading:
    unit, times = words.unit_named(match["u"])
    which = words.which_of(match)
    turn = TURNS[which]
    recent = match["the"] and which != "previous"
    if turn < 0 and unit != "weekend" and (recent or which == "this past"):
        return _trailing(ctx, times, unit)
    if which == "this coming" and unit == "weekend":
        turn = 0
    return cal.unit_reading(ctx.today, unit, turn * times)


def _rest_of_unit(match: Match, ctx: Context) -> Reading:
    first, stop = cal.bounds(ctx.today, words.unit_named(match["u"])[0])
    if match["side"] == "later":
        return _stretch(ctx.today, stop)
    return _stretch(first, ctx.today + cal.DAY)


def _over_weekend(_match: Match, ctx: Context) -> Reading:
    now = ctx.today.weekday() >= 5 or ctx.lean is Lean.FUTURE
    return cal.unit_reading(ctx.today, "weekend", 0 if now else -1)


def _counted_units(match: Match, ctx: Context, *, sign: int) -> Reading:
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


def _units_ago_today(match: Match, ctx: Context) -> Reading:
    unit, times = words.unit_named(match["u"])
    low, count = words.amount_range(match["n"], unit)
    if low != count or unit in ("minute", "hour"):
        raise ValueError("no exact number of days, weeks, months or years")
    offset = {"yesterday": -1, "tomorrow": 1}.get(match["d"], 0)
    return cal.one_day(cal.move(ctx.today + offset * cal.DAY, -count * times, unit), relative=True)


def _second_weekday(match: Match, ctx: Context) -> Reading:
    groups = match.groupdict()
    unit, times = words.unit_named(groups["u"])
    weeks = times * words.count_of(groups.get("n") or "one")
    day = cal.weekday_after(ctx.today, lexicon.weekday_number(groups["d"]))
    return cal.one_day(cal.move(day, weeks, unit), relative=True)


def _weekdays_ago(match: Match, ctx: Context) -> Reading:
    day = cal.weekday_before(ctx.today, lexicon.weekday_number(match["d"]))
    return cal.one_day(day - timedelta(weeks=words.count_of(match["n"]) - 1), relative=True)


def _window(match: Match, ctx: Context) -> Reading:
    unit, times = words.unit_named(match["u"])
    count = words.amount_range(match["n"], unit)[1] * times
    if TURNS[words.which_of(match)] < 0:
        return _trailing(ctx, count, unit)
    return _stretch(ctx.today, cal.move(ctx.today, count, unit) + cal.DAY)


def _duration(match: Match, ctx: Context) -> Reading:
    unit, times = words.unit_named(match["u"])
    start = cal.bounds(ctx.today, unit, -words.amount_range(match["n"], unit)[1] * times)[0]
    return _stretch(start, ctx.today + cal.DAY)


def weekday(match: Match, ctx: Context) -> Reading:
    """Read the groups d and, where they are told, which, week, past and next."""
    groups = match.groupdict()
    number, which = lexicon.weekday_number(match["d"]), words.which_of(match)
    week = groups.get("week") or (which if which in ("this", "next") else "")
    if week:
        day = cal.weekday_in_week(ctx.today, number, TURNS[week])
    elif (
        TURNS.get(which) == 1
        or groups.get("next")
        or (not which and not groups.get("past") and ctx.lean is Lean.FUTURE)
    ):
        day = cal.weekday_after(ctx.today, number)
    else:
        day = cal.weekday_before(ctx.today, number)
    return cal.one_day(day, relative=True)


def _second_unit(match: Match, ctx: Context) -> Reading:
    sign = -1 if match["rel"].startswith("before") else 1
    if match["d"]:
        weekday = lexicon.weekday_number(match["d"])
        near = (
            cal.weekday_before(ctx.today, weekday)
            if sign < 0
            else cal.weekday_in_week(ctx.today, weekday, 1)
        )
        return cal.one_day(near + timedelta(weeks=sign), relative=True)
    unit, times = words.unit_named(match["u"])
    return cal.unit_reading(ctx.today, unit, 2 * sign * times)


RELATIVE_ATOMS = (
    words.Atom(
        rf"\b(?:(?:yesterday|tomorrow)(?:\s+{words.PART_OF_DAY})?|(?:earlier\s+|later\s+)?today|tonight"
        r"|this\s+(?:morning|afternoon|evening)|last\s+(?:night|evening))\b",
        _near_day,
    ),
    words.Atom(r"\bthe\s+other\s+(?:day|night)\b", _other_day),
    words.Atom(rf"\b(?P<the>the\s+)?{words.WHICH}\s+(?P<u>{words.LONG_UNIT})(?!\s+of\b)", _unit),
    words.Atom(r"\b(?P<side>earlier|later)\s+this\s+(?P<u>week|month|year)\b", _rest_of_unit),
    words.Atom(r"\b(?:over|on|at|during)\s+the\s+weekend\b", _over_weekend),
    words.Atom(
        rf"\b{words.ABOUT}?{_COUNT}(?:\s+and\s+a\s+half)?\s+{_U}(?:\s+and\s+a\s+half)?\s+(?:ago\b|back\b(?!\s+(?:to|in|from|at|on|home)\b))",
        partial(_counted_units, sign=-1),
    ),
    words.Atom(
        rf"\b(?:exactly\s+)?{_COUNT}\s+{_U}\s+ago\s+(?P<d>today|yesterday|tomorrow)\b",
        _units_ago_today,
    ),
    words.Atom(
        rf"\b(?P<d>{_DOW})\s+(?P<u>week|fortnight)\b(?!\s+(?:of|in|one|two|ago|\d))",
        _second_weekday,
        words.guard_second_weekday,
    ),
    words.Atom(
        rf"\b(?P<n>an?|one|two|three)\s+(?P<u>weeks?|fortnight)\s+(?:on|from)\s+(?P<d>{_DOW})",
        _second_weekday,
        words.guard_second_weekday,
    ),
    words.Atom(
        rf"\b{words.ABOUT}?{_COUNT}\s+{_U}\s+from\s+(?:now|today)\b",
        partial(_counted_units, sign=1),
    ),
    words.Atom(
        rf"\bin\s+{words.ABOUT}?{_COUNT}\s+{_U}(?:['’]?s?['’]?\s+time\b)?",
        partial(_counted_units, sign=1),
        words.guard_plan,
    ),
    words.Atom(
        r"\b(?P<n>one|two|three|four|five|six|[1-9])\s+(?P<d>(?:mon|tues|wednes|thurs|fri|satur|sun)day)s\s+ago\b",
        _weekdays_ago,
    ),
    words.Atom(
        rf"\b(?:the\s+|these\s+)?(?P<which>last|past|previous|next|coming)\s+{_COUNT}\s+{_U}",
        _window,
    ),
    words.Atom(
        rf"\bfor\s+{words.ABOUT}?{_COUNT}\s+(?P<u>years?|yrs?)\b(?!\s+(?:ago|old|to\s+come|from))",
        _duration,
        words.guard_report,
    ),
    words.Atom(
        rf"\b(?:for\s+)?{words.ABOUT}?{_COUNT}\s+(?P<u>(?:week|month|year|yr)s?)\s+(?:now|already)\b",
        _duration,
    ),
    words.Atom(
        rf"\b{words.WHICH}\s+(?P<d>{_DOW})(?:\s+{words.PART_OF_DAY})?",
        weekday,
        words.guard_weekday,
    ),
    words.Atom(
        rf"\b(?P<d>{_DOW})(?:\s+{words.PART_OF_DAY})?(?:\s+(?:of\s+)?(?P<week>last|this|next)\s+week\b)?",
        weekday,
        words.guard_weekday,
    ),
    words.Atom(
        rf"\b(?P<week>last|next)\s+week(?:\s+on)?\s+(?P<d>{_DOW})",
        weekday,
        words.guard_weekday,
    ),
    words.Atom(
        rf"\b(?:the\s+)?(?:(?P<d>{_DOW})|(?P<u>{words.LONG_UNIT}))\s+(?P<rel>before\s+last|after\s+next)\b",
        _second_unit,
    ),
)
"""Atoms that need an anchor."""


_DE_MONTH = any_of(MONTHS["de"], "jänner")
_ES_MONTH = any_of(MONTHS["es"], "setiembre")
_DE_DAY = any_of(WEEKDAYS["de"], "sonnabend")
_ES_DAY = any_of(WEEKDAYS["es"], "miercoles sabado")
_FOREIGN_Y = rf"(?P<y>{words.YEAR4})"
_DE_UNIT = r"(?P<u>tag|woche|wochenende|monat|jahr)e?[ns]?\b"
_ES_UNIT = r"(?P<u>día|dia|semana|mes|año)(?:e?s)?\b"
_FOREIGN_COUNT = r"(?P<n>\d{1,3}|[a-zäöüß]+)"
_UNITS: dict[str, Unit] = {
    "tag": "day",
    "woche": "week",
    "wochenende": "weekend",
    "monat": "month",
    "jahr": "year",
    "día": "day",
    "dia": "day",
    "semana": "week",
    "mes": "month",
    "año": "year",
}
_DAYS = {
    "vorgestern": -2,
    "gestern": -1,
    "heute": 0,
    "morgen": 1,
    "übermorgen": 2,
    "anteayer": -2,
    "ayer": -1,
    "anoche": -1,
    "hoy": 0,
    "mañana": 1,
}
_LAST = r"(?:letzte|vergangene|vorige)[nsmr]?"
_NEXT = r"(?:nächste|naechste|kommende)[nsmr]?"
_TIMELY = re.compile(
    r"\b(?:im|am|ab|bis|seit|vom|zum|für|auf|anfang|mitte|ende|vor|nach|en|de|desde|hasta|para|el|al|del|este)"
    r"\s+(?:de[nmrl]?\s+|el\s+)?\Z"
)
_PART_OF_DAY = re.compile(r"\b(?:am|guten|jeden|diesen|la|esta|cada|una)\s+\Z")


def _timely(_text: str, match: Match) -> Standing:
    """Accept a month or weekday after its preposition or article, or with its year or turn."""
    groups = match.groupdict()
    if groups.get("y") or groups.get("past") or groups.get("next"):
        return Standing.ALONE
    placed = _TIMELY.search(match.string, max(0, match.start() - 20), match.start())
    return Standing.ALONE if placed else Standing.REFUSED


def _no_part_of_day(_text: str, match: Match) -> Standing:
    """Refuse "am Morgen" and "por la mañana"."""
    placed = _PART_OF_DAY.search(match.string, max(0, match.start() - 12), match.start())
    return Standing.REFUSED if placed else Standing.ALONE


def _foreign_near_day(match: Match, ctx: Context) -> Reading:
    return cal.unit_reading(ctx.today, "day", 2 if match[0][:6] == "pasado" else _DAYS[match[0]])


def _turn(match: Match) -> int:
    groups = match.groupdict()
    return -1 if groups.get("past") else 1 if groups.get("next") or groups.get("next2") else 0


def _turned(_text: str, match: Match) -> Standing:
    """Accept "la semana pasada", but not "la semana"."""
    return Standing.ALONE if _turn(match) else Standing.REFUSED


def _foreign_unit(match: Match, ctx: Context) -> Reading:
    return cal.unit_reading(ctx.today, _UNITS[match["u"]], _turn(match))


def _counted(match: Match, ctx: Context) -> Reading:
    """Read "vor zwei Wochen" and "dentro de 3 días"; fails for words that are no numbers."""
    bare = re.sub(r"^(ein|un)(?:e[nmr]?|a)$", r"\1", match["n"])
    count = int(bare) if bare.isdigit() else lexicon.COUNTS.get(bare, 0)
    if not count:
        raise ValueError("no number")
    sign = -1 if match["past"] else 1
    return cal.unit_reading(ctx.today, _UNITS[match["u"]], sign * count)


_DE_WEEKDAY = rf"(?:(?:(?P<past>{_LAST})|(?P<next>{_NEXT}))\s+)?(?P<d>{_DE_DAY})(?!s)\b"
FOREIGN_ATOMS = (
    words.Atom(
        rf"\b(?:(?P<name>{_DE_DAY}),?\s+(?:de[nmr]\s+)?)?(?P<d>{words.DAY_OF_MONTH})\.\s?(?P<m>{_DE_MONTH})\b(?:\s+{_FOREIGN_Y})?",
        day_of_month,
    ),
    words.Atom(
        rf"\b(?:(?P<name>{_ES_DAY}),?\s+)?(?P<d>{words.DAY_OF_MONTH})\s+de\s+(?P<m>{_ES_MONTH})\b(?:\s+del?\s+{_FOREIGN_Y})?",
        day_of_month,
    ),
    words.Atom(
        rf"\b(?P<m>{_DE_MONTH}|{_ES_MONTH})\b(?:\s+(?:del?\s+)?{_FOREIGN_Y})?",
        month_of_year,
        _timely,
    ),
    words.Atom(rf"\b{_DE_WEEKDAY}", weekday, _timely),
    words.Atom(
        rf"\b(?:(?P<next>próximo|proximo)\s+)?(?P<d>{_ES_DAY})\b(?:\s+(?:(?P<past>pasado)|que\s+viene))?",
        weekday,
        _timely,
    ),
    words.Atom(rf"\b(?:pasado\s+mañana|{any_of(*_DAYS)})\b", _foreign_near_day, _no_part_of_day),
    words.Atom(
        rf"\b(?:(?P<past>{_LAST})|(?P<next>{_NEXT})|diese[nsmr]?)\s+{_DE_UNIT}", _foreign_unit
    ),
    words.Atom(
        rf"\b(?:la|el)\s+(?:(?P<next>pr[óo]xim[oa])\s+)?{_ES_UNIT}(?:\s+(?:(?P<past>pasad[oa])|(?P<next2>que\s+viene)))?",
        _foreign_unit,
        _turned,
    ),
    words.Atom(rf"\b(?:est[ea])\s+{_ES_UNIT}", _foreign_unit),
    words.Atom(
        rf"\b(?:(?P<past>hace)|dentro\s+de|en)\s+{_FOREIGN_COUNT}\s+{_ES_UNIT}",
        _counted,
    ),
    words.Atom(rf"\b(?:(?P<past>vor)|in)\s+{_FOREIGN_COUNT}\s+{_DE_UNIT}", _counted),
)
"""Atoms of two languages, read against the same calendar."""
