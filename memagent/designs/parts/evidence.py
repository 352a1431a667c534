"""Which of the hits answers a question, judged by rules: words covered, who said it, whether it tells a time.

Pure. A hit becomes `Evidence` (one statement of one turn, with its neighbours' words), and `ranked` orders the evidence by a weighted sum of
features in [0, 1]. Words count by how rare they are in this memory. A reply often leaves out what was asked, so the words of the turns
around it count too, the more the nearer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log

from memagent.core.answers import Hit
from memagent.core.records import Granularity, MemoryItem, TimeSpan
from memagent.memory.lexical import tokenize
from memagent.memory.question import QuestionKind, QuestionView
from memagent.memory.state import BankState, folded
from memagent.memory.temporal import TimeMention, find_times

_NEAR = {-2: 0.45, -1: 0.7, 1: 0.4, 2: 0.25}
"""How much a word counts in a turn before (negative) or after the statement, relative to the statement itself."""
_COVER, _FOUND, _COSINE, _SPEAKER, _TIMED = 1.0, 0.5, 0.35, 0.35, 0.3
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*\s*")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One statement that may answer: of a turn, or of an item that no stored turn backs."""

    hit: Hit
    version: int
    text: str
    """The statement's own words: the turn's, where one is stored."""
    turn_id: str | None = None
    speaker: str | None = None
    said_at: datetime | None = None
    valid: TimeSpan | None = None
    around: tuple[tuple[int, str], ...] = ()
    """(offset, text) of neighbouring turns."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Evidence with its score and the parts that abstaining goes by."""

    evidence: Evidence
    score: float
    cover: float
    """Share of the question's content (by weight) found in the statement or near it."""
    cosine: float


def evidence_of(hit: Hit, state: BankState, item: MemoryItem | None = None) -> Evidence:
    """The evidence of a hit: that of its item's latest source turn, or of an older version `item`."""
    item = item or hit.item
    if item is None:
        event = hit.event
        return Evidence(
            hit=hit,
            version=1,
            text=hit.text,
            turn_id=hit.source_turn_ids[-1] if hit.source_turn_ids else None,
            speaker=event.people[0] if event is not None and event.people else None,
            said_at=event.said_at if event is not None else None,
            valid=event.valid if event is not None else None,
        )
    turn_id = item.source_turn_ids[-1] if item.source_turn_ids else None
    place = state.turns.get(turn_id) if turn_id is not None else None
    if place is None:
        return Evidence(hit=hit, version=item.version, text=item.text, turn_id=turn_id, speaker=item.speaker, said_at=item.said_at, valid=item.valid)
    session, at = state.sessions[place[0]], place[1]
    turn = session.turns[at]
    around = tuple((offset, session.turns[at + offset].said) for offset in _NEAR if 0 <= at + offset < len(session.turns))
    text = turn.said if item.kind == "turn" else item.text
    return Evidence(
        hit=hit,
        version=item.version,
        text=text,
        turn_id=turn_id,
        speaker=turn.speaker,
        said_at=session.date_of(turn),
        valid=item.valid,
        around=around,
    )


def term_weights(terms: Sequence[str], rarity: Mapping[str, float], *, items: int) -> dict[str, float]:
    """Weight of each term: how rare it is (`rarity`, a best keyword score); a term that memory lacks weighs as one that occurs once."""
    unknown = log(1.0 + items)
    return {term: max(0.2, rarity.get(term) or unknown) for term in terms}


def covered(evidence: Evidence, weights: Mapping[str, float]) -> float:
    """Share of the weights whose terms the statement (fully) or its neighbours (in part) contain; 0 without terms."""
    total = sum(weights.values())
    if not total:
        return 0.0
    best = dict.fromkeys(tokenize(evidence.text), 1.0)
    for offset, text in evidence.around:
        for term in tokenize(text):
            best[term] = max(best.get(term, 0.0), _NEAR[offset])
    return sum(weight * best.get(term, 0.0) for term, weight in weights.items()) / total


