"""From atoms to phrases: ranges of two atoms, and operators before an atom or a range.

Inner operators pick a part of a time ("early June", "the first week of August") or a
place next to it ("the week before X", "two days after X"); outer ones open a bound
("since X", "until X"). An atom that free text alone would not trust counts once an
operator stands before it. The surprise: operators are found by a search that must end
where the phrase starts, so the leftmost match is the longest operator, and "the week
before X" wins over "before X".

The atoms of the time grammar: every phrase that names a time by itself.

An atom is a regular expression, a reader that turns its match into a `Reading`, and a
guard that says what the match is worth in free text, where "may" is mostly a verb and
"2000" mostly a number. `phrases` joins atoms ("from X to Y") and puts operators before
them ("the week before X", "since X"). Patterns are written in lower case and match
lowered text, three times as fast as matching without regard to case; guards see the
text as written. The surprise: patterns are written once with named groups and used
twice, alone for reading and, with the names stripped, inside one compiled alternation
for scanning. Among the patterns that match at a place the longest readable one wins, so
their order means nothing.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import islice

from memagent.core.records import Granularity
from memagent.language import vocabulary as lexicon
from memagent.timex import calendar as cal, dates, vocabulary as words
from memagent.timex.calendar import Lean, Part, Reading, direction
from memagent.timex.vocabulary import Atom, Context, Match, Standing

ATOMS = dates.ATOMS + dates.RELATIVE_ATOMS + dates.FOREIGN_ATOMS


@cache
def any_atom() -> re.Pattern[str]:
    """Return the pattern that finds where an atom may start in lowered text.

    It joins all atoms. Those that start with a word share one test for its edge, the
    numeric ones one for a digit. It is compiled at first use, which takes longer than
    all other imports of this package.
    """
    bare = [re.sub(r"[?]P<[a-z0-9]+>", "?:", atom.source) for atom in ATOMS]
    worded = "|".join(source.removeprefix(r"\b") for source in bare if source.startswith(r"\b"))
    numeric = "|".join(source for source in bare if not source.startswith(r"\b"))
    return re.compile(rf"(?<!\w)(?=\w)(?:{worded})|(?=[\d'’])(?:{numeric})")


_INNER = re.compile(
    r"(?:\b(?P<part>early|mid|late|(?:the\s+)?(?:very\s+)?(?:beginning|start|middle|end)\s+of)[\s-]+"
    rf"|\b(?:the\s+)?(?P<nth>{words.ORDINAL})\s+(?P<what>day|week|weekend|month|quarter|half|{words.WEEKDAY})\s+(?:of|in)\s+"
    r"|\b(?:the\s+)?(?P<around>week|weekend|month|year)\s+(?:of|starting|beginning)\s+(?:on\s+)?"
    r"|\b(?:the\s+)?(?:night|evening|morning|afternoon|day)\s+of\s+"
    rf"|\b(?:the\s+)?(?:last\s+)?(?:(?P<night>night|evening|morning)|(?P<day>{words.WEEKDAY})|(?:(?P<count>{words.AMOUNT})\s+)?(?P<unit>{words.UNIT}))"
    r"\s+(?P<side>before|after|prior\s+to|following)\s+"
    r"|\b(?P<hour>[01]?\d|2[0-3])(?::(?P<minute>[0-5]\d))?\s*(?P<half>am|pm|a\.m\.|p\.m\.)?,?\s+on\s+"
    r")(?:the\s+)?\Z",
)
_OPERATOR_END = re.compile(
    r"(?:of|in|on|before|after|to|following|early|mid|late|starting|beginning|the)[\s-]+\Z"
)
_OPEN = re.compile(
    r"\b(?P<op>(?:ever\s+)?since|starting\s+(?:in|from)|before|prior\s+to|after|until|till|up\s+to|by)\s+(?:the\s+|on\s+|in\s+|around\s+|about\s+)*\Z",
)
_OPENER = re.compile(r"\b(?P<op>from|between)\s+(?:the\s+)?\Z")
_JOINER = re.compile(r"\s*(?:[-–—]|\b(?:to|until|till|through|thru|and)\b)\s*(?:the\s+)?")
_CLOCK_AFTER = re.compile(
    r"(?:,?\s+(?:at\s+)?|t)(?P<hour>[01]?\d|2[0-3])(?:(?::(?P<minute>[0-5]\d))(?::\d\d(?:\.\d+)?)?z?\s*(?P<half>am|pm)?|\s*(?P<half2>am|pm))(?![\w:])",
)
_PARTS: dict[str, Part] = {
    **dict.fromkeys(("early", "beginning", "start"), "early"),
    **dict.fromkeys(("mid", "middle"), "mid"),
    **dict.fromkeys(("late", "end"), "late"),
}
_SIDES = (Lean.PAST, Lean.FUTURE)
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_LEAP_YEAR = 2024  # stands for the year that a neighbour may still tell


@dataclass(frozen=True, slots=True)
class _Atom:
    """A match of one pattern in a text."""

    pattern: Atom
    match: Match
    standing: Standing


@dataclass(frozen=True, slots=True)
class Phrase:
    """A stretch of text with its meaning.

    `bare` while nothing but an atom that needs an operator has been read. `open` says
    that a plan would read it otherwise than a report, and the text is neither.
    """

    start: int
    end: int
    reading: Reading
    bare: bool
    open: bool = False


def phrases(
    text: str,
    anchor: datetime | None,
    *,
    loose: bool,
    most: int | None,
    lean: Lean = Lean.OPEN,
) -> Iterator[Phrase]:
    """Yield every readable phrase, grown as far as it goes; phrases may overlap.

    `loose` also takes atoms that free text needs more for; at most `most` atoms are read.
    Where the text shows no tense, incomplete dates `lean`.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals have longer small forms
        lowered = text.translate(_ASCII_LOWER)
    atoms = list(islice(_atoms(text, lowered, anchor, loose=loose), most))
    for index, atom in enumerate(atoms):
        if index + 1 < len(atoms) and _JOINER.match(lowered, atom.match.end()):
            pair = _pair(lowered, atom, atoms[index + 1], Context(anchor, lean), loose=loose)
            if pair:
                yield pair
        context = _context(lowered, atom, Context(anchor, lean))
        phrase = _inner(lowered, atom, context)
        if phrase is None:
            continue
        if context.lean is Lean.OPEN and phrase.reading.relative:
            sides = (_inner(lowered, atom, Context(anchor, side)) for side in _SIDES)
            undecided = len({side and side.reading for side in sides}) > 1
            phrase = replace(phrase, open=undecided)
        opened = _open(lowered, phrase)
        if loose or not opened.bare:
            yield opened
        if loose and opened is not phrase:
            yield phrase


