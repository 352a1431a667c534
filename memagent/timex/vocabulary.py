"""The vocabulary of the time grammar: fragments of patterns, values of words, context.

Nothing here knows a whole phrase. Marks of a plan around a phrase (`tense`) turn
incomplete dates forward; without one they point back, as told memories do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import cached_property
from typing import get_args

from memagent.language.vocabulary import COUNTS, SMALL_NUMBERS, TENS
from memagent.timex.calendar import CLOCK, Lean, Reading, Unit, direction, moved_to

Match = re.Match[str]


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a phrase: the anchor, which way incomplete dates lean, a year told nearby."""

    anchor: datetime | None
    lean: Lean = Lean.OPEN
    year: int | None = None

    @property
    def now(self) -> datetime:
        """The anchor; raises `ValueError` without one."""
        if self.anchor is None:
            raise ValueError("a relative phrase is read without an anchor")
        return self.anchor

    @property
    def today(self) -> date:
        """The anchor's day (UTC)."""
        return self.now.date()


class Standing(Enum):
    """The worth of a match in free text."""

    REFUSED = "refused"
    WITH_OPERATOR = "with an operator"
    """Counts only after an operator such as "since" or "the week before"."""
    ALONE = "alone"


_ORDINALS: Sequence[str] = "first second third fourth fifth".split()
_TENS, _SMALL = TENS.split(), SMALL_NUMBERS["en"].split()
_NUMBER_WORD = (
    rf"(?:{'|'.join(_TENS)})(?:[\s-](?:{'|'.join(_SMALL[:9])}))?|{'|'.join(reversed(_SMALL))}"
)

MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)(?:\.(?=,?\s+['’]?\d))?)(?![a-z])"
)
WEEKDAY = (
    r"(?:mon(?:day)?|tues?(?:day)?|wed(?:nesday)?|thu(?:rs?)?(?:day)?|fri(?:day)?|sat(?:urday)?"
    r"|sun(?:day)?)\b"
)
SEASON = r"(?:spring|summer|autumn|fall|winter)\b"
UNIT = r"(?:minute|min|hour|hr|day|weekend|week|wk|fortnight|month|quarter|year|yr|decade)s?\b"
LONG_UNIT = r"(?:weekend|week|fortnight|month|quarter|year|decade)\b"
AMOUNT = (
    rf"(?:(?:a\s+)?couple(?:\s+of)?|(?:a\s+)?few|several|half\s+an?|an?|\d{{1,4}}|{_NUMBER_WORD})\b"
)
ORDINAL = rf"(?:{'|'.join(_ORDINALS)}|last|\d(?:st|nd|rd|th))\b"
PART_OF_DAY = r"(?:morning|afternoon|evening|night)\b"
DAY_OF_MONTH = r"(?:3[01]|[12]\d|0?[1-9])(?!\d)"
YEAR4 = r"(?:1[5-9]|2[01])\d\d(?!\d)"
YEAR = rf"(?:(?P<y>{YEAR4})|['’](?P<yy>\d\d)\b|(?P<yr>last|this|next)\s+year\b)"
OF_YEAR = rf"(?:,?\s+(?:of\s+)?{YEAR})"
ABOUT = (
    r"(?:(?:about|around|approximately|roughly|nearly|almost|over|more\s+than|less\s+than|exactly)"
    r"\s+)"
)

WHICH = r"(?P<which>this\s+past|this\s+coming|last|past|previous|this|next|coming)"
NAME = rf"(?:(?P<name>{WEEKDAY}),?\s+)?"
DAY = rf"(?P<d>{DAY_OF_MONTH})(?P<th>st|nd|rd|th)?\b"
DAY2 = rf"(?:the\s+)?(?P<d2>{DAY_OF_MONTH})(?:st|nd|rd|th)?\b"
TO = r"\s*(?:-|–|—|\bto\b|\band\b|\bthrough\b|\buntil\b)\s*"
SPAN_END = rf"(?:{OF_YEAR}|(?=\s*(?:[.,;:!?)]|\Z)))"

TURNS = {
    **dict.fromkeys(("last", "past", "this past", "previous"), -1),
    "this": 0,
    **dict.fromkeys(("next", "coming", "this coming"), 1),
}
"""Units that a word such as "last" or "this coming" moves by."""
_UNITS: dict[str, tuple[Unit, int]] = {
    **{name: (name, 1) for name in get_args(Unit)},
    "min": ("minute", 1),
    "hr": ("hour", 1),
    "wk": ("week", 1),
    "fortnight": ("week", 2),
    "yr": ("year", 1),
}


def unit_named(word: str) -> tuple[Unit, int]:
    """Return the unit behind "weeks" or "fortnight", and how many of it the word means."""
    return _UNITS[word.lower().rstrip("s")]


def ordinal_number(word: str) -> int:
    """Return 1 for "first" and "1st", -1 for "last"."""
    bare = word.lower()
    if bare == "last":
        return -1
    return int(bare[0]) if bare[0].isdigit() else _ORDINALS.index(bare) + 1


def count_of(words: str) -> int:
    """Return the number behind "12", "twelve" or "twenty-five"; 1 for "a", 2 for "a couple of"."""
    bare = words.lower()
    if bare.isdigit():
        return int(bare)
    if "couple" in bare:
        return 2
    return sum(COUNTS.get(word, 0) for word in re.split(r"[\s-]+", bare)) or 1


def amount_range(words: str, unit: Unit) -> tuple[int, int]:
    """Return the least and greatest count, equal for exact words.

    "A few" is 2..4 (of days 1..7, a week around three) and "several" 3..7.
    """
    bare = words.lower()
    if "few" in bare:
        return (1, 7) if unit == "day" else (2, 4)
    if "several" in bare:
        return (3, 7)
    count = count_of(bare)
    return count, count


def short_year(digits: str) -> int:
    """Return the year behind two digits: 00..49 are 20xx, 50..99 are 19xx."""
    return int(digits) + (2000 if int(digits) < 50 else 1900)


def stated_year(match: Match, ctx: Context) -> tuple[int | None, bool]:
    """Return the year said with a date and whether it needs an anchor.

    The year is "2023", "'98" or "last year"; `None` when none was said.
    """
    groups = match.groupdict()
    if groups.get("y"):
        return int(groups["y"]), False
    if groups.get("yy"):
        return short_year(groups["yy"]), False
    if groups.get("yr"):
        return ctx.today.year + TURNS[groups["yr"]], True
    return (ctx.year, False) if ctx.year is not None else (None, True)


def year_of_month(month: int, which: str, ctx: Context) -> int:
    """Return the year of a month said without one: "last March", "this June", "August"."""
    year, now = ctx.today.year, ctx.today.month
    turn = TURNS.get(which)
    if turn is not None:
        return year - (month >= now) if turn < 0 else year + (turn > 0 and month <= now)
    return year + (month < now) if ctx.lean is Lean.FUTURE else year - (month > now)


def which_of(match: Match) -> str:
    """Return the word such as "last" or "this coming" in a match; "" when there is none."""
    return " ".join((match.groupdict().get("which") or "").split())


def turn_of(match: Match) -> int | None:
    """Return -1 for "last", 0 for "this", 1 for "next", None for no such word."""
    return TURNS.get(which_of(match))


# -- guards: the worth of a match on lowered text in the text as written -----------------

_TIMELY = re.compile(
    r"\b(?:in|on|at|by|since|until|till|before|after|from|during|around|about|over|between|early|mid|late|earlier)"
    r"[\s-]+(?:the\s+)?\Z",
)
_FESTIVE = re.compile(
    r"\b(?:for|since|until|till|before|after|during|around|over|at|on|by|in)\s+\Z"
)
_THE_DECADE = re.compile(r"\bthe\s+(?:(?:early|mid|late)[\s-]+)?\Z")
_COUNTED = re.compile(
    r"\s*(?:%|€|\$|(?:people|persons?|miles|km|k|m|kg|meters|metres|steps|dollars|euros|pounds|words|calories|times|pm|am)\b)",
)
_STREET = re.compile(
    r"(?:\s+[A-Z][\w.'’-]*){1,3}\s+(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd"
    r"|Way|Court|Ct|Square|Place|Terrace|Highway)\b"
)
_DAY_BEFORE = re.compile(rf"\b{DAY_OF_MONTH}(?:st|nd|rd|th)?(?:\s+of)?[\s-]+\Z")
_DAY_AFTER = re.compile(r"\s+(?:the\s+)?(?:30|31)(?:st|th)?(?=,?\s+\d{4}\b|\s*(?:[.,;:!?)]|\Z))")
_AFTER_MODAL = re.compile(
    r"\s+(?:be|have|not|also|well|or|seem|need|want|i|you|he|she|we|they|it)\b"
)
_NOTHING_COUNTED = re.compile(
    r"\s*(?:[.,;:!?)]|\Z|(?:and|at|after|before|with|for|we|i|he|she|they|so|but|because|when)\b)"
)


def guard_anywhere(_text: str, _match: Match) -> Standing:
    """Accept the phrase wherever it stands."""
    return Standing.ALONE


def guard_preposition(_text: str, match: Match) -> Standing:
    """Accept it after a preposition of time, unless a counted thing follows ("in 2000 steps")."""
    if _COUNTED.match(match.string, match.end()):
        return Standing.REFUSED
    return Standing.ALONE if _follows(_TIMELY, match) else Standing.WITH_OPERATOR


def guard_year(text: str, match: Match) -> Standing:
    """Accept it as `guard_preposition` does, but for the number of a house in a street."""
    if _STREET.match(text, match.end()):
        return Standing.REFUSED
    return guard_preposition(text, match)


def guard_verb_month(text: str, match: Match) -> Standing:
    """Refuse the verbs "may" and "march".

    In lower case they are verbs unless a year, an ordinal or a preposition says otherwise.
    """
    word, groups = _written(text, match, "m").rstrip("."), match.groupdict()
    if groups.get("y") or groups.get("th") or word not in ("may", "march", "mar"):
        return Standing.ALONE
    modal = _AFTER_MODAL.match(match.string, match.end())
    return _alone_if(not modal and _follows(_TIMELY, match))


def guard_real_day(text: str, match: Match) -> Standing:
    """Refuse the month of a day that it does not have: "31 February 2023"."""
    later = None if match.groupdict().get("y") else _DAY_AFTER.match(text, match.end())
    return _alone_if(not (_follows(_DAY_BEFORE, match) or later))


def guard_month(text: str, match: Match) -> Standing:
    """Accept "October" anywhere.

    Short forms and names that people bear count only after a preposition.
    """
    standing = guard_verb_month(text, match)
    if Standing.REFUSED in (standing, guard_real_day(text, match)):
        return Standing.REFUSED
    if len(match["m"]) > 5 or match["m"] == "july":
        return standing
    return guard_preposition(text, match)


def guard_which_month(text: str, match: Match) -> Standing:
    """Accept "last May", but not "this may" and "the next march"."""
    word = _written(text, match, "m").rstrip(".")
    verb = word == "may" or (word == "march" and match["which"] != "last")
    return _alone_if(not verb and not (len(word) == 3 and word.islower()))


_DAY_SET = re.compile(
    r"\b(?:see\s+you|for|let['’]s\s+(?:do|say)|how\s+about|what\s+about|deadline)\s+\Z"
)
_CLOCK = re.compile(CLOCK)


def guard_weekday(text: str, match: Match) -> Standing:
    """Accept "on Friday", "see you Friday" and "Friday 7pm"; "sat" only with a capital."""
    if _written(text, match, "d") in ("sat", "sun", "wed", "mon"):
        return Standing.REFUSED
    groups = match.groupdict()
    if groups.get("which") or groups.get("week") or moved_to(match.string, match.start()):
        return Standing.ALONE
    near = max(0, match.start() - 20)
    if _DAY_SET.search(match.string, near, match.start()) or _CLOCK.match(
        match.string, match.end()
    ):
        return Standing.ALONE
    return guard_preposition(text, match)


def guard_second_weekday(text: str, match: Match) -> Standing:
    """Accept "Saturday week"; a day's short form needs a capital."""
    return _alone_if(_written(text, match, "d") not in ("sat", "sun", "wed", "mon"))


def guard_holiday(_text: str, match: Match) -> Standing:
    """Accept "at Christmas", but no Christmas tree."""
    groups = match.groupdict()
    dated = groups["which"] or groups["y"] or groups["yr"] or match["h"].endswith((" eve", " day"))
    return Standing.ALONE if dated or _follows(_FESTIVE, match) else Standing.WITH_OPERATOR


def guard_decade(_text: str, match: Match) -> Standing:
    """Accept "the 90s" and "1990s", but no age ("in my 20s")."""
    return _alone_if((match["n"] and len(match["n"]) == 4) or _follows(_THE_DECADE, match))


def guard_plan(_text: str, match: Match) -> Standing:
    """Accept "in two weeks" in a plan; in a report it is a duration."""
    return _alone_if(direction(match.string, *match.span()) is Lean.FUTURE)


def guard_report(_text: str, match: Match) -> Standing:
    """Accept "for two years" in a report; in a plan it reaches ahead."""
    return _alone_if(direction(match.string, *match.span()) is not Lean.FUTURE)


def guard_ordinal(_text: str, match: Match) -> Standing:
    """Accept "on the 15th", but not "on the 15th floor"."""
    counts = _left_of(match, 3) in ("on ", "by ") and _NOTHING_COUNTED.match(
        match.string, match.end()
    )
    return _alone_if(match["which"] or counts)


def guard_season(_text: str, match: Match) -> Standing:
    """Ask for an operator before a bare season; "inspired by autumn" has none."""
    return Standing.REFUSED if _left_of(match, 3) == "by " else Standing.WITH_OPERATOR


def _alone_if(accepted: object) -> Standing:
    return Standing.ALONE if accepted else Standing.REFUSED


def _written(text: str, match: Match, group: str) -> str:
    """Return a group of a match on lowered text as the text has it."""
    return text[match.start(group) : match.end(group)]


def _left_of(match: Match, count: int) -> str:
    return match.string[max(0, match.start() - count) : match.start()]


def _follows(pattern: re.Pattern[str], match: Match) -> bool:
    return pattern.search(match.string, max(0, match.start() - 24), match.start()) is not None


# -- atoms: a pattern, its reader and its guard ---------------------------------------------


@dataclass(frozen=True)
class Atom:
    """One kind of phrase: its spelling (in lower case), its reader and its guard."""

    source: str
    read: Callable[[Match, Context], Reading]
    guard: Callable[[str, Match], Standing] = guard_anywhere

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern of the spelling."""
        return re.compile(self.source)