def ranked(evidence: Sequence[Evidence], view: QuestionView, weights: Mapping[str, float]) -> list[Scored]:
    """The evidence by falling score, ties in the order given."""
    top = max((one.hit.score for one in evidence), default=0.0) or 1.0
    scored: list[Scored] = []
    for one in evidence:
        cover = covered(one, weights)
        cosine = max(0.0, one.hit.why.arms.get("dense", 0.0), one.hit.why.arms.get("dense_context", 0.0))
        score = (
            _COVER * cover
            + _FOUND * one.hit.score / top
            + _COSINE * cosine
            + _SPEAKER * _who(one, view)
            + _TIMED * _time_fit(one, view)
        )
        scored.append(Scored(one, score, cover, cosine))
    return sorted(scored, key=lambda each: -each.score)


def _who(evidence: Evidence, view: QuestionView) -> float:
    """1 when someone the question names said it, 0.5 when it speaks of such a person, else 0; 1 when nobody is named."""
    if not view.people:
        return 1.0
    if evidence.speaker is not None and any(folded(evidence.speaker) == folded(name) for name in view.people):
        return 1.0
    text = folded(evidence.text)
    return 0.5 if any(folded(name) in text for name in view.people) else 0.0


def _time_fit(evidence: Evidence, view: QuestionView) -> float:
    """For questions of time: whether a time is told. For questions about a time: whether it is that one."""
    if view.span is not None:
        if evidence.valid is not None and evidence.valid.overlaps(view.span):
            return 1.0
        return 0.5 if evidence.said_at is not None and view.span.contains(evidence.said_at) else 0.0
    if view.kind in (QuestionKind.WHEN, QuestionKind.HOW_LONG):
        return 1.0 if evidence.valid is not None else 0.0
    return 0.0


# -- what to say of it -------------------------------------------------------------------------------------------------


def told_time(evidence: Evidence, view: QuestionView) -> TimeSpan | None:
    """The time that the statement gives for what is asked: of several, the one whose sentence shares most with the question."""
    mentions = find_times(evidence.text, anchor=evidence.said_at)
    if not mentions:
        return evidence.valid

    def fit(mention: TimeMention) -> tuple[bool, int]:
        return (
            _runs_ahead(mention, evidence) == view.ahead,
            len(set(view.terms) & set(tokenize(sentence_at(evidence.text, mention.start)))),
        )

    best = max(mentions, key=lambda mention: (fit(mention)[1], fit(mention)[0]))
    return began(best, evidence.said_at)


def _runs_ahead(mention: TimeMention, evidence: Evidence) -> bool:
    return evidence.said_at is not None and mention.span.start is not None and mention.span.start > evidence.said_at


_LASTING = re.compile(r"^for\b.*?\b(day|week|month|year|decade)s?\b", re.I)


def began(mention: TimeMention, said_at: datetime | None) -> TimeSpan:
    """When what a mention tells began: "for three years", said in 2023, gives 2020; any other mention gives its own span."""
    span = mention.span
    match = _LASTING.match(mention.text)
    if match is None or span.start is None or said_at is None or span.granularity is not Granularity.RANGE:
        return span
    start, unit = span.start, match[1].lower()
    if unit == "year":
        return TimeSpan(start=start, end=start.replace(year=start.year + 1, month=1, day=1), granularity=Granularity.YEAR, text=span.text)
    if unit == "month" and start.day == 1:
        end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        return TimeSpan(start=start, end=end, granularity=Granularity.MONTH, text=span.text)
    return span


def sentence_at(text: str, at: int) -> str:
    """The sentence of a text that holds the character at an offset."""
    return next((match.group() for match in _SENTENCE.finditer(text) if match.start() <= at < match.end()), text)


def quote_from(text: str, terms: Sequence[str], *, limit: int = 320) -> str:
    """A verbatim part of a text: all of it when short enough, else whole sentences in a row that cover most of the terms."""
    if len(text) <= limit:
        return text.strip()
    sentences = [(match.start(), match.end()) for match in _SENTENCE.finditer(text)] or [(0, limit)]
    wanted = set(terms)
    best, best_gain = (0, 0), -1.0
    for i, (start, _) in enumerate(sentences):
        stop = start
        for _, end in sentences[i:]:
            if end - start > limit:
                break
            stop = end
        gain = len(wanted & set(tokenize(text[start:stop])))
        if stop > start and gain > best_gain:
            best, best_gain = (start, stop), gain
    start, stop = best if best_gain >= 0 else (sentences[0][0], sentences[0][0] + limit)
    return text[start:stop].strip()