def _atoms(text: str, lowered: str, anchor: datetime | None, *, loose: bool) -> Iterator[_Atom]:
    """Yield the longest readable atom at each place where one starts, left to right."""
    position, anywhere = 0, any_atom()
    while near := anywhere.search(lowered, position):
        position = near.start() + 1
        best: _Atom | None = None
        for pattern in ATOMS:
            match = pattern.regex.match(lowered, near.start())
            if match is None or (best is not None and match.end() <= best.match.end()):
                continue
            standing = Standing.ALONE if loose else pattern.guard(text, match)
            if standing is Standing.REFUSED:
                continue
            atom = _Atom(pattern, match, standing)
            if _read(atom, Context(anchor)) or _read(atom, Context(anchor, year=_LEAP_YEAR)):
                best = atom
        if best is not None:
            yield best
            position = best.match.end()


def _context(text: str, atom: _Atom, around: Context) -> Context:
    lean = direction(text, *atom.match.span())
    return around if lean is Lean.OPEN else replace(around, lean=lean)


def _read(atom: _Atom, ctx: Context) -> Reading | None:
    """Read an atom; `None` when it is no date of the calendar or lacks its anchor."""
    try:
        return atom.pattern.read(atom.match, ctx)
    except (ValueError, OverflowError):
        return None


def _inner(text: str, atom: _Atom, ctx: Context) -> Phrase | None:
    """Read an atom with the clock time behind it and the inner operators before it."""
    reading = _read(atom, ctx)
    if reading is None:
        return None
    start, end = atom.match.span()
    bare = atom.standing is Standing.WITH_OPERATOR
    clock = None if reading.relative else _CLOCK_AFTER.match(text, end)
    if clock and (timed := _with_clock(reading, clock)):
        reading, end = timed, clock.end()
    while _OPERATOR_END.search(text, max(0, start - 14), start):
        operator = _INNER.search(text, max(0, start - 48), start)
        if operator is None or (changed := _apply(operator, reading)) is None:
            break
        start, reading, bare = operator.start(), changed, False
    return Phrase(start, end, reading, bare)


def _apply(operator: Match, reading: Reading) -> Reading | None:
    """Apply one operator; `None` when it does not apply to this reading."""
    try:
        if operator["part"]:
            word = re.sub(r"^(?:the\s+)?(?:very\s+)?|\s+of$", "", operator["part"])
            return cal.part_of(reading, _PARTS[word])
        if operator["nth"]:
            return _apply_nth(operator, reading)
        if operator["around"]:
            unit = words.unit_named(operator["around"])[0]
            return cal.unit_reading(reading.first_day, unit, relative=reading.relative)
        if operator["side"]:
            return _apply_side(operator, reading)
        if operator["hour"]:
            return _with_clock(reading, operator)
        return reading if reading.granularity in (Granularity.DAY, Granularity.RANGE) else None
    except (ValueError, OverflowError):
        return None


