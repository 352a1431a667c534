"""Rules for keeping turns as they were said: what is worth keeping, what repeats, where
two statements conflict.

Pure, English, and made to err on the side of keeping: a turn that no rule is sure about
becomes an item of its own. The surprise: a turn in another script has words that no
list here knows, so it always counts as worth keeping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from memagent.core.records import Fact, TimeSpan
from memagent.state.fold import folded
from memagent.state.tokens import tokenize

# -- worth keeping ---------------------------------------------------------------------


def stems(words: str) -> frozenset[str]:
    """The index terms of a list of words."""
    return frozenset(tokenize(words, keep_stop_words=True))


_SMALL_TALK = stems(
    "hey hi hello howdy yo bye goodbye morning evening night afternoon welcome thanks thank thx ty please sorry yes yeah yep yup ya "
    "no nope nah ok okay alright sure right exactly absolutely definitely totally certainly indeed true agreed agree course cool nice "
    "great good awesome amazing wonderful fantastic lovely sweet super wow whoa woah oh ooh aww aw ah haha hahaha lol hmm hm mm uh um "
    "well so too much very really lot lots all always again soon later now then there here this that it glad happy hear hearing sound "
    "sounds see seeing talk talking chat chatting catch take care day one go going get got keep know let like love mean same also "
    "more up out ha congrats congratulations luck best wishes wish appreciate kind word words support bet idea fun enjoy hope hoping "
    "looking forward have having had make makes made do doing done how what why who when where which about think tell say thing "
    "things anything something everything new else even just still back long time whats thats its im youre dont cant didnt doesnt "
    "youve ive weve theyre hows lets guess believe could yourself myself till until proud way cheers anytime problem worries worry "
    "any many some such mind actually"
)


def terms_of(names: Iterable[str]) -> frozenset[str]:
    """The index terms of people's names."""
    return frozenset(term for name in names for term in tokenize(name, keep_stop_words=True))


def content(text: str, *, but: Iterable[str] = ()) -> set[str]:
    """Index terms of a text that say something: no small talk, none of the terms `but`."""
    return set(tokenize(text)) - _SMALL_TALK - set(but)


def informative(text: str, *, names: Iterable[str] = ()) -> bool:
    """Whether a turn says anything beyond greeting, thanking, agreeing and the like;
    `names` of those present say nothing.
    """
    own = terms_of(names)
    if not tokenize(text, keep_stop_words=True):
        return bool(text.strip())
    return bool(content(text, but=own))


# -- repeats ---------------------------------------------------------------------------

_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nothing|nobody|neither|nor|without|cannot|no\s+longer)\b|n['’]t\b",
    re.I,
)
NUMBER = re.compile(
    r"\d+(?:[.,:]\d+)*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred|thousand)\b",
    re.I,
)
CALENDAR = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
    r"|\b(?:today|tomorrow|yesterday|tonight|morning|afternoon|evening|spring|summer|autumn|fall|winter)\b|\b(?:last|next)\s+\w+",
    re.I,
)
NAME = re.compile(r"(?<=[^.!?\s])\s+([A-Z][\w’'-]*[a-z][\w-]*)")
VALUES = (NUMBER, CALENDAR, NAME)
"""What a statement may be wrong about: numbers, words of the calendar, names inside a
sentence.
"""


def overlap(first: str, second: str) -> float:
    """Jaccard overlap of two texts' index terms, stop words included: 0 to 1."""
    one, two = (
        set(tokenize(first, keep_stop_words=True)),
        set(tokenize(second, keep_stop_words=True)),
    )
    return len(one & two) / len(one | two) if one | two else 0.0


def conflicting(first: str, second: str) -> bool:
    """Whether two texts differ in their numbers, calendar words or names inside
    sentences, in the order of these, or in negation.
    """
    if bool(_NEGATION.search(first)) != bool(_NEGATION.search(second)):
        return True
    return any(_found(first, rule) != _found(second, rule) for rule in VALUES)


def values(text: str, rule: re.Pattern[str]) -> frozenset[str]:
    """What a rule finds in a text, folded."""
    return frozenset(_found(text, rule))


def _found(text: str, rule: re.Pattern[str]) -> list[str]:
    return [folded(match.group(match.lastindex or 0)) for match in rule.finditer(text)]


def same_time(first: TimeSpan | None, second: TimeSpan | None) -> bool:
    """Whether two statements are about the same time, or neither names one."""
    if first is None or second is None:
        return first is second
    return (first.start, first.end) == (second.start, second.end)


MIN_OVERLAP = 0.8
MIN_COSINE = 0.9
"""Two statements of one speaker are near duplicates when both are reached."""


def near_duplicate(fact: Fact, text: str, valid: TimeSpan | None, *, cosine: float | None) -> bool:
    """Whether a fact says again what `text` says: nearly the same words and meaning,
    the same time, nothing that conflicts.

    `cosine` is None when no vectors are at hand; then nearly all words must be the
    same.
    """
    if cosine is not None and cosine < MIN_COSINE:
        return False
    if not 0.7 <= (len(fact.text) + 8) / (len(text) + 8) <= 1.4:
        return False
    alike = overlap(fact.text, text) >= (MIN_OVERLAP if cosine is not None else 0.9)
    return alike and same_time(fact.valid, valid) and not conflicting(fact.text, text)
