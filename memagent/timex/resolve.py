"""Time phrases and the spans they name.

`find_times` scans free text with our own grammar only; `resolve_time` reads one whole
phrase and, where the grammar does not know it, asks dateparser, which also reads other
languages. Relative phrases are read against an anchor, the date of the session that
holds them; without one they are left out. Days are UTC days and weeks run Monday to
Sunday.

Conventions, chosen so that spans agree with how people date what they tell:

- "last week" is the calendar week before, as is "the week before 9 June 2023" for
  9 June; "two weeks ago" is the one before that.
- "last Friday" is the latest Friday before the anchor; "this Friday" lies in the
  anchor's week and "next Friday" in the week after.
- An incomplete date ("in June", "on Friday", "7 May") lies in the past where its clause
  reports, and ahead where it speaks of a plan. Where neither is sure it is `open`, and
  the span is a guess: the past, or a day at most 60 days ahead.
- "the last month" and "this past year" are the stretch up to the anchor; "a few days
  ago" is the week before the anchor.
- An open phrase ("since 2016", "before 9 June 2023") has one bound and granularity
  RANGE.

The surprise: the phrase that `span.text` keeps has no leading "in" or "on", but keeps
words that change the meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from memagent.core import Later
from memagent.core.records import Granularity, Record, Text, TimeSpan, as_utc
from memagent.language.vocabulary import MONTHS

if TYPE_CHECKING:
    from dateparser.date import DateDataParser

    from memagent.timex import calendar as cal, phrases as grammar, vocabulary as words
    from memagent.timex.calendar import Reading
else:  # most texts name no time, and the grammar is the larger part of this package
    cal = Later("memagent.timex.calendar")
    grammar = Later("memagent.timex.phrases")
    words = Later("memagent.timex.vocabulary")

MAX_PHRASE_CHARS = 200
"""A longer string is no time phrase."""
MAX_TURN_TIMES = 200
"""Most times that rules read in one turn."""


class TimeMention(Record):
    """A time phrase in a text, at character offsets `[start, end)`."""

    start: int
    end: int
    text: Text
    """The phrase as written."""
    span: TimeSpan
    relative: bool
    """Whether the anchor was needed to read it."""
    open: bool = False
    """Whether the text leaves open if a coming or a past one is meant; `span` is a guess."""


def find_times(text: str, *, anchor: datetime | None, most: int | None = None) -> list[TimeMention]:
    """Find the time phrases of a text, in reading order.

    They never overlap: where two would, the longer one is kept. Only the first `most`
    times are read, where it is given.
    `anchor` is when the text was said; relative phrases need it and are left out
    without it. Never raises on any text.
    """
    if not _CUE.search(text.lower()):
        return []
    taken = bytearray(len(text))
    mentions: list[TimeMention] = []
    read = grammar.phrases(text, as_utc(anchor) if anchor else None, loose=False, most=most)
    for phrase in sorted(read, key=lambda phrase: (phrase.start - phrase.end, phrase.start)):
        start, end = phrase.start, phrase.end
        if not any(taken[start:end]):
            taken[start:end] = b"\x01" * (end - start)
            mentions.append(
                TimeMention(
                    start=start,
                    end=end,
                    text=text[start:end],
                    span=_span(phrase.reading, text[start:end]),
                    relative=phrase.reading.relative,
                    open=phrase.open,
                )
            )
    return sorted(mentions, key=lambda mention: mention.start)


def resolve_time(
    phrase: str, *, anchor: datetime | None, told: Sequence[str] = ()
) -> TimeSpan | None:
    """Return the span that a whole phrase names.

    `told` are texts that it dates; where they speak of a plan, "Friday" is the next one,
    and where they neither plan nor report, it is none.

    `None` when it names none, or is relative and there is no anchor. Phrases outside
    the grammar go to dateparser, imported on first need; its answer is taken as a day,
    month or year. Without the extra `dates` they name no span.
    """
    said = phrase.strip()
    if not said or len(said) > MAX_PHRASE_CHARS:
        return None
    moment = as_utc(anchor) if anchor else None
    lean = cal.direction_told(told, said)
    whole = [
        phrase
        for phrase in grammar.phrases(said, moment, loose=True, most=None, lean=lean)
        if _IGNORED_BEFORE.fullmatch(said, 0, phrase.start)
        and _IGNORED_AFTER.fullmatch(said, phrase.end)
    ]
    longest = max(whole, key=lambda phrase: phrase.end - phrase.start, default=None)
    if told and longest is not None and longest.open:
        return None
    reading = longest.reading if longest else _fallback(said, moment)
    return None if reading is None else _span(reading, said)


_IGNORED_BEFORE = re.compile(
    r"(?:(?:sometime|some\s+time|in|on|at|during|around|about|approximately|circa|roughly|over|back"
    r"|the|it\s+was|was|for|from)\s+)*",
    re.I,
)
_IGNORED_AFTER = re.compile(r"[\s.,;:!?)]*")
_CUE = re.compile(
    r"(?:1[5-9]|2[01])\d\d(?!\d)|\d(?:[./]\d|-\d\d-|(?:st|nd|rd|th)\b|0['’]?s\b)|['’]\d\d\b"
    r"|(?=[a-fhjm-oqs-y])(?:"
    r"d(?:ay|ecade)|w(?:eek|inter)|mo(?:nth|rrow|rning)|year|night|e(?:vening|aster)"
    r"|a(?:fternoon|utumn)|s(?:pring|ummer)|fall|christmas|xmas|halloween|quarter"
    r"|t(?:hanksgiving|ies\b)|valentine|fortnight|(?:yr|hr|wk|min)s?\b"
    r"|\b(?:q[1-4]\b|a(?:go|pr|ug)|back|j(?:an|un|ul)|f(?:eb|ri)|m(?:ar|ay|on|inute)"
    r"|s(?:ep|at|un)|oct|nov|dec|t(?:ue|hu)|wed|hour))"
    r"|tag\b|woche|monat|jahr|ge?stern|heute|morgen|märz|mai\b|jänner|setiembre|okt|dez|mittwoch|don|frei|sonn|dien"
    r"|ayer|anoche|hoy|mañana|semana|mes(?:es)?\b|año|días?\b|ene|abr|dic|lunes|mi[ée]r|jueves|viernes|s[áa]b|dom",
)


def format_span(span: TimeSpan) -> str:
    """Word a span at its granularity.

    Wordings are "7 May 2023", "the week of 1 May 2023", "summer 2022", "27 May to 3
    June 2023" and "since 2016". A span that is not the calendar unit its granularity
    names is worded by its bounds. `resolve_time` reads the wording back.
    """
    if span.start is None:
        return "any time" if span.end is None else f"before {_bound(span.end)}"
    if span.end is None:
        return f"since {_bound(span.start)}"
    first = span.start.date()
    if span.granularity in (Granularity.MINUTE, Granularity.HOUR):
        clock = cal.clock_reading(span.start, span.granularity.value, relative=False)
        if (clock.start, clock.end) == (span.start, span.end):
            return _moment(span.start, span.granularity)
    elif span.granularity is not Granularity.RANGE:
        unit = cal.unit_reading(first, span.granularity.value, relative=False)
        if (unit.start, unit.end) == (span.start, span.end):
            return _unit(first, span.granularity)
    return _range(span.start, span.end)


# -- wording -----------------------------------------------------------------------------

_MONTHS = MONTHS["en"].title().split()


def _day(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year:04d}"


def _month(day: date) -> str:
    return f"{_MONTHS[day.month - 1]} {day.year:04d}"


def _moment(moment: datetime, granularity: Granularity) -> str:
    if granularity is Granularity.HOUR:
        return (
            f"{_day(moment.date())}, {moment.hour % 12 or 12} {'am' if moment.hour < 12 else 'pm'}"
        )
    return f"{_day(moment.date())}, {moment:%H:%M}"


def _bound(moment: datetime) -> str:
    """Name the coarsest unit that begins at a bound."""
    day = moment.date()
    if moment != cal.midnight(day):
        return _moment(moment, Granularity.MINUTE)
    if day.day > 1:
        return _day(day)
    return _month(day) if day.month > 1 else f"{day.year:04d}"


def _unit(first: date, granularity: Granularity) -> str:
    match granularity:
        case Granularity.WEEKEND:
            return f"weekend of {_day(first)}"
        case Granularity.WEEK:
            return f"the week of {_day(first)}"
        case Granularity.MONTH:
            return _month(first)
        case Granularity.SEASON:
            name = next(name for name, month in cal.SEASON_MONTHS.items() if month == first.month)
            return f"{name} {first.year}" + (
                f"/{(first.year + 1) % 100:02d}" if name == "winter" else ""
            )
        case Granularity.YEAR:
            return f"{first.year:04d}"
        case Granularity.DECADE:
            return f"the {first.year}s"
        case _:
            return _day(first)


def _range(start: datetime, end: datetime) -> str:
    first, stop = start.date(), end.date()
    if start != cal.midnight(first) or end != cal.midnight(stop):
        return f"{_moment(start, Granularity.MINUTE)} to {_moment(end, Granularity.MINUTE)}"
    last = stop - cal.DAY
    if (first.day, stop.day) == (1, 1):
        if (first.month, stop.month) == (1, 1):
            return (
                f"{first.year:04d}"
                if last.year == first.year
                else f"{first.year:04d} to {last.year:04d}"
            )
        if (first.year, first.month) == (last.year, last.month):
            return _month(first)
        from_month = _MONTHS[first.month - 1] if first.year == last.year else _month(first)
        return f"{from_month} to {_month(last)}"
    if first == last:
        return _day(first)
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {_day(last)}"
    day = f"{first.day} {_MONTHS[first.month - 1]}" if first.year == last.year else _day(first)
    return f"{day} to {_day(last)}"


# -- dateparser --------------------------------------------------------------------------

FALLBACK_LANGUAGES: tuple[str, ...] = tuple(
    "en es fr de it pt nl pl ru uk tr sv cs zh ja ko ar hi".split()
)
"""Languages that `resolve_time` asks dateparser for."""
_WORTH_ASKING = re.compile(r"(?=.*[^\W\d_])(?:.*\d|.*[^\x00-\x7f]|.*[a-z]{4})", re.I | re.S)


_NO_ANCHOR = date(2001, 3, 14)
_ELSEWHERE = timedelta(days=1_240)  # another weekday, month and year


def _fallback(said: str, anchor: datetime | None) -> Reading | None:
    """Ask dateparser for a phrase, twice from different days to learn if it is relative."""
    # dateparser reads "three weeks" as three weeks ago and "three" as March.
    bare_amount = rf"(?:for\s+)?{words.ABOUT}?{words.AMOUNT}(?:\s+{words.UNIT})?"
    if not _WORTH_ASKING.match(said) or re.fullmatch(bare_amount, said, re.I):
        return None
    base = anchor.date() if anchor else _NO_ANCHOR
    unit = _ask(said, base)
    relative = _ask(said, base + (_ELSEWHERE if base.year < 5_000 else -_ELSEWHERE)) != unit
    if unit is None or (relative and anchor is None):
        return None
    return cal.unit_reading(*unit, relative=relative)


@lru_cache(maxsize=4_096)
def _ask(said: str, base: date) -> tuple[date, cal.Unit] | None:
    """First day and unit of a phrase as read at noon of `base`."""
    parser = _parser(base)
    try:
        data = parser.get_date_data(said) if parser is not None else None
        if data is None or data.date_obj is None:
            return None
        unit = _PERIODS.get(data.period, "day")
        return cal.bounds(data.date_obj.date(), unit)[0], unit
    except (ValueError, OverflowError):
        return None


_PERIODS: dict[str | None, cal.Unit] = {"week": "week", "month": "month", "year": "year"}


@lru_cache(maxsize=256)
def _parser(base: date) -> DateDataParser | None:
    """Build dateparser's reader for a day; `None` without the extra `dates`."""
    try:
        from dateparser.date import DateDataParser  # lazy: no phrase of our own grammar needs it
    except ImportError:
        return None
    settings = {
        "RELATIVE_BASE": datetime(base.year, base.month, base.day, 12),
        "PREFER_DATES_FROM": "past",
        "RETURN_AS_TIMEZONE_AWARE": False,
    }
    return DateDataParser(
        languages=FALLBACK_LANGUAGES, try_previous_locales=False, settings=settings
    )


def _span(reading: Reading, said: str) -> TimeSpan:
    return TimeSpan(
        start=reading.start, end=reading.end, granularity=reading.granularity, text=said
    )
