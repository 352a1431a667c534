"""Atoms that are told from an anchor: "yesterday", "last week", "two days ago", "on Friday".

A reader raises `Unanchored` without an anchor.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import partial

from memagent.core.records import Granularity
from memagent.language import vocabulary as lexicon
from memagent.timex import calendar as cal
from memagent.timex import vocabulary as words
from memagent.timex.calendar import Lean, Reading
from memagent.timex.vocabulary import TURNS, Context, Match

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


ATOMS = (
    words.atom(
        rf"\b(?:(?:yesterday|tomorrow)(?:\s+{words.PART_OF_DAY})?|(?:earlier\s+|later\s+)?today|tonight"
        r"|this\s+(?:morning|afternoon|evening)|last\s+(?:night|evening))\b",
        _near_day,
    ),
    words.atom(r"\bthe\s+other\s+(?:day|night)\b", _other_day),
    words.atom(rf"\b(?P<the>the\s+)?{words.WHICH}\s+(?P<u>{words.LONG_UNIT})(?!\s+of\b)", _unit),
    words.atom(r"\b(?P<side>earlier|later)\s+this\s+(?P<u>week|month|year)\b", _rest_of_unit),
    words.atom(r"\b(?:over|on|at|during)\s+the\s+weekend\b", _over_weekend),
    words.atom(
        rf"\b{words.ABOUT}?{_COUNT}(?:\s+and\s+a\s+half)?\s+{_U}(?:\s+and\s+a\s+half)?\s+(?:ago\b|back\b(?!\s+(?:to|in|from|at|on|home)\b))",
        partial(_counted_units, sign=-1),
    ),
    words.atom(
        rf"\b(?:exactly\s+)?{_COUNT}\s+{_U}\s+ago\s+(?P<d>today|yesterday|tomorrow)\b",
        _units_ago_today,
    ),
    words.atom(
        rf"\b(?P<d>{_DOW})\s+(?P<u>week|fortnight)\b(?!\s+(?:of|in|one|two|ago|\d))",
        _second_weekday,
        words.guard_second_weekday,
    ),
    words.atom(
        rf"\b(?P<n>an?|one|two|three)\s+(?P<u>weeks?|fortnight)\s+(?:on|from)\s+(?P<d>{_DOW})",
        _second_weekday,
        words.guard_second_weekday,
    ),
    words.atom(
        rf"\b{words.ABOUT}?{_COUNT}\s+{_U}\s+from\s+(?:now|today)\b",
        partial(_counted_units, sign=1),
    ),
    words.atom(
        rf"\bin\s+{words.ABOUT}?{_COUNT}\s+{_U}(?:['’]?s?['’]?\s+time\b)?",
        partial(_counted_units, sign=1),
        words.guard_plan,
    ),
    words.atom(
        r"\b(?P<n>one|two|three|four|five|six|[1-9])\s+(?P<d>(?:mon|tues|wednes|thurs|fri|satur|sun)day)s\s+ago\b",
        _weekdays_ago,
    ),
    words.atom(
        rf"\b(?:the\s+|these\s+)?(?P<which>last|past|previous|next|coming)\s+{_COUNT}\s+{_U}",
        _window,
    ),
    words.atom(
        rf"\bfor\s+{words.ABOUT}?{_COUNT}\s+(?P<u>years?|yrs?)\b(?!\s+(?:ago|old|to\s+come|from))",
        _duration,
        words.guard_report,
    ),
    words.atom(
        rf"\b(?:for\s+)?{words.ABOUT}?{_COUNT}\s+(?P<u>(?:week|month|year|yr)s?)\s+(?:now|already)\b",
        _duration,
    ),
    words.atom(
        rf"\b{words.WHICH}\s+(?P<d>{_DOW})(?:\s+{words.PART_OF_DAY})?",
        weekday,
        words.guard_weekday,
    ),
    words.atom(
        rf"\b(?P<d>{_DOW})(?:\s+{words.PART_OF_DAY})?(?:\s+(?:of\s+)?(?P<week>last|this|next)\s+week\b)?",
        weekday,
        words.guard_weekday,
    ),
    words.atom(
        rf"\b(?P<week>last|next)\s+week(?:\s+on)?\s+(?P<d>{_DOW})",
        weekday,
        words.guard_weekday,
    ),
    words.atom(
        rf"\b(?:the\s+)?(?:(?P<d>{_DOW})|(?P<u>{words.LONG_UNIT}))\s+(?P<rel>before\s+last|after\s+next)\b",
        _second_unit,
    ),
)
"""Atoms that need an anchor."""
