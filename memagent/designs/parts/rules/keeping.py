"""Rules for keeping turns as they were said: worth, repetition, conflict.

Pure, English, and made to err on the side of keeping: a turn that no rule is sure about
becomes an item of its own. The surprise: a turn in another script has words that no
list here knows, so it always counts as worth keeping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from memagent.core.records import Fact, TimeSpan
from memagent.language.vocabulary import MONTHS, NEGATION, NUMBER, WEEKDAYS, any_of
from memagent.state.fold import folded
from memagent.state.tokens import tokenize

# -- worth keeping ---------------------------------------------------------------------


def stems(words: str) -> frozenset[str]:
    """Return the index terms of a text, stop words included."""
    return frozenset(tokenize(words, keep_stop_words=True))


@lru_cache(maxsize=512)
def _known_stems(text: str) -> frozenset[str]:
    return stems(text)


SMALL_TALK = stems(
    """
    hey hi hello howdy yo bye goodbye morning evening night afternoon welcome thanks thank
    thx ty please sorry yes yeah yep yup ya no nope nah ok okay alright sure right exactly
    absolutely definitely totally certainly indeed true agreed agree course cool nice great
    good awesome amazing wonderful fantastic lovely sweet super wow whoa woah oh ooh aww aw
    ah haha hahaha lol hmm hm mm uh um well so too much very really lot lots all always again
    soon later now then there here this that it glad happy hear hearing sound sounds see
    seeing talk talking chat chatting catch take care day one go going get got keep know let
    like love mean same also more up out ha congrats congratulations luck best wishes wish
    appreciate kind word words support bet idea fun enjoy hope hoping looking forward have
    having had make makes made do doing done how what why who when where which about think
    tell say thing things anything something everything new else even just still back long
    time whats thats its im youre dont cant didnt doesnt youve ive weve theyre hows lets
    guess believe could yourself myself till until proud way cheers anytime problem worries
    worry any many some such mind actually
    """
)


def terms_of(names: Iterable[str]) -> frozenset[str]:
    """Return the index terms of people's names."""
    return frozenset[str]().union(*map(stems, names))


def content(text: str, *, but: Iterable[str] = ()) -> set[str]:
    """Return a text's index terms without small talk and without the terms `but`."""
    return set(tokenize(text)) - SMALL_TALK - set(but)


def informative(text: str, *, names: Iterable[str] = ()) -> bool:
    """Say whether a turn goes beyond greeting, thanking, agreeing and the like.

    The `names` of those present say nothing.
    """
    if not tokenize(text, keep_stop_words=True):
        return bool(text.strip())
    return bool(content(text, but=terms_of(names)))


# -- repeats ---------------------------------------------------------------------------

CALENDAR = re.compile(
    rf"\b{any_of(*WEEKDAYS.values())}s?\b|\b{any_of(*MONTHS.values())}\b"
    r"|\b(?:today|tomorrow|yesterday|tonight|morning|afternoon|evening|spring|summer|autumn"
    r"|fall|winter)\b|\b(?:last|next)\s+\w+",
    re.I,
)
NAME = re.compile(r"(?<=[^.!?\s])\s+([A-Z][\w’'-]*[a-z][\w-]*)")
VALUES = (NUMBER, CALENDAR, NAME)
"""Values that a statement may have wrong: numbers, calendar words, names in a sentence."""


def overlap(first: str, second: str) -> float:
    """Return the Jaccard overlap of two texts' index terms, stop words included: 0 to 1."""
    terms, others = _known_stems(first), _known_stems(second)
    return len(terms & others) / len(terms | others) if terms | others else 0.0


def conflicting(first: str, second: str) -> bool:
    """Say whether two texts differ in negation, numbers, calendar words or names.

    Values count in their order; names count inside sentences only.
    """
    if bool(NEGATION.search(first)) != bool(NEGATION.search(second)):
        return True
    return any(values(first, rule) != values(second, rule) for rule in VALUES)


def values(text: str, rule: re.Pattern[str]) -> list[str]:
    """Return the matches of a rule in a text, folded, in order."""
    return [folded(match.group(match.lastindex or 0)) for match in rule.finditer(text)]


def _same_time(first: TimeSpan | None, second: TimeSpan | None) -> bool:
    if first is None or second is None:
        return first is second
    return (first.start, first.end) == (second.start, second.end)


_MIN_OVERLAP = 0.8
_MIN_COSINE = 0.9
"""Two statements of one speaker are near duplicates when both are reached."""


def near_duplicate(fact: Fact, text: str, valid: TimeSpan | None, *, cosine: float | None) -> bool:
    """Say whether a fact repeats `text`, with the same time and nothing that conflicts.

    Words and meaning must be nearly the same. `cosine` is None when no vectors are at
    hand; then nearly all words must be the same.
    """
    return (
        (cosine is None or cosine >= _MIN_COSINE)
        and 0.7 <= (len(fact.text) + 8) / (len(text) + 8) <= 1.4
        and overlap(fact.text, text) >= (_MIN_OVERLAP if cosine is not None else 0.9)
        and _same_time(fact.valid, valid)
        and not conflicting(fact.text, text)
    )