def _apply_nth(operator: Match, reading: Reading) -> Reading | None:
    what = operator["what"]
    nth = words.ordinal_number(operator["nth"])
    if what in ("day", "week", "weekend", "month", "quarter", "half"):
        return cal.nth_of(reading, nth, what)
    return cal.nth_of(reading, nth, lexicon.weekday_number(what))


def _apply_side(operator: Match, reading: Reading) -> Reading | None:
    before = operator["side"] in ("before", "prior to")
    base = reading.first_day if before else reading.last_day
    sign = -1 if before else 1
    if operator["day"]:
        find = cal.weekday_before if before else cal.weekday_after
        return cal.one_day(
            find(base, lexicon.weekday_number(operator["day"])), relative=reading.relative
        )
    if operator["night"]:
        return cal.one_day(base + sign * cal.DAY, relative=reading.relative)
    unit, times = words.unit_named(operator["unit"])
    if unit in ("minute", "hour"):
        return None
    low, high = words.amount_range(operator["count"] or "one", unit)
    low, high = sorted((sign * low * times, sign * high * times))
    return cal.units_between(base, unit, low, high, relative=reading.relative)


def _with_clock(day: Reading, clock: Match) -> Reading | None:
    """Narrow a day to a time said before or after it; `None` when that is no time of day."""
    groups = clock.groupdict()
    half = (groups["half"] or groups.get("half2") or "").replace(".", "")
    hour, minute = int(groups["hour"]), groups["minute"]
    if (
        day.granularity is not Granularity.DAY
        or (not half and minute is None)
        or (half and not 1 <= hour <= 12)
    ):
        return None
    hour = hour % 12 + (12 if half == "pm" else 0) if half else hour
    start = cal.midnight(day.first_day) + timedelta(hours=hour, minutes=int(minute or 0))
    return cal.clock_reading(start, "hour" if minute is None else "minute", relative=day.relative)


def _pair(text: str, left: _Atom, right: _Atom, around: Context, *, loose: bool) -> Phrase | None:
    """Read the RANGE of "from X to Y", "between X and Y" and "X - Y"."""
    first = _inner(text, left, _context(text, left, around))
    second = _inner(text, right, _context(text, right, around))
    first, second = _agree(text, (left, first), (right, second), around.anchor)
    if first is None or second is None:
        return None
    joiner = _JOINER.fullmatch(text, left.match.end(), max(left.match.end(), second.start))
    if joiner is None:
        return None
    opener = _OPENER.search(text, max(0, first.start - 16), first.start)
    between = opener is not None and opener["op"] == "between"
    if joiner[0].strip().startswith("and") and not between:
        return None
    low, high = first.reading, second.reading
    if (
        opener is None
        and not loose
        and (first.bare or second.bare or low.relative != high.relative)
    ):
        return None
    if low.start is None or high.end is None or low.start >= high.end:
        return None
    reading = Reading(low.start, high.end, Granularity.RANGE, low.relative or high.relative)
    return Phrase(opener.start() if opener else first.start, second.end, reading, False)


def _agree(
    text: str,
    left: tuple[_Atom, Phrase | None],
    right: tuple[_Atom, Phrase | None],
    anchor: datetime | None,
) -> tuple[Phrase | None, Phrase | None]:
    """Let the end of a range without a year follow the end that has one.

    An example is "27 December to 3 January 2024".
    """
    (left_atom, first), (right_atom, second) = left, right
    if second and not second.reading.relative and (first is None or first.reading.relative):
        for year in (second.reading.first_day.year, second.reading.first_day.year - 1):
            dated = _inner(text, left_atom, Context(anchor, year=year))
            if dated and dated.reading.first_day <= second.reading.last_day:
                return dated, second
    elif first and not first.reading.relative and (second is None or second.reading.relative):
        for year in (first.reading.first_day.year, first.reading.first_day.year + 1):
            dated = _inner(text, right_atom, Context(anchor, year=year))
            if dated and dated.reading.last_day >= first.reading.first_day:
                return first, dated
    elif first and second and first.reading.first_day > second.reading.last_day:
        later = _inner(
            text, right_atom, Context(cal.midnight(first.reading.first_day), Lean.FUTURE)
        )
        return first, later or second
    return first, second


def _open(text: str, phrase: Phrase) -> Phrase:
    """Join the phrase with a "since", "before" or their kin that stands before it."""
    operator = _OPEN.search(text, max(0, phrase.start - 32), phrase.start)
    if operator is None:
        return phrase
    word, reading = operator["op"], phrase.reading
    if word.endswith("since") or word.startswith("starting"):
        bounds = reading.start, None
    elif word == "after":
        bounds = reading.end, None
    else:
        bounds = None, reading.start if word in ("before", "prior to") else reading.end
    opened = Reading(*bounds, Granularity.RANGE, reading.relative)
    return replace(phrase, start=operator.start(), reading=opened, bare=False)
