"""Days in words: in a speaker's turn, in a question, and in an accepted answer.

Every phrase has one meaning given the day on which it is said: "last Friday" is the
latest Friday before it (said of two to six days ago only), "two weeks ago" is the same
weekday fourteen days before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final, Literal

Calendar = Literal["long", "short"]

_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT_WORDS: Final = ("today", "yesterday", "tomorrow", "on")
"""Words of the short calendar besides months and numbers."""
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_NUMBERS: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
)  # fmt: skip
_BACK: Final[dict[Calendar, Sequence[int]]] = {
    "long": (0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 14, 18, 21, 24),
    "short": (0, 0, 1, 1, 2, 3),
}
_AHEAD: Final[dict[Calendar, Sequence[int]]] = {
    "long": (1, 2, 3, 4, 5, 6, 7, 9, 12, 14, 18, 24),
    "short": (1, 1, 2, 3, 4),
}


def past_day(
    rng: random.Random, calendar: Calendar, said: date, *, after: date | None = None
) -> date | None:
    """Draw a day at or before `said` and later than `after`; None when there is none."""
    days = [said - timedelta(back) for back in _BACK[calendar]]
    days = days if after is None else [day for day in days if day > after]
    return rng.choice(days) if days else None


def coming_day(rng: random.Random, calendar: Calendar, said: date) -> date:
    """Draw a day after `said`."""
    return said + timedelta(rng.choice(_AHEAD[calendar]))


def spoken(rng: random.Random, calendar: Calendar, said: date, day: date) -> str:
    """Draw a phrase for `day`, said on `said`."""
    distance = (day - said).days
    if calendar == "short":
        return {0: "today", -1: "yesterday", 1: "tomorrow"}.get(distance) or on_day(calendar, day)
    return rng.choice(_phrases(day, distance))


def _phrases(day: date, distance: int) -> list[str]:
    weekday = _WEEKDAYS[day.weekday()]
    number = number_words(abs(distance))
    weeks = number_words(abs(distance) // 7)
    exact = [f"on {day.day} {MONTHS[day.month - 1]}", f"on {MONTHS[day.month - 1]} {day.day}"]
    if distance in (0, -1, 1):
        return [{0: "today", -1: "yesterday", 1: "tomorrow"}[distance]]
    if distance < 0:
        if distance >= -6:
            return [f"last {weekday}", f"last {weekday}", f"{number} days ago", *exact]
        if distance == -7:
            return ["a week ago", "exactly a week ago", *exact]
        return [f"{weeks} weeks ago", f"{weeks} weeks ago", *exact] if distance % 7 == 0 else exact
    if distance <= 6:
        return [f"this coming {weekday}", f"in {number} days", *exact]
    if distance == 7:
        return ["a week from today", "in exactly a week", *exact]
    return [f"in {weeks} weeks", f"{weeks} weeks from now", *exact] if distance % 7 == 0 else exact


def on_day(calendar: Calendar, day: date) -> str:
    """Return the day as a question names it."""
    return f"on {day_text(calendar, day)}"


def day_text(calendar: Calendar, day: date) -> str:
    """Return the day as an answer: `5 May 2024`, in the short calendar without a year."""
    text = f"{day.day} {MONTHS[day.month - 1]}"
    return text if calendar == "short" else f"{text} {day.year}"


def day_answers(calendar: Calendar, day: date) -> tuple[str, ...]:
    """Return the accepted answers for a day, the usual one first."""
    if calendar == "short":
        return (day_text(calendar, day),)
    return (
        day_text(calendar, day),
        f"{MONTHS[day.month - 1]} {day.day}, {day.year}",
        day.isoformat(),
    )


def count_answers(calendar: Calendar, count: int) -> tuple[str, ...]:
    """Return the accepted answers for a number."""
    return (str(count),) if calendar == "short" else (str(count), number_words(count))


def number_words(count: int) -> str:
    """Return a small number in a word, a greater one in digits."""
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)
