"""Ranking of hits as evidence for a question, by rules.

Pure. A hit becomes `Evidence` (one version of one statement, with the words around it),
and `ranked` orders the evidence by a weighted sum of features in [0, 1]. Words count by
how rare they are in this memory. A reply often leaves out what was asked, so the words
of the turns around it count too, the more the nearer. The weights were set on three
conversations of LoCoMo, by hand and coarsely.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import log

from memagent.core.answers import Hit
from memagent.core.records import MemoryItem, TimeSpan
from memagent.memory.question import Period, QuestionKind, QuestionView
from memagent.state.fold import BankState, folded
from memagent.state.tokens import tokenize
from memagent.state.versions import began

_NEAR = {-2: 0.5, -1: 0.8, 1: 0.5, 2: 0.3}
"""Weight of a word in a turn before (negative) or after the statement that asks something,
relative to the statement itself.
"""
_NO_QUESTION = 0.4
"""Factor on that weight for a turn that asks nothing: a statement seldom answers it."""
_OTHER_VERSION = 0.95
"""Weight of a word in another version: the corrected words say what a correction omits."""
_KIN = 0.8
_KINDRED: dict[str, tuple[str, ...]] = {
    "live": ("move", "reloc", "settl", "rent"),
    "work": ("job", "hire"),
    "job": ("work", "hire"),
    "move": ("reloc",),
    "name": ("call",),
    "call": ("name",),
}
_OWN = re.compile(r"\b(?:I|me|my|mine|we|us|our)\b", re.I)
_COVER, _FOUND, _SPEAKER, _TIMED, _PERIOD, _INTRODUCED = 1.0, 0.35, 0.5, 0.8, 0.6, 0.4
_ECHO = 0.8


@dataclass(frozen=True, slots=True)
class Evidence:
    """One version of a statement that may answer."""

    hit: Hit
    text: str
    turn_ids: tuple[str, ...] = ()
    """Turns it rests on, latest last."""
    speaker: str | None = None
    said_at: datetime | None = None
    valid: TimeSpan | None = None
    since: datetime | None = None
    """The moment from which it held, as far as that is known."""
    until: datetime | None = None
    """The moment from which a newer version held; None for the present one."""
    current: bool = True
    version: int | None = None
    around: tuple[tuple[float, str], ...] = ()
    """(weight, text) of turns near it and of statements it corrects."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Evidence with its score and the parts that decide about abstaining."""

    evidence: Evidence
    score: float
    cover: float
    """Share of the question's content (by weight) found in the statement or near it."""
    cosine: float
    who: float
    """Nearness to the people whom the question names; 0 when another speaks of something
    else.
    """


def evidence_of(hit: Hit, state: BankState, *, past: bool = False) -> list[Evidence]:
    """Return the evidence of a hit; with `past` also its older versions, newest first."""
    if hit.item is None:
        evidence = Evidence(hit=hit, text=hit.text, turn_ids=hit.source_turn_ids)
        if (event := hit.event) is None:
            return [evidence]
        speaker = event.people[0] if event.people else None
        return [replace(evidence, speaker=speaker, said_at=event.said_at, valid=event.valid)]
    versions = state.versions(hit.id) or (hit.item,)
    newer = (*versions[1:], None)
    pairs = list(zip(versions, newer, strict=True))[::-1]
    return [
        _version(hit, item, state, after=after, first=item is versions[0])
        for item, after in (pairs if past else pairs[:1])
    ]


def _version(
    hit: Hit, item: MemoryItem, state: BankState, *, after: MemoryItem | None, first: bool
) -> Evidence:
    timed = item.valid is not None and item.valid.start is not None
    evidence = Evidence(
        hit=hit,
        text=item.text,
        turn_ids=item.source_turn_ids,
        speaker=item.speaker,
        said_at=item.said_at,
        valid=item.valid,
        since=None if first and not timed else began(item),
        until=began(after) if after is not None else None,
        current=after is None,
        version=item.version,
    )
    places = [
        place for turn_id in item.source_turn_ids if (place := state.turns.get(turn_id)) is not None
    ]
    if not places:
        return evidence
    session, at = state.sessions[places[-1][0]], places[-1][1]
    turn = session.turns[at]
    around = [
        (weight * (1.0 if "?" in near.said else _NO_QUESTION), near.said)
        for offset, weight in _NEAR.items()
        if 0 <= at + offset < len(session.turns)
        and not (near := session.turns[at + offset]).recalled
    ]
    around += [
        (_OTHER_VERSION, state.sessions[session_id].turns[position].said)
        for session_id, position in places[:-1]
    ]
    if after is not None:
        around.append((_OTHER_VERSION, after.text))
    return replace(
        evidence,
        text=turn.said if item.kind == "turn" and turn.said.strip() in item.text else item.text,
        speaker=turn.speaker,
        said_at=session.date_of(turn),
        around=tuple(around),
    )


# -- scoring ---------------------------------------------------------------------------


