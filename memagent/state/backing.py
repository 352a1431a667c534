"""Whether cited words say what an op claims. Pure.

Where a chunk or the memories shown hold texts of tools or strangers, a model may follow
them and cite a user's turn all the same. So an op is judged by what it would change:

- *An added text* is backed when the cited words hold most of it, every number, name and
  negation in it, and nothing in it comes from a suspect text alone.
- *A new wording* is backed when the cited words speak of the item and hold every word
  that is new. Where nothing is new, or a negation comes or goes, they must retract.
- *A deletion* is backed when the cited words retract what the item says.

The surprise: a text that only repeats the item's own words in another order counts as a
deletion. Words are compared as index terms. Glue ("lives", "now", "prefers") may come
from the model; it decides nothing by itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from memagent.core.records import TimeSpan
from memagent.language.vocabulary import NEGATION
from memagent.state.tokens import tokenize

ADDED_SHARE: Final = 2 / 3
"""Share of an added text's words that the cited words must hold."""
RETRACTED_SHARE: Final = 0.6
"""Share of an item's words that a retraction must name."""

_GLUE = (
    "user person someone say says said mention mentions mentioned tell tells told note noted "
    "remember live lives lived living move moved moves like likes liked prefer prefers preferred "
    "enjoy enjoys want wants plan plans planned use uses used own owns keep keeps work works go "
    "goes went get gets got make makes made take takes hold holds now currently recently "
    "still also previously formerly before after since until instead anymore longer new old "
    "current name named call called one two day today yesterday tomorrow"
)
_RETRACTION = re.compile(
    r"\b(?:forget|delete|remove|erase|discard|scrap|cancel|cancell?ed|sold|stopped|quit"
    r"|no longer|any ?more|never ?mind|gave up|given up|got rid of)\b",
    re.IGNORECASE,
)
_OVER = re.compile(r"\b(?:is|are|was) over\b|\bended\b|\bno more\b", re.IGNORECASE)
_KEEPING = re.compile(
    r"(?:\b(?:do|does|did|will|would|shall|should|could|can|must|may|have|has|had|is|are|was)"
    r"(?:n['’]?t|\s+not|\s+never)|\b(?:can|ca|wo|do)n?['’]?t|\bcannot|\bnever|\bnot|\bwithout"
    r"|\bdid you)"
    r"(?:\s+(?:ever|you|please|let|me|us|to|want|even|dare|just|yet|try|have))*"
    r"\s+(?:forget|delete|remove|erase|discard|scrap|cancel|cancell?ed|sold|sell|stopped|stop|quit"
    r"|give up|given up|forgetting|deleting|removing|cancell?ing|selling|stopping|quitting)\b"
    r"|\bno need to \w+\b|\bdon['’]?t you\b",
    re.IGNORECASE,
)
"""A retraction that is itself denied: "don't forget my meeting"."""
_YES = re.compile(
    r"\W*(?:oh,? )?(?:yes|yeah|yep|yup|exactly|correct|indeed|that['’]?s (?:right|correct|true)"
    r"|you['’]?re right|ja|genau|stimmt|richtig|sí|exacto|correcto|oui"
    r"|please do|do (?:it|that|so))\b"
    r"(?!,? but\b)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;\n])\s+")
_CAPITAL = re.compile(r"(?<=\S\s)[^\W\d_]*[A-Z]\w*")
_TOPICS = (
    "live lives lived move moved moving reside home address city apartment flat house rent",
    "work works job employer employed company office hired career position",
    "phone mobile number telephone cell",
    "mail email e-mail address",
    "like likes love loves prefer enjoy favourite favorite hate hates",
    "drive drives car vehicle",
    "eat eats food diet vegetarian vegan meat",
    "meeting appointment call date schedule",
    "bank account iban",
)


@lru_cache(maxsize=1)
def glue() -> frozenset[str]:
    """Return the terms that say little by themselves."""
    return frozenset(tokenize(_GLUE))


@lru_cache(maxsize=1)
def _topics() -> dict[str, frozenset[int]]:
    """Return each topic word's topics, by their place."""
    topics: dict[str, set[int]] = {}
    for place, words in enumerate(_TOPICS):
        for term in tokenize(words):
            topics.setdefault(term, set()).add(place)
    return {term: frozenset(places) for term, places in topics.items()}


def _has_digit(term: str) -> bool:
    return any(sign.isdigit() for sign in term)


