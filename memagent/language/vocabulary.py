"""Words that several rules read: months, weekdays, numbers, denials, kin.

Patterns are written in lower case. English, German and Spanish stand side by side, as a
text does not say which it is. Nothing here knows a sentence.
"""

from __future__ import annotations

import re
from typing import Final


def any_of(*lines: str) -> str:
    """Return a pattern of the words that blanks separate in the arguments, the longest first."""
    words = {word for line in lines for word in line.split()}
    return rf"(?:{'|'.join(sorted(words, key=lambda word: (-len(word), word)))})"


# -- calendar --------------------------------------------------------------------------

MONTHS: Final = {
    "en": "january february march april may june july august september october november december",
    "de": "januar februar märz april mai juni juli august september oktober november dezember",
    "es": (
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
    ),
}
"""Full names of the months, in order."""
WEEKDAYS: Final = {
    "en": "monday tuesday wednesday thursday friday saturday sunday",
    "de": "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
}
"""Full names of the days of a week, in order."""
_MONTHS: Final = {
    name[:3]: number
    for line in MONTHS.values()
    for number, name in enumerate(line.split(), 1)
}  # fmt: skip
_DAYS: Final[tuple[str, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAYS: Final = {
    name[:4]: number for line in WEEKDAYS.values() for number, name in enumerate(line.split())
} | {"sonn": 6, "mier": 2, "saba": 5}


def month_number(word: str) -> int:
    """Return 1 for "January", "jan", "Jan." and "enero"."""
    return _MONTHS[word[:3].lower()]


def weekday_number(word: str) -> int:
    """Return 0 for "Monday", "mon", "Montag" and "lunes"."""
    stem = word[:4].lower()
    if stem == "sonn" and word[4:5].lower() == "a":  # Sonnabend
        return 5
    exact = _WEEKDAYS.get(stem)
    return exact if exact is not None else _DAYS.index(stem[:3])


# -- numbers ---------------------------------------------------------------------------

SMALL_NUMBERS: Final = {
    "en": (
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
        " sixteen seventeen eighteen nineteen"
    ),
    "de": "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "es": "un dos tres cuatro cinco seis siete ocho nueve diez once doce",
}
"""Names of the numbers from 1 on."""
TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
COUNTS: Final = {
    word: number
    for line in SMALL_NUMBERS.values()
    for number, word in enumerate(line.split(), 1)
} | {word: 10 * number for number, word in enumerate(TENS.split(), 2)}  # fmt: skip
"""Numbers by their names."""
NUMBER: Final = re.compile(
    r"\d+(?:[.,:]\d+)*"
    rf"|\b{any_of(SMALL_NUMBERS['en'], TENS, 'hundred thousand')}\b",
    re.I,
)
"""A number in digits or in an English word."""

# -- denial ----------------------------------------------------------------------------

NEGATION: Final = re.compile(
    r"n['’]t\b|\b(?:not?|never|none|nothing|nobody|no-one|neither|nor|without|cannot|longer"
    r"|any\s*more|used\s+to|stopped|quit|gave\s+up|given\s+up"
    r"|nicht|kein(?:e[nmrs]?)?|nie|niemals|niemand|nichts|ohne|aufgehört"
    r"|nunca|jamás|nada|nadie|ninguna?|ningún|tampoco|sin|ya\s+no|dej[éóo]\s+de)\b",
    re.I,
)
"""Words by which a clause denies, or ends, what it names."""

# -- kin -------------------------------------------------------------------------------

KIN: Final = any_of(
    "mother mom mum father dad parents sister brother sibling son daughter child children kids",
    "baby husband wife partner boyfriend girlfriend fiance fiancé fiancée grandma grandpa",
    "grandmother grandfather grandparents aunt uncle cousin niece nephew friend roommate",
    "flatmate neighbour neighbor boss colleague coworker ex",
)
"""People named by what they are to somebody."""