def term_weights(
    terms: Sequence[str], rarity: Mapping[str, float], *, items: int
) -> dict[str, float]:
    """Weigh each term by its rarity, a best keyword score.

    A term that memory lacks weighs as one that occurs once.
    """
    unknown = log(1.0 + items)
    return {term: max(0.2, rarity.get(term) or unknown) for term in terms}


def covered(evidence: Evidence, weights: Mapping[str, float]) -> float:
    """Return the share of the weights whose terms occur; 0 without terms.

    Terms count fully in the statement and in part in the words around it.
    """
    total = sum(weights.values())
    if not total:
        return 0.0
    best = dict.fromkeys(tokenize(evidence.text), 1.0)
    for share, text in evidence.around:
        for term in tokenize(text):
            if share > best.get(term, 0.0):
                best[term] = share
    kin = {
        term: max(best.get(other, 0.0) for other in _KINDRED.get(term, (term,))) for term in weights
    }
    return (
        sum(weight * max(best.get(term, 0.0), _KIN * kin[term]) for term, weight in weights.items())
        / total
    )


def ranked(
    evidence: Sequence[Evidence], view: QuestionView, weights: Mapping[str, float]
) -> list[Scored]:
    """Sort the evidence by falling score; ties keep their order."""
    top = max((entry.hit.score for entry in evidence), default=0.0) or 1.0
    dates = [entry.said_at.timestamp() for entry in evidence if entry.said_at is not None]
    first, last = (min(dates), max(dates)) if dates else (0.0, 0.0)
    scored: list[Scored] = []
    for entry in evidence:
        cover, who, arms = covered(entry, weights), _who(entry, view), entry.hit.why.arms
        cosine = max(0.0, arms.get("dense", 0.0), arms.get("dense_context", 0.0))
        late = 0.0
        if entry.said_at is not None and last > first:
            late = (entry.said_at.timestamp() - first) / (last - first)
        score = (
            _COVER * cover
            + _FOUND * entry.hit.score / top
            + _SPEAKER * who
            + _TIMED * _time_fit(entry, view)
            + _PERIOD * _period_fit(entry, view, late)
            + _INTRODUCED * _introduces(entry, view)
            - _ECHO * _echoes(entry, view)
        )
        scored.append(Scored(entry, score, cover, cosine, who))
    return sorted(scored, key=lambda entry: -entry.score)


def _who(evidence: Evidence, view: QuestionView) -> float:
    """Score speaker and subject against the people whom the question names.

    1 when a named person says it of themselves, less when they speak of others or only
    ask; 0.5 when another speaks of such a person or the speaker is unknown, else 0. 1
    when nobody is named.
    """
    if not view.people:
        return 1.0
    names = [folded(name) for name in view.people]
    if evidence.speaker is not None and folded(evidence.speaker) in names:
        asks = evidence.text.rstrip().endswith("?")
        return (1.0 if _OWN.search(evidence.text) else 0.7) - (0.3 if asks else 0.0)
    text = folded(evidence.text)
    return 0.5 if evidence.speaker is None or any(name in text for name in names) else 0.0


def _time_fit(evidence: Evidence, view: QuestionView) -> float:
    """Score a statement against the time that a question names or asks for."""
    if view.span is not None:
        if (evidence.valid is not None and evidence.valid.overlaps(view.span)) or (
            not evidence.current and _stood(evidence, view.span)
        ):
            return 1.0
        return 0.5 if evidence.said_at is not None and view.span.contains(evidence.said_at) else 0.0
    asks_time = view.kind in (QuestionKind.WHEN, QuestionKind.HOW_LONG)
    return float(asks_time and evidence.valid is not None)


def _period_fit(evidence: Evidence, view: QuestionView, late: float) -> float:
    """Prefer present versions for now, replaced ones for then, and the one of a named time.

    Of present versions, the later said the better.
    """
    if view.period is Period.NOW:
        return 0.5 * late if evidence.current else -1.0
    if view.period is Period.THEN:
        return float(not evidence.current)
    if evidence.current:
        return 0.0
    return 1.0 if view.span is not None and _stood(evidence, view.span) else -1.0


def _stood(evidence: Evidence, span: TimeSpan) -> bool:
    """Say whether a version held at some moment of the span.

    One that was corrected rather than outdated never held.
    """
    since, until = evidence.since, evidence.until
    if since is not None and until is not None and until <= since:
        return False
    return (since is None or span.end is None or since < span.end) and (
        until is None or span.start is None or span.start < until
    )


def _introduces(evidence: Evidence, view: QuestionView) -> float:
    """For "who is Clara": whether the statement introduces her ("my sister Clara")."""
    role = r"\b(?:my|our|his|her|their|an?|the)\s+(?:\w+\s+){1,2}"
    return float(
        view.kind is QuestionKind.WHO
        and any(
            re.search(rf"{role}{re.escape(name)}\b", evidence.text, re.I) for name in view.people
        )
    )


def _echoes(evidence: Evidence, view: QuestionView) -> float:
    if not evidence.text.rstrip().endswith("?") or not view.terms:
        return 0.0
    own = set(tokenize(evidence.text))
    return float(set(view.terms) <= own and len(own) <= len(view.terms) + 4)
