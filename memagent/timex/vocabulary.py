"""The vocabulary of the time grammar: fragments of regular expressions, the values
behind words, and what context tells.

Nothing here knows a whole phrase. The surprise is `leans_future`: English leaves it to
the clause whether "on Friday" is past or coming, so a few marks of a plan ("going to",
"'ll", "we're meeting") to the left of a phrase turn incomplete dates forward; without
one they point back, as told memories do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import get_args

from memagent.timex.calendar import Lean, Unit

Match = re.Match[str]


class Unanchored(Exception):
    """A relative phrase was read without an anchor."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a phrase is read against: the anchor moment, which way incomplete dates
    lean, a year told by a neighbour.
    """

    anchor: datetime | None
    lean: Lean = Lean.PAST
    year: int | None = None

    @property
    def now(self) -> datetime:
        """The anchor; raises `Unanchored` without one."""
        if self.anchor is None:
            raise Unanchored
        return self.anchor

    @property
    def today(self) -> date:
        """The anchor's day (UTC)."""
        return self.now.date()


class Standing(Enum):
    """What a match is worth in free text."""

    REFUSED = "refused"
    WITH_OPERATOR = "with an operator"
    """Counts only after an operator such as "since" or "the week before"."""
    ALONE = "alone"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_MONTHS = _listed("jan feb mar apr may jun jul aug sep oct nov dec")
