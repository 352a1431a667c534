"""Weights of a hit: time, age, importance, names, questions, shortness.

Weights multiply a score, so 1.0 changes nothing and the order in which they apply does
not matter. An unknown (an item without a date, a question without a time) never weighs
anything down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite, log1p
from typing import Final

from memagent.core.records import ItemStats, MemoryItem, TimeSpan
from memagent.state.fold import folded

DAY_S = 86_400.0
OPEN_SPAN_DAYS = 30.0
"""Assumed length of an open span ("since 2016") when the distance from its bound counts."""
MAX_NAME_WORDS = 4
ASKING = 0.85
"""Weight of a text that ends in a question mark."""
TOLD_CHARS = 250
"""Length in characters from which a text counts fully."""
_TOLD = tuple((log1p(length) / log1p(TOLD_CHARS)) ** 0.7 for length in range(TOLD_CHARS + 1))
_ASKS = ("?", "？", "؟")


def recency(said_at: datetime | None, *, now: datetime, half_life_days: float) -> float:
    """Return 0.5 for an item said one half-life ago, 1.0 for an undated or future one."""
    if said_at is None:
        return 1.0
    age_days = (now - said_at).total_seconds() / DAY_S
    return 1.0 if age_days <= 0 else float(0.5 ** (age_days / half_life_days))


def proximity(item: MemoryItem, asked: TimeSpan) -> float:
    """Return 1.0 for an item that holds or was said in the span, less for a distant one.

    It halves with each length of the span (at least a day) that lies between, and is
    0.0 for an undated item. The nearer of the two axes counts.
    """
    return nearness(asked)(item)


def nearness(asked: TimeSpan) -> Callable[[MemoryItem], float]:
    """Return `proximity` to one span as a function that computes each moment and span once."""
    spans: dict[tuple[datetime | None, datetime | None], float] = {}
    moments: dict[datetime, float] = {}

    def near(item: MemoryItem) -> float:
        best, valid, said = 0.0, item.valid, item.said_at
        if valid is not None:
            bounds = (valid.start, valid.end)
            if bounds not in spans:
                spans[bounds] = _near(_gap_days(*bounds, asked), asked)
            best = spans[bounds]
        if best < 1.0 and said is not None:
            if said not in moments:
                moments[said] = _near(_gap_days(said, None, asked, moment=True), asked)
            best = max(best, moments[said])
        return best

    return near


def _gap_days(
    start: datetime | None, end: datetime | None, asked: TimeSpan, *, moment: bool = False
) -> float:
    """Return the days between a span (or a moment, given as its start) and the one asked about.

    0.0 when they share a moment.
    """
    if asked.end is not None and start is not None and start >= asked.end:
        return max((start - asked.end).total_seconds() / DAY_S, 1e-6)
    last = start if moment else end
    if (
        asked.start is None
        or last is None
        or last > asked.start
        or (moment and last == asked.start)
    ):
        return 0.0
    return max((asked.start - last).total_seconds() / DAY_S, 1e-6)


def _near(gap_days: float, asked: TimeSpan) -> float:
    if asked.start is not None and asked.end is not None:
        length = max((asked.end - asked.start).total_seconds() / DAY_S, 1.0)
    else:
        length = OPEN_SPAN_DAYS
    return float(0.5 ** min(gap_days / length, 1_000.0))


def importance(item: MemoryItem, stats: ItemStats | None) -> float:
    """Return `metadata["importance"]`, else the item's learned value, else 0.0; cut to 0 .. 1."""
    value = stats.q_value if stats is not None else 0.0
    stated = item.metadata.get("importance")
    if isinstance(stated, int | float):
        value = float(stated)
    return min(max(value, 0.0), 1.0) if isfinite(value) else 0.0


def utility(stats: ItemStats | None) -> float:
    """Return the value learned from outcomes, cut to -1 .. 1; 0.0 for an item never used."""
    return min(max(stats.q_value, -1.0), 1.0) if stats is not None else 0.0


def length(text: str) -> float:
    """Return below 1.0 for a text shorter than `TOLD_CHARS`, which seldom says anything."""
    return _TOLD[min(len(text), TOLD_CHARS)]


def asking(text: str) -> float:
    """Return `ASKING` for a text that ends in a question mark, else 1.0."""
    return ASKING if text.endswith(_ASKS) else 1.0


def item_length(item: MemoryItem) -> float:
    """Return `length` of an item's text."""
    return length(item.text)


def item_asking(item: MemoryItem) -> float:
    """Return `asking` of an item's text."""
    return asking(item.text)


ITEM_RULES: Final = {"asking": item_asking, "length": item_length}
"""Weights that follow from an item alone, so that an index may keep them."""


def phrases_of(text: str) -> list[str]:
    """Return the runs of one to four words of a text, each of which could be a name.

    Words are folded and have no possessive endings.
    """
    words = [bare for word in folded(text).split() if (bare := _bare(word))]
    return [
        " ".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, min(start + MAX_NAME_WORDS, len(words)) + 1)
    ]


def called(name: str) -> tuple[str, ...]:
    """Return the forms of a name: all of it and its first word, folded.

    One letter alone is no name.
    """
    whole = folded(name)
    forms = dict.fromkeys((whole, *whole.split()[:1]))
    return tuple(form for form in forms if len(form) > 1)


def named_in(text: str, *known: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the names that a text contains; each of `known` leads from a form to its names."""
    phrases = phrases_of(text)
    return frozenset(
        name for forms in known for phrase in phrases for name in forms.get(phrase, ())
    )


def calls(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that each form may mean."""
    meant: dict[str, list[str]] = {}
    for name in names:
        for phrase in called(name):
            meant.setdefault(phrase, []).append(name)
    return meant


def _bare(word: str) -> str:
    bare = word.strip(".,;:!?()[]{}\"“”«»…¿¡-–—/'’‘")
    for ending in ("'s", "’s"):
        bare = bare.removesuffix(ending)
    return bare
