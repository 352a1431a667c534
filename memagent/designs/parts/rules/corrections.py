"""Rules that find a turn's self-correction and the earlier statement that it corrects.

Pure and English. A correction needs more than its cue: "Actually, that's great!" has
one, but shares no topic with an earlier statement and sets no value against another, so
it corrects nothing. Unclear cases are left alone; two statements side by side do less
harm than one that was overwritten by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from memagent.core import Later
from memagent.core.records import Fact, MemoryItem
from memagent.designs.parts.rules.statements import (
    CALENDAR,
    NUMBER,
    VALUES,
    content,
    stems,
    terms_of,
    values,
)
from memagent.language.vocabulary import GAP
from memagent.state.effects import tokenize

if TYPE_CHECKING:
    from memagent.state import clauses
else:
    clauses = Later("memagent.state.clauses")


class Cue(StrEnum):
    """The way a turn announces that an earlier statement no longer stands."""

    MISTAKE = "mistake"
    """The earlier words were wrong: "I meant", "correction:", "not X but Y"."""
    ASIDE = "aside"
    """Maybe they were: "actually", "sorry, it's"."""
    CHANGE = "change"
    """They were right and the world has changed: "I've moved to", "no longer"."""


_WE = (
    r"\b(?:I|we)(?:['’](?:ve|m|re))?\s+(?:have\s+|am\s+|are\s+)?"
    r"(?:(?:just|finally|recently|now|also|even)\s+)?"
)
_MISTAKE = (
    r"\bcorrection\s*[:,–—-]",
    r"\bI\s+(?:actually\s+)?meant\b(?!\s+(?:to|it|that|every|well|no|a\s+lot)\b)",
    r"\bI\s+misspoke\b|\bmy\s+(?:mistake|bad)\b",
    r"\bI\s+(?:was|got\s+(?:it|that))\s+(?:wrong|mixed\s+up|confused)\b|\bI\s+mixed\s+(?:it|that|them)\s+up\b",
    r"(?<!like\s)(?<!as\s)\bI\s+(?:said|told\s+you)\b[^.?!]{0,300}\b(?:but|it['’]?s|it\s+(?:is|was))\b",
    r"\b(?:it['’]?s|it\s+is)\s+not\s+(?!just\b|only\b)[^.?!]{0,300}[,;]\s*(?:it['’]?s|it\s+is)\b",
    r"\bnot\s+(?!just\b|only\b)(?:(?:in|on|at|to|from|with|a|an|the)\s+)?[\w’'-]+,?\s+but\s+(?!(?:not|also|I|it|you|we|he|she|they|that|still|hey)\b)",
)
_CHANGE = (
    rf"{_WE}(?:moved|relocated|switched)\s+(?:in\s+)?(?:to|into|from|back|over|out)\b",
    r"\b(?:I|we)(?:['’](?:m|re))?\s+(?:don['’]t|do\s+not|am\s+not|are\s+not|not)\b[^.?!,;]{0,300}\bany\s*more\b",
    r"\b(?:I|we)(?:['’](?:m|re))?\s+(?:am\s+|are\s+)?no\s+longer\b",
    r"\bI(?:['’]ve|\s+have)?\s+changed\s+my\s+mind\b",
    rf"{_WE}(?:changed\s+(?:jobs|my\s+job)|quit\s+my\s+(?:old\s+)?job|left\s+my\s+(?:old\s+)?job|started\s+(?:a|my)\s+new\s+job)\b",
)
_ASIDE = (
    r"(?:^|[.!?]\s+|[,—–-]\s*)(?:oh|wait|no|sorry|hmm|well|oops)?[,.!\s—–-]{0,8}\bactually\b",
    r"\b(?:sorry|oops|I\s+mean|make\s+that)\b[,.!\s—–-]{0,20}(?:I\s+mean\s+)?(?:it['’]?s|it\s+(?:is|was)|that['’]?s|on|in|at)\b",
)
_CUES = tuple(
    (cue, re.compile("|".join(rules), re.I))
    for cue, rules in ((Cue.MISTAKE, _MISTAKE), (Cue.CHANGE, _CHANGE), (Cue.ASIDE, _ASIDE))
)
_CUE_WORDS = stems(
    "actually meant mean said told quick correction mistake wrong mixed confused longer "
    "anymore any more changed mind but not instead oops"
)
_ADDING = re.compile(
    r"\b(?:too|also|as\s+well|another|again|even|love|loved|great|amazing|awesome)\b", re.I
)
_FIRST_PERSON = re.compile(r"\b(?:I|we|my|our)\b", re.I)

_PLACE = (
    r"(?:(?i:an?|the|my|our|your)\s+)?(?:(?!of\b|with\b|for\b|and\b|but\b)[a-z]+\s+){0,2}?"
    r"(?:[A-Z][\w’'-]+|(?:apartment|flat|house|home|place|studio|city|town|village|country"
    r"|countryside|suburbs|island)\b)"
)
# Where one lives and what one works as: statements about these replace each other without
# sharing a word.
_TOPICS = (
    re.compile(
        rf"{_WE.replace('I|we', '(?i:I|we)')}(?:\w+\s+){{0,2}}"
        r"(?i:live|lived|living|based|settled|rent|renting|moved|relocated)"
        rf"\s+(?:[a-z]+\s+)?(?i:in|at|near|to|into)\s+{_PLACE}"
        r"|\b(?i:my|our)\s+(?:new\s+)?(?i:place|flat|apartment|home|house)"
        rf"\s+(?:is\s+)?(?:in|at|near)\s+{_PLACE}"
    ),
    re.compile(
        rf"{_WE}(?:\w+\s+){{0,2}}(?:work|worked|working|employed|hired)"
        r"\s+(?:\w+\s+)?(?:as|at|for)\b"
        r"|\bI(?:['’]m|\s+am)\s+(?:still\s+)?an?\s+[\w-]+(?:\s+[\w-]+)?\s+(?:at|for)\b"
        r"|\b(?:my|a)\s+(?:new\s+)?job\s+(?:is|as|at)\b"
        r"|\b(?:left|quit)\s+my\s+(?:old\s+)?job\b",
        re.I,
    ),
)
# Content terms that a correction must share with what it corrects when nothing else ties the
# two.
_MIN_SHARED = 2
# Least nearness in meaning of a correction's topic to a statement that shares no word.
_MIN_TOPIC_COSINE = 0.2
# The best match must be this many times better than the next.
_MIN_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """An earlier statement of the speaker that a correction may be about."""

    id: str
    text: str
    cosine: float = 0.0
    """Nearness in meaning to the correction's topic; 0 when unknown."""
    recent: bool = False
    """Said just before, in the same chunk."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A cue with its clause: its sentence, and the next one where its own says too little."""

    cue: Cue
    clause: str

    def topic(self, names: Iterable[str] = ()) -> str:
        """Return the clause's own words; "" when it is terse.

        Its cue, its values (numbers, days, names) and the names of those present are
        left out.
        """
        bare = self.clause
        for rule in VALUES:
            bare = rule.sub(" ", bare)
        terms = content(bare, but=_CUE_WORDS | terms_of(names))
        return " ".join(word for word in bare.split() if terms & set(tokenize(word)))