@dataclass(frozen=True)
class Words:
    """Cited texts and the names of those who may have said them."""

    texts: tuple[str, ...]
    speakers: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    """What each text answers; it says what is spoken of, and claims nothing."""

    @cached_property
    def terms(self) -> frozenset[str]:
        """The index terms of all texts."""
        return frozenset(tokenize("\n".join(self.texts)))

    @cached_property
    def names(self) -> frozenset[str]:
        """The terms of the speakers' names; they say nothing by themselves."""
        return frozenset(tokenize("\n".join(self.speakers)))

    @cached_property
    def sentences(self) -> list[tuple[str, frozenset[str]]]:
        """The sentences, each with its terms and those of the sentence before it."""
        pairs: list[tuple[str, frozenset[str]]] = []
        for place, said in enumerate(self.texts):
            before = frozenset(tokenize("".join(self.asked[place : place + 1])))
            for sentence in _SENTENCE.split(said):
                terms = frozenset(tokenize(sentence))
                pairs.append((sentence, terms | before))
                before = terms
        return pairs

    @cached_property
    def negated(self) -> bool:
        """Whether any of the texts holds a negation."""
        return any(map(NEGATION.search, self.texts))

    def content(self, text: str) -> frozenset[str]:
        """Return the terms of a text without the speakers' names."""
        return frozenset(tokenize(text)) - self.names

    def dates(self, valid: TimeSpan | None) -> frozenset[str]:
        """Return the terms that may write out a span, if the cited words name it."""
        if valid is None or not self.name_time(valid):
            return frozenset()
        days = [day for day in (valid.start, valid.end) if day is not None]
        return frozenset(
            term for day in days for term in tokenize(f"{day.year} {day:%B} {day:%b} {day.day}")
        )

    def name_time(self, valid: TimeSpan) -> bool:
        """Tell whether the cited words hold the span's phrase or its first day."""
        phrase = _spoken(valid.text or "")
        if phrase and phrase <= _spoken("\n".join(self.texts)):
            return True
        day = valid.start or valid.end
        return day is not None and frozenset(tokenize(f"{day:%B} {day.day}")) <= self.terms


def _spoken(text: str) -> frozenset[str]:
    return frozenset(tokenize(text, keep_stop_words=True))


def backs_addition(
    words: Words, text: str, *, suspect: Collection[str], valid: TimeSpan | None = None
) -> bool:
    """Tell whether the cited words say an added text; `suspect` are terms of suspect texts."""
    weighty = words.content(text) - words.dates(valid) - glue()
    missing = weighty - words.terms
    names = {term for match in _CAPITAL.finditer(text) for term in tokenize(match[0])}
    if any(_has_digit(term) or term in names or term in suspect for term in missing):
        return False
    if NEGATION.search(text) is not None and not words.negated:
        return False
    return len(weighty) - len(missing) >= ADDED_SHARE * len(weighty)


def backs_change(words: Words, *, old: str, new: str, valid: TimeSpan | None = None) -> bool:
    """Tell whether the cited words turn the old text into the new; `valid` is a new time."""
    known = words.content(old)
    spoken = words.terms | frozenset(tokenize("\n".join(words.asked)))
    if not speaks_of(spoken, known) or (valid is not None and not words.name_time(valid)):
        return False
    added = words.content(new) - known - glue()
    if not added - words.dates(valid) <= words.terms:
        return False
    if new == old or (added and _denies(old) == _denies(new)):
        return True
    return backs_deletion(words, old)


def backs_deletion(words: Words, text: str) -> bool:
    """Tell whether the cited words retract a text.

    A sentence takes it back by name, or denies all of it.
    """
    content = words.content(text)
    sentences = [(_KEEPING.sub(" ", said), spoken) for said, spoken in words.sentences]
    named = frozenset(term for term in content - glue() if not _has_digit(term)) or content
    return any(
        (len(named & spoken) >= RETRACTED_SHARE * len(named) and _RETRACTION.search(sentence))
        or (content <= spoken and NEGATION.search(sentence))
        for sentence, spoken in sentences
        if named & spoken
    )


def takes_back(words: Words, text: str) -> bool:
    """Tell whether a sentence retracts or denies something that a text says.

    Less than `backs_deletion`: enough where nobody but the speaker and an assistant is read.
    """
    content = words.content(text) - glue()
    return any(
        content & spoken and any(mark.search(said) for mark in (_RETRACTION, NEGATION, _OVER))
        for sentence, spoken in words.sentences
        if (said := _KEEPING.sub(" ", sentence))
    )


def questions_in(said: str) -> str:
    """Return the questions of an utterance; "" for none."""
    return " ".join(part for part in _SENTENCE.split(said) if part.rstrip().endswith("?"))


def confirmed(said: str, reply: str) -> str:
    """Return the words of an utterance that the reply confirms; "" for none.

    Where it asks, a "yes" confirms its questions and not what else it says.
    """
    if _YES.match(reply) is None:
        return ""
    return questions_in(said) or said


def steers(texts: Sequence[str], *, old: str, new: str, known: frozenset[str]) -> bool:
    """Tell whether texts may be behind a change: they speak of the item, retract, or word it.

    `new` is "" for a deletion; `known` are the terms that others said.
    """
    terms = frozenset(tokenize("\n".join(texts)))
    before = frozenset(tokenize(old))
    return (
        speaks_of(terms, before)
        or any(map(_RETRACTION.search, texts))
        or bool((frozenset(tokenize(new)) - before - glue() - known) & terms)
    )


def _denies(text: str) -> bool:
    return NEGATION.search(text) is not None or _RETRACTION.search(text) is not None


def speaks_of(spoken: frozenset[str], terms: Iterable[str]) -> bool:
    """Tell whether some of the terms, or words of their topics, were spoken."""
    topics = _topics()
    spoken_topics = frozenset[int]().union(*(topics.get(term, ()) for term in spoken))
    return any(term in spoken or topics.get(term, frozenset()) & spoken_topics for term in terms)
