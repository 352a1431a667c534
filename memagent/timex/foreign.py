"""Atoms of German and Spanish: "am 3. Mai", "nächsten Freitag", "hace dos semanas".

Plain forms only. Readers are those of English; a bare month or weekday counts only
after its preposition or article, as "domingo" and "mayo" are other words too.
"""

from __future__ import annotations

import re

from memagent.language import vocabulary as lexicon
from memagent.language.vocabulary import MONTHS, WEEKDAYS, any_of
from memagent.timex import calendar as cal
from memagent.timex import vocabulary as words
from memagent.timex.calendar import Reading, Unit
from memagent.timex.dates import day_of_month, month_of_year
from memagent.timex.relative import weekday
from memagent.timex.vocabulary import Context, Match, Standing

_DE_MONTH = any_of(MONTHS["de"], "jänner")
_ES_MONTH = any_of(MONTHS["es"], "setiembre")
_DE_DAY = any_of(WEEKDAYS["de"], "sonnabend")
_ES_DAY = any_of(WEEKDAYS["es"], "miercoles sabado")
_Y = rf"(?P<y>{words.YEAR4})"
_DE_UNIT = r"(?P<u>tag|woche|wochenende|monat|jahr)e?[ns]?\b"
_ES_UNIT = r"(?P<u>día|dia|semana|mes|año)(?:e?s)?\b"
_COUNT = r"(?P<n>\d{1,3}|[a-zäöüß]+)"
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


def _near_day(match: Match, ctx: Context) -> Reading:
    return cal.unit_reading(ctx.today, "day", 2 if match[0][:6] == "pasado" else _DAYS[match[0]])


def _turn(match: Match) -> int:
    groups = match.groupdict()
    return -1 if groups.get("past") else 1 if groups.get("next") or groups.get("next2") else 0


def _turned(_text: str, match: Match) -> Standing:
    """Accept "la semana pasada", but not "la semana"."""
    return Standing.ALONE if _turn(match) else Standing.REFUSED


def _unit(match: Match, ctx: Context) -> Reading:
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
ATOMS = (
    words.atom(
        rf"\b(?:(?P<name>{_DE_DAY}),?\s+(?:de[nmr]\s+)?)?(?P<d>{words.DAY_OF_MONTH})\.\s?(?P<m>{_DE_MONTH})\b(?:\s+{_Y})?",
        day_of_month,
    ),
    words.atom(
        rf"\b(?:(?P<name>{_ES_DAY}),?\s+)?(?P<d>{words.DAY_OF_MONTH})\s+de\s+(?P<m>{_ES_MONTH})\b(?:\s+del?\s+{_Y})?",
        day_of_month,
    ),
    words.atom(
        rf"\b(?P<m>{_DE_MONTH}|{_ES_MONTH})\b(?:\s+(?:del?\s+)?{_Y})?",
        month_of_year,
        _timely,
    ),
    words.atom(rf"\b{_DE_WEEKDAY}", weekday, _timely),
    words.atom(
        rf"\b(?:(?P<next>próximo|proximo)\s+)?(?P<d>{_ES_DAY})\b(?:\s+(?:(?P<past>pasado)|que\s+viene))?",
        weekday,
        _timely,
    ),
    words.atom(rf"\b(?:pasado\s+mañana|{any_of(*_DAYS)})\b", _near_day, _no_part_of_day),
    words.atom(rf"\b(?:(?P<past>{_LAST})|(?P<next>{_NEXT})|diese[nsmr]?)\s+{_DE_UNIT}", _unit),
    words.atom(
        rf"\b(?:la|el)\s+(?:(?P<next>pr[óo]xim[oa])\s+)?{_ES_UNIT}(?:\s+(?:(?P<past>pasad[oa])|(?P<next2>que\s+viene)))?",
        _unit,
        _turned,
    ),
    words.atom(rf"\b(?:est[ea])\s+{_ES_UNIT}", _unit),
    words.atom(
        rf"\b(?:(?P<past>hace)|dentro\s+de|en)\s+{_COUNT}\s+{_ES_UNIT}",
        _counted,
    ),
    words.atom(rf"\b(?:(?P<past>vor)|in)\s+{_COUNT}\s+{_DE_UNIT}", _counted),
)
"""Atoms of two languages, read against the same calendar."""