def correction_in(text: str) -> Correction | None:
    """Find the self-correction that a turn announces; questions announce none.

    Of several, choose the first that gives a value.
    """
    corrections: list[Correction] = []
    for cue, rule in _CUES:
        for match in rule.finditer(text):
            start, end = _sentence(text, match.end() - 1)
            clause = text[start:end]
            if clause.rstrip().endswith("?"):
                continue
            if len(content(clause, but=_CUE_WORDS)) < 2 and end < len(text):
                clause = text[start : _sentence(text, end)[1]]
            corrections.append(Correction(cue, clause))
    return next(
        (
            correction
            for correction in corrections
            if any(rule.search(correction.clause) for rule in VALUES)
        ),
        corrections[0] if corrections else None,
    )


def corrected(
    correction: Correction, earlier: Sequence[Candidate], *, names: Iterable[str] = ()
) -> Candidate | None:
    """Find the one earlier statement of the same speaker that a turn corrects or outdates.

    Return None when there is no clear one. `names` of those present do not count as
    shared words.
    """
    own = terms_of(names)
    scores = [(_match(correction, candidate, own), candidate) for candidate in earlier]
    scores.sort(key=lambda pair: -pair[0])
    if not scores or scores[0][0] <= 0:
        return None
    if len(scores) > 1 and scores[0][0] < _MIN_MARGIN * scores[1][0]:
        return None
    return scores[0][1]