_WEEKDAYS = _listed("mon tue wed thu fri sat sun")
_SMALL = _listed(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
    " nineteen"
)
_TENS = _listed("twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINALS = _listed("first second third fourth fifth")
_COUNTS = dict(zip(_SMALL, range(1, 20), strict=True)) | dict(
    zip(_TENS, range(20, 100, 10), strict=True)
)
_NUMBER_WORD = (
    rf"(?:{'|'.join(_TENS)})(?:[\s-](?:{'|'.join(_SMALL[:9])}))?|{'|'.join(reversed(_SMALL))}"
)

MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)(?:\.(?=,?\s+['’]?\d))?)(?![a-z])"
)
WEEKDAY = r"(?:mon(?:day)?|tues?(?:day)?|wed(?:nesday)?|thu(?:rs?)?(?:day)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?)\b"
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
ABOUT = r"(?:(?:about|around|approximately|roughly|nearly|almost|over|more\s+than|less\s+than|exactly)\s+)"

WHICH = r"(?P<which>this\s+past|this\s+coming|last|past|previous|this|next|coming)"
NAME = rf"(?:(?P<name>{WEEKDAY}),?\s+)?"
DAY = rf"(?P<d>{DAY_OF_MONTH})(?P<th>st|nd|rd|th)?\b"
DAY2 = rf"(?:the\s+)?(?P<d2>{DAY_OF_MONTH})(?:st|nd|rd|th)?\b"
TO = r"\s*(?:-|–|—|\bto\b|\band\b|\bthrough\b|\buntil\b)\s*"
SPAN_END = rf"(?:{OF_YEAR}|(?=\s*(?:[.,;:!?)]|\Z)))"

_ALIASES: dict[str, tuple[Unit, int]] = {
    "min": ("minute", 1),
    "hr": ("hour", 1),
    "wk": ("week", 1),
    "fortnight": ("week", 2),
    "yr": ("year", 1),
}
_UNITS: dict[str, tuple[Unit, int]] = {name: (name, 1) for name in get_args(Unit)} | _ALIASES

_DOING = r"(?:\s+(?!been\b)\w+)?\s+(?!\w*(?:thing|amazing|exciting|interesting|boring)\b)\w+ing"
_FUTURE_CUE = re.compile(
    r"\b(?:will|won['’]t|shall|gonna|going\s+to|about\s+to|plan(?:s|ning)?\s+(?:to|on|for)|planned|see\s+you|upcoming"
    r"|coming\s+up|looking\s+forward|can['’]t\s+wait|hop(?:e|ing)\s+to|wants?\s+to|let['’]s|scheduled|booked|starts|leaves|due"
    rf"|(?:am|is|are|['’](?:m|re|s)){_DOING}|(?:is|are|['’](?:s|re))\s+(?:on|in))\b|['’]ll\b"
    r"|(?:\b(?:is|are)|['’](?:s|re))\s+\Z"
)
_FUTURE_AFTER = re.compile(
    rf",?\s+\w+(?:['’]ll\b|\s+(?:will|won['’]t|shall)\b|(?:['’](?:m|re|s)|\s+(?:am|are|is)){_DOING}\b)"
)
_CLAUSE_END = re.compile(r"[.!?;\n]")
_SINCE = re.compile(r"\bsince\s+(?:the\s+)?\Z")
_DEADLINE = re.compile(
    r"\b(?:until|till|by)\s+(?:the\s+)?(?:(?:early|mid|late|(?:beginning|start|middle|end)\s+of)[\s-]+(?:the\s+)?)?\Z"
)
_PAST_CUE = re.compile(r"\b(?:was|were|did|had|went|took|made|got|lived|\w+ed)\b")


def month_number(word: str) -> int:
    """1 for "January", "jan" and "Jan."."""
    return _MONTHS.index(word[:3].lower()) + 1


def weekday_number(word: str) -> int:
    """0 for "Monday" and "mon"."""
    return _WEEKDAYS.index(word[:3].lower())


def unit_named(word: str) -> tuple[Unit, int]:
    """The unit behind "weeks" or "fortnight", and how many of it the word stands for."""
    return _UNITS[word.lower().rstrip("s")]


def ordinal_number(word: str) -> int:
    """1 for "first" and "1st", -1 for "last"."""
    bare = word.lower()
    if bare == "last":
        return -1
    return int(bare[0]) if bare[0].isdigit() else _ORDINALS.index(bare) + 1


def count_of(words: str) -> int:
    """The number behind "12", "twelve" or "twenty-five"; "a" is 1 and "a couple of" is 2."""
    bare = words.lower()
    if bare.isdigit():
        return int(bare)
    if "couple" in bare:
        return 2
    return sum(_COUNTS.get(word, 0) for word in re.split(r"[\s-]+", bare)) or 1


def amount_range(words: str, unit: Unit) -> tuple[int, int]:
    """Least and greatest count, equal for exact words; "a few" is 2..4 (of days 1..7, a
    week around three) and "several" 3..7.
    """
    bare = words.lower()
    if "few" in bare:
        return (1, 7) if unit == "day" else (2, 4)
    if "several" in bare:
        return (3, 7)
    count = count_of(bare)
    return count, count


def short_year(digits: str) -> int:
    """The year behind two digits: 00..49 are 20xx, 50..99 are 19xx."""
    return int(digits) + (2000 if int(digits) < 50 else 1900)


def told_year(match: Match, ctx: Context) -> tuple[int | None, bool]:
    """The year said with a date ("2023", "'98", "last year"), and whether an anchor is
    needed; `None` when none was said.
    """
    groups = match.groupdict()
    if groups.get("y"):
        return int(groups["y"]), False
    if groups.get("yy"):
        return short_year(groups["yy"]), False
    if groups.get("yr"):
        return ctx.today.year + {"last": -1, "this": 0, "next": 1}[groups["yr"]], True
    return (ctx.year, False) if ctx.year is not None else (None, True)


def year_of_month(month: int, which: str, ctx: Context) -> int:
    """The year of a month said without one: "last March", "this June", or just "August"."""
    year, now = ctx.today.year, ctx.today.month
    if which in ("last", "past", "this past", "previous"):
        return year - (month >= now)
    if which in ("next", "coming", "this coming"):
        return year + (month <= now)
    if which == "this":
        return year
    return year + (month < now) if ctx.lean is Lean.FUTURE else year - (month > now)


def leans_future(lowered: str, start: int, end: int) -> bool:
    """Whether the clause around a phrase at `[start, end)` of a lowered text speaks of a plan."""
    clause = _CLAUSE_END.split(lowered[max(0, start - 60) : start])[-1]
    if _SINCE.search(clause):
        return False
    if _FUTURE_CUE.search(clause) or _FUTURE_AFTER.match(lowered, end):
        return True
    return _DEADLINE.search(clause) is not None and not _PAST_CUE.search(clause)


# --- guards: what a match on lowered text is worth in the text as written --------------------------------------------

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
_AFTER_MODAL = re.compile(
    r"\s+(?:be|have|not|also|well|or|seem|need|want|i|you|he|she|we|they|it)\b"
)
_NOTHING_COUNTED = re.compile(
    r"\s*(?:[.,;:!?)]|\Z|(?:and|at|after|before|with|for|we|i|he|she|they|so|but|because|when)\b)"
)


def guard_nothing(text: str, match: Match) -> Standing:
    """The phrase is a time wherever it stands."""
    return Standing.ALONE


def guard_preposition(text: str, match: Match) -> Standing:
    """The phrase is a time after a preposition of time, unless a counted thing follows
    ("in 2000 steps").
    """
    if _COUNTED.match(match.string, match.end()):
        return Standing.REFUSED
    return Standing.ALONE if _left(_TIMELY, match) else Standing.WITH_OPERATOR


def guard_verb_month(text: str, match: Match) -> Standing:
    """ "may" and "march" in lower case are verbs unless a year, an ordinal or a
    preposition says otherwise.
    """
    word, groups = _written(text, match, "m").rstrip("."), match.groupdict()
    if groups.get("y") or groups.get("th") or word not in ("may", "march", "mar"):
        return Standing.ALONE
    if _AFTER_MODAL.match(match.string, match.end()) or not _left(_TIMELY, match):
        return Standing.REFUSED
    return Standing.ALONE


def guard_month(text: str, match: Match) -> Standing:
    """A month alone: "October" counts anywhere, short forms and names that people bear
    only after a preposition.
    """
    standing = guard_verb_month(text, match)
    if standing is Standing.REFUSED or len(match["m"]) > 5 or match["m"] == "july":
        return standing
    return guard_preposition(text, match)


def guard_which_month(text: str, match: Match) -> Standing:
    """ "last May" counts; "this may" and "the next march" are other words."""
    word = _written(text, match, "m").rstrip(".")
    verb = word == "may" or (word == "march" and match["which"] != "last")
    return Standing.REFUSED if verb or (len(word) == 3 and word.islower()) else Standing.ALONE


def guard_weekday(text: str, match: Match) -> Standing:
    """ "on Friday" counts; "sat", "sun", "wed" and "mon" only with a capital."""
    if _written(text, match, "d") in ("sat", "sun", "wed", "mon"):
        return Standing.REFUSED
    groups = match.groupdict()
    return (
        Standing.ALONE
        if groups.get("which") or groups.get("week")
        else guard_preposition(text, match)
    )


def guard_holiday(text: str, match: Match) -> Standing:
    """ "at Christmas" counts, a Christmas tree does not."""
    groups = match.groupdict()
    told = groups["which"] or groups["y"] or groups["yr"] or match["h"].endswith((" eve", " day"))
    return Standing.ALONE if told or _left(_FESTIVE, match) else Standing.WITH_OPERATOR


def guard_decade(text: str, match: Match) -> Standing:
    """ "the 90s" and "1990s" count; "in my 20s" is an age."""
    whole = match["n"] and len(match["n"]) == 4
    return Standing.ALONE if whole or _left(_THE_DECADE, match) else Standing.REFUSED


def guard_plan(text: str, match: Match) -> Standing:
    """ "in two weeks" is a date in a plan and a duration in a report."""
    return (
        Standing.ALONE
        if leans_future(match.string, match.start(), match.end())
        else Standing.REFUSED
    )


def guard_report(text: str, match: Match) -> Standing:
    """ "for two years" reaches back in a report and ahead in a plan."""
    return (
        Standing.REFUSED
        if leans_future(match.string, match.start(), match.end())
        else Standing.ALONE
    )


def guard_ordinal(text: str, match: Match) -> Standing:
    """ "on the 15th" counts, "on the 15th floor" does not."""
    if match["which"]:
        return Standing.ALONE
    before = match.string[max(0, match.start() - 3) : match.start()]
    counts = before in ("on ", "by ") and _NOTHING_COUNTED.match(match.string, match.end())
    return Standing.ALONE if counts else Standing.REFUSED


def guard_season(text: str, match: Match) -> Standing:
    """A bare season needs an operator, and "inspired by autumn" is none."""
    return (
        Standing.REFUSED
        if match.string[max(0, match.start() - 3) : match.start()] == "by "
        else Standing.WITH_OPERATOR
    )


def _written(text: str, match: Match, group: str) -> str:
    """A group of a match on lowered text as the text has it."""
    return text[match.start(group) : match.end(group)]


def _left(pattern: re.Pattern[str], match: Match) -> bool:
    return pattern.search(match.string, max(0, match.start() - 24), match.start()) is not None
