"""Calendar arithmetic behind the time grammar.

Every function works on civil dates and gives a `Reading`: a half-open span with a
granularity and whether an anchor was needed. Days are UTC days, weeks run Monday to
Sunday, seasons are the meteorological ones of the northern hemisphere (winter 2022 is
December 2022 to February 2023). The surprise: an offset counts calendar units, not
durations, so "two weeks ago" is the whole week two weeks back and "a year ago" is the
whole previous year, the way people mean it in talk. Dates outside years 1..9999 raise
`OverflowError` or `ValueError`; the caller turns both into "not a time".

The tense around a time: whether its clause reports, plans, or leaves it open.

Grammar leaves it to the clause whether "on Friday" is the last one or the next. A thing
moved, set or booked *to* a time lies ahead, whatever the tense of the verb. Then marks
of a plan decide ("we will", "is leaving"), then a verb of the past, then a verb of the
present or a noun of plans ("appointment", "exam"). The clause is read first, the whole
sentence only where the clause is silent. English, German and Spanish in plain forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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


_DOING = r"(?:\s+(?!been\b)\w+)?\s+(?!\w*(?:thing|amazing|exciting|interesting|boring)\b)\w+ing"
_FUTURE_CUE = re.compile(
    r"\b(?:will|won['’]t|shall|gonna|going\s+to|about\s+to|plan(?:s|ning)?\s+(?:to|on|for)|planned|see\s+you|upcoming"
    r"|coming\s+up|looking\s+forward|can['’]t\s+wait|hop(?:e|ing)\s+to|wants?\s+to|needs?\s+to|(?:have|has)\s+(?:(?:i|we|you|they|he|she)\s+)?got\s+(?!(?:the|this|these|those|sick|lost|hurt|married|\w+ed)\b)\w+|let(?:['’]s|\s+us)|scheduled|booked|starts|leaves|due"
    rf"|(?:am|is|are|['’](?:m|re|s)){_DOING}|(?:is|are|['’](?:s|re))\s+(?:on|in)"
    r"|werde|wirst|wird|werden|werdet|soll(?:en)?|vorhabe|voy\s+a|va\s+a|vamos\s+a|van\s+a"
    r"|(?!para)\w{2,}(?:[aei]ré|[aei]rá|[aei]rán|[aei]remos))\b|['’](?:ll|ve\s+got\s+(?!(?:the|this|these|those|sick|lost|hurt|married|\w+ed)\b)\w+)\b"
    r"|(?:\b(?:is|are)|['’](?:s|re))\s+\Z"
)
_FUTURE_AFTER = re.compile(
    rf",?\s+\w+(?:['’]ll\b|\s+(?:will|won['’]t|shall)\b|(?:['’](?:m|re|s)|\s+(?:am|are|is)){_DOING}\b)"
)
_MOVED_TO = re.compile(
    r"\b(?:(?:re)?(?:scheduled?|booked)|mov(?:e|ed|ing)|postpon(?:e|ed|ing)|push(?:ed|ing)?|delay(?:ed)?|deferr?(?:ed)?|shift(?:ed)?|chang(?:e|ed|ing)|brought|put|set|fixed|planned"
    r"|reserved|arranged|announced|registered|invited|signed\s+up|tickets?|reservation|appointment|table|book(?:ing)?|(?:re)?schedule)\b"
    r"[^.!?;]{0,60}\b(?:to|for|until|till)\s+(?:the\s+)?\Z"
    r"|\b(?:auf|für|zum)\s+(?:de[nm]\s+)?\Z|\b(?:para|al?|hasta)\s+(?:el\s+)?\Z"
)
# News of an arrangement, and what is to come of it: "we found a flat, moving in on". Who
# tells news tells it soon, so the time is ahead, unless it lies beside a verb of the past.
_ARRANGED = re.compile(
    r"\b(?:got|signed|found|landed|accept(?:ed)?|approved|enrol{1,2}ed|passed|quit|resigned|left|leaving|hired|offered|promoted|engaged|adopted|bought|sold"
    r"|joined|rented|leased|admitted|elected|selected|chosen|won|received|confirmed|agreed|inherited)\b"
    r"(?:(?!\b(?:ago|last|(?:in|on)\s+(?:the\s+)?(?:\d|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*|spring|summer|fall|autumn|winter))\b)[^.!?;])*?"
    r"(?:,\s+(?:and\s+)?(?:i['’]m\s+|we['’]re\s+|then\s+)?(?:starting|beginning|moving|leaving|flying|heading|travel{1,2}ing|closing|getting|graduating|picking"
    r"|launching|opening|switching|joining|retiring|relocating|handing|taking\s+over|effective)\b[^,.!?;]*|\b(?:starting|beginning|effective)\s+(?:\w+\s+)?)\Z"
)
_BEGINNING = re.compile(r"(?:starting|beginning|effective)\s+")
_MOVED_AFTER = re.compile(
    r"[^.!?;]*\b(?:verschoben|verlegt|gebucht|reserviert|geplant|angesetzt|vereinbart|festgelegt)\b"
)
_FORWARD_NOUN = re.compile(
    r"\b(?:(?<!(?:ark|eed)ing )tickets?|signed\s+up|registered|announced|gebucht|reserviert)\b"
)
_CLAUSE_END = re.compile(r"[.!?;\n]+(?=\s|\Z)")
_CLAUSE = re.compile(
    r",\s|\s-\s|\b(?:(?:but|because|though|while|so|aber|weil|pero|porque)\b|and\s+(?=(?:i|we|he|she|they|it)\b)|und\s+(?=(?:ich|wir|er|sie|es|zieh|fang|flieg|fahr|heirat|beginn|start|geh|reis|treff)\w*\b)|y\s+(?=(?:nos|me|se)\b))"
)
_SINCE = re.compile(r"\b(?:since|seit|desde)\s+(?:the\s+|de[mnr]\s+|el\s+)?\Z")
_DEADLINE = re.compile(
    r"\b(?:until|till|by|bis|hasta)\s+(?:the\s+|zum\s+|el\s+)?(?:(?:early|mid|late|(?:beginning|start|middle|end)\s+of)[\s-]+(?:the\s+)?)?\Z"
)
_PAST_CUE = re.compile(
    r"\b(?:was|were|wasn|weren|did|didn|had|hadn|couldn|could\s+not|been|went|took|made|got|gave|came|became|began|broke|brought|built|bought|caught|chose"
    r"|drew|drank|drove|ate|fell|felt|fought|found|flew|forgot|froze|grew|hung|heard|held|hid|hit|hurt|kept|knew|laid|led|left|lent|lost|met|paid|proposed"
    r"|ran|rang|rode|rose|said|sang|sat|saw|sold|sent|shot|slept|sold|spent|spoke|stole|stood|swam|taught|told|thought|threw|tore"
    r"|bit|blew|bent|dealt|dug|fed|fled|forgave|lit|meant|overslept|shook|shone|slid|sank|stuck|struck|stung|swept|swung|wept|wound|understood|woke|wore|won|wrote|quit|cut|put|set|gone|done|seen|born|used\s+to"
    r"|(?!(?:ne|r|b|sh|sl|nak|wick|sacr|t|n|fr|ble|bre|gre|he|de|re|cre|ste|twe|exceed|excit|interest|tir|worri|suppos|bas|schedul|plann|book|hundr|inde|proce|succe|spe|fe|se|we|be)ed\b)\w+ed"
    r"|war(?:en|st)?|hatten?|wurden?|ging(?:en)?|kam(?:en)?|fuhr(?:en)?|flog(?:en)?|traf(?:en)?|sah(?:en)?|zog(?:en)?|began+(?:en)?|gab(?:en)?"
    r"|fand(?:en)?|blieb(?:en)?|bekam(?:en)?|starb(?:en)?|lief(?:en)?|verlor(?:en)?|schrieb(?:en)?|gewann(?:en)?|fing(?:en)?|brach(?:te)?n?|rief(?:en)?"
    r"|(?:heirat|feier|kauf|mach|besuch|arbeit|wohn|lern|reis|start|verpass|eröffn|stell|hol|spiel|zeig|erleb|kündig|wechsel|end)e?ten?"
    r"|(?:hab(?:e|en|t)?|ha(?:t|st)|bin|bist|ist|sind|seid)\b[^.!?;]{0,80}?\b(?:\w{0,5}ge(?!gen|rn|nau|rade|meinsam|burtstag|schäft)\w+(?:t|en)|(?:be|ver|er|ent|zer|über|unter)\w+(?:t|en)|\w+iert)"
    r"|fui|fue|fuimos|fueron|estuv\w+|tuv(?:e|o|imos|ieron)|hice|hizo|hicimos|hicieron|vi|vio|vimos|vieron|di|dio|dimos|nac(?:í|ió)|era|eran|estaba\w*|tenía\w*|había\w*"
    r"|vivía\w*|(?!porqué|café|bebé|qué)\w{2,}(?:é|ó|aron|ieron|imos|aste|iste)|(?!aquí|ahí|allí|así|sí\b|mí\b)\w{2,}í|(?:he|has|ha|hemos|han)\s+\w+(?:ado|ido|cho|to))\b"
)
_PRESENT = re.compile(
    r"\b\w+\s+(?:leaves?|fl(?:y|ies)|goes|go|meets?"
    r"|starts?|begins?|arrives?|returns?|moves?|travels?|gets?|works?|plays?|performs?|gives?|hosts?|needs?|opens?|closes?|ends?|departs?|comes?|lands?|takes?\s+place|runs?\s+out|runs?"
    r"|sails?|expires?|retires?|marr(?:y|ies)|graduates?|visits?|turns?|ha(?:ve|s)|date\s+is|is|are)\b"
    r"|\b(?:i['’]?m|i\s+am|we['’]re|we\s+are|are\s+(?:you|we))\s+(?:not\s+)?(?:off|free|busy|away|out|back|available|home|on|in|at|invited)\b"
    r"|\bthere(?:['’]s|\s+is|\s+are)\b|\b(?:remind|don['’]t\s+forget|remember\s+to|make\s+sure|please|(?:could|can|would|will)\s+you"
    r"|kannst\s+du|könntest\s+du|bitte|erinner\w*|vergiss|recu[eé]rda\w*|no\s+olvides|puedes|podr[ií]as)\b"
    r"|\b(?:i|we|you|they)\s+(?!(?:love|like|hope|think|know|remember|believe|guess|feel|miss|wonder|mean|enjoy|just|really|still|also|never|always|all"
    r"|would|could|should|on|at|in|to|for|from|with|about|and|or|by|last|this|next|today|too|guys|both|read|let|beat|bet|cost|shut|spread|split|burst)\b)[a-z]+\b|\b(?:he|she|it)\s+(?!was\b|does\b)[a-z]+(?<!s)s\b|\b(?:isn|aren|doesn)['’]t\b|\b(?:gotta|should(?!\s+have|['’]ve)|let\s+(?:me|us))\b"
    r"|\b(?:bin\s+ich|ich\s+bin|sind\s+wir|wir\s+(?:sind|\w+(?<!t)en))\b|\bich\s+\w+(?<!t)e\b|\b\w+(?<!t)e\s+ich\b|\b\w+st\s+du\b"
    r"|\A\s*(?:call|book|buy|pick|bring|send|meet|order|cancel|water|feed|take|schedule|check|pay|submit|finish|return|invite|email|ask|tell|no\s+\w+)\b"
    r"|\b(?:fliege[nt]?|fahre[nt]?|fährt|ziehe[nt]?|zieht|heirate[nt]?|beginn(?:e|en|t)|fange[nt]?|fängt|start(?:e|en|et)|komm(?:e|en|t)"
    r"|mache[nt]?|macht|treffe[nt]?|trifft|gehe[nt]?|geht|hab(?:e|en|t)|hat|ist|sind|findet|feier(?:e|n|t)|reise[nt]?|reist|besuche[nt]?|besucht|bekomm(?:e|en|t)"
    r"|will|wollen|möchte[nt]?|läuft|endet|öffnet|schließt|muss|müssen|wechs(?:le|elt|eln)|bring(?:e|en|t)|arbeite[nt]?|arbeitet|geben|gibt"
    r"|viajo|viaja|viajan|voy|va|van|vamos|tengo|tiene|tenemos|tienen|empiez(?:o|a|an)|comienz(?:o|a|an)|termin(?:o|a|an)|vence|es|son|salgo|sale|salen"
    r"|llega|llegan|llego|me\s+mudo|se\s+muda|me\s+caso|se\s+casa[n]?|vuelo|vuelvo|vuelve|quiero|queremos|quiere|debo|hay|abre|cierra|visito|visita|viene[n]?)\b"
)
CLOCK = r",?\s+(?:(?:at|um)\s+\d|\d{1,2}(?::\d\d)?\s*(?:am|pm|uhr)\b)"
"""A time of day right behind a day, as a regular expression."""
_PLAN_NOUN = re.compile(
    r"\b(?:tickets?|appointments?|deadline|exams?|holidays?|vacation|wedding|due|interview|flight|trip|conference|meeting|surgery"
    r"|operation|reservation|booking|concert|save\s+the\s+date|keys|move-in|(?:first|last)\s+day|start\s+date|effective|einzug|umzug|mudanza|termin|hochzeit|prüfung|urlaub|frist|fällig|flug|reise|cita|boda|examen|vacaciones|vuelo|viaje|reunión|plazo|entradas)\b"
    rf"|\x00{CLOCK}"
)
_YEARLY = re.compile(
    r"\b(?:birthday(?!\s+(?:party|dinner|trip))|anniversary|every|each|always|usually|often|geburtstag|jedes|jeden|immer|cumpleaños|cada|siempre|from|aus|de)\b"
)


def direction(lowered: str, start: int, end: int) -> Lean:
    """Return the side on which the clause around a phrase at `[start, end)` puts it."""
    if begins := _BEGINNING.match(lowered, start):
        start = begins.end()
    before = _CLAUSE_END.split(lowered[max(0, start - 160) : start])[-1]
    after = _CLAUSE_END.split(lowered[end : end + 120])[0]
    if _SINCE.search(before):
        return Lean.PAST
    if _MOVED_TO.search(before) or (_MOVED_AFTER.match(after) and before.endswith(" im ")):
        return Lean.FUTURE
    clause = _CLAUSE.split(before)[-1], _CLAUSE.split(after)[0]
    near = _tense(*clause)
    arranged = _ARRANGED.search(before) and not _PAST_CUE.search(clause[1])
    if arranged or (near is None and _FUTURE_AFTER.match(lowered, end)):
        return Lean.FUTURE
    return near or _tense(before, after) or Lean.OPEN


def _tense(before: str, after: str) -> Lean | None:
    both = f"{before} \x00 {after}"
    if _FORWARD_NOUN.search(before) and not re.search(r"\bw(?:as|ere)\b", both):
        return Lean.FUTURE
    if _FUTURE_CUE.search(before) and not (_YEARLY.search(both) and _IS_ON.search(before)):
        return Lean.FUTURE
    if _PAST_CUE.search(both):
        return Lean.PAST
    if _FUTURE_CUE.search(after):
        return Lean.FUTURE
    if _YEARLY.search(both):
        return Lean.OPEN
    if _DEADLINE.search(before) or _PRESENT.search(both) or _PLAN_NOUN.search(both):
        return Lean.FUTURE
    return None


_IS_ON = re.compile(r"\b(?:is|are|['’](?:s|re))(?:\s+(?:on|in)(?:\s+the)?)?\s*\Z")


def moved_to(lowered: str, start: int) -> bool:
    """Tell whether something was moved or set to the time that begins at `start`."""
    return _MOVED_TO.search(lowered, max(0, start - 100), start) is not None


def direction_told(told: Sequence[str], phrase: str) -> Lean:
    """Return the direction that texts give a phrase: the first that holds it, else the last."""
    texts, named = [text.lower() for text in told], phrase.lower()
    for text in texts:
        if (start := text.find(named)) >= 0:
            return direction(text, start, start + len(named))
    return direction(texts[-1], len(texts[-1]), len(texts[-1])) if texts else Lean.OPEN