def _match(correction: Correction, earlier: Candidate, own: frozenset[str]) -> float:
    """Score how well an earlier statement fits a correction; 0 when it does not."""
    clause, there = correction.clause, content(earlier.text, but=own | _CUE_WORDS)
    here = content(clause, but=own | _CUE_WORDS)
    shared = len(here & there)
    if correction.cue is Cue.CHANGE:
        if topics := [rule for rule in _TOPICS if rule.search(clause)]:
            parts = [own.text.replace(GAP, " ") for own in clauses.clauses_of(earlier.text)]
            same_topic = any(
                rule.search(text) for rule in topics for text in (earlier.text, *parts)
            )
            return 1.0 + shared + earlier.cosine if same_topic else 0.0
        same_words = len(set(tokenize(clause)) & set(tokenize(earlier.text)) - own - _CUE_WORDS)
        plain = shared >= _MIN_SHARED or (shared == len(here) > 0)
        own_words = plain and _FIRST_PERSON.search(earlier.text)
        return 0.5 * (shared + same_words) + earlier.cosine if own_words else 0.0
    replaces, denies = _replaces(clause, earlier.text), _denies(clause, earlier.text)
    if not (replaces or denies) or (correction.cue is Cue.ASIDE and _ADDING.search(clause)):
        return 0.0
    topic = set(tokenize(correction.topic())) - own
    if topic and not topic & there and earlier.cosine < _MIN_TOPIC_COSINE:
        return 0.0
    if not denies and shared < _MIN_SHARED and (topic or not earlier.recent):
        return 0.0
    return shared + denies + earlier.cosine + earlier.recent


def _replaces(text: str, earlier: str) -> bool:
    """Say whether both texts have a value of one sort (number, day, name), but another one."""
    pairs = ((set(values(text, rule)), set(values(earlier, rule))) for rule in VALUES)
    return any(new and old and not new <= old for new, old in pairs)


_DENIED = re.compile(
    r"\bnot\s+(?:(?:in|on|at|to|from|with|an?|the)\s+){0,2}([\w’'-]+)|\binstead\s+of\s+(?:an?\s+|the\s+)?([\w’'-]+)"
    r"|\bI\s+(?:said|told\s+you)\b([^.,;?!]*)",
    re.I,
)


def _denied(text: str) -> set[str]:
    return {
        term
        for match in _DENIED.finditer(text)
        for group in match.groups()
        if group
        for term in content(group)
    }


def _denies(text: str, earlier: str) -> bool:
    """Say whether a text takes back a word of the earlier one, as in "not Tuesday"."""
    return bool(_denied(text) & set(tokenize(earlier)))


def swapped(clause: str, earlier: str) -> str | None:
    """Put a correction's day, month or number in place of the one in the earlier words.

    Return None unless each has just one.
    """
    taken_back = _denied(clause)
    for rule in (CALENDAR, NUMBER):
        old = {match.group() for match in rule.finditer(earlier)}
        new = {
            match.group()
            for match in rule.finditer(clause)
            if not set(tokenize(match.group())) & taken_back
        }
        if len(old) == 1 and len(new) == 1 and old != new:
            return earlier.replace(old.pop(), new.pop())
    return None


def _sentence(text: str, at: int) -> tuple[int, int]:
    start = max(text.rfind(mark, 0, at) for mark in ".!?\n") + 1
    ends = [end for mark in ".!?\n" if (end := text.find(mark, at)) >= 0]
    return start, min(ends) + 1 if ends else len(text)


def stands_alone(text: str) -> bool:
    """Say whether a correcting turn is clear without the words that it corrects."""
    return len(content(text, but=_CUE_WORDS)) >= 3


def restated_text(item: MemoryItem | Fact, text: str, *, limit: int = 2_000) -> str:
    """Return the new words of a corrected statement, with the old ones if they need them."""
    joined = f"{text} (This corrects: {item.text})"
    return text if stands_alone(text) or len(joined) > limit else joined
