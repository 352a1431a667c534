"""Which of the hits answers a question, judged by rules: words covered, who said it,
whether it tells a time.

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
"""How much a word counts in a turn before (negative) or after the statement that asks
something, relative to the statement itself.
"""
_NO_QUESTION = 0.4
"""Factor on that for a turn that asks nothing: what another says unasked is seldom what
the statement answers.
"""
_OTHER_VERSION = 0.95
"""How much a word counts in another version of the statement: what a correction leaves
out, the corrected words say.
"""
_KIN = 0.8
"""How much a word of kindred meaning counts."""
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
    """Its own words: the turn's, where one is stored."""
    turn_ids: tuple[str, ...] = ()
    """Turns it rests on, latest last."""
    speaker: str | None = None
    said_at: datetime | None = None
    valid: TimeSpan | None = None
    since: datetime | None = None
    """From when on it held, as far as that is known."""
    until: datetime | None = None
    """When what a newer version tells began, None for the present one."""
    current: bool = True
    version: int | None = None
    """The item's version that it is."""
    around: tuple[tuple[float, str], ...] = ()
    """(weight, text) of turns near it and of statements it corrects."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Evidence with its score and the parts that abstaining goes by."""

    evidence: Evidence
    score: float
    cover: float
    """Share of the question's content (by weight) found in the statement or near it."""
    cosine: float
    who: float
    """How far it is about whom the question names; 0 when another speaks of something
    else.
    """


def evidence_of(hit: Hit, state: BankState, *, past: bool = False) -> list[Evidence]:
    """The evidence of a hit: its item as it stands, and with `past` its older versions
    too, newest first.
    """
    if hit.item is None:
        event = hit.event
        people, told = (event.people, event) if event is not None else ((), None)
        return [
            Evidence(
                hit=hit,
                text=hit.text,
                turn_ids=hit.source_turn_ids,
                speaker=people[0] if people else None,
                said_at=told.said_at if told is not None else None,
                valid=told.valid if told is not None else None,
            )
        ]
    versions = state.versions(hit.id) or (hit.item,)
    found = [_version(hit, versions[-1], state, after=None, first=len(versions) == 1)]
    if past:
        found += [
            _version(hit, old, state, after=new, first=old is versions[0])
            for new, old in zip(versions[:0:-1], versions[-2::-1], strict=True)
        ]
    return found


def _version(
    hit: Hit, item: MemoryItem, state: BankState, *, after: MemoryItem | None, first: bool
) -> Evidence:
    timed = item.valid is not None and item.valid.start is not None
    found = Evidence(
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
        return found
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
        found,
        text=turn.said if item.kind == "turn" and turn.said.strip() in item.text else item.text,
        speaker=turn.speaker,
        said_at=session.date_of(turn),
        around=tuple(around),
    )


# -- scoring ---------------------------------------------------------------------------


def term_weights(
    terms: Sequence[str], rarity: Mapping[str, float], *, items: int
) -> dict[str, float]:
    """Weight of each term: how rare it is (`rarity`, a best keyword score); a term that
    memory lacks weighs as one that occurs once.
    """
    unknown = log(1.0 + items)
    return {term: max(0.2, rarity.get(term) or unknown) for term in terms}


def covered(evidence: Evidence, weights: Mapping[str, float]) -> float:
    """Share of the weights whose terms the statement (fully) or the words around it (in
    part) contain; 0 without terms.
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
    """The evidence by falling score, ties in the order given."""
    top = max((one.hit.score for one in evidence), default=0.0) or 1.0
    dates = [one.said_at.timestamp() for one in evidence if one.said_at is not None]
    first, last = (min(dates), max(dates)) if dates else (0.0, 0.0)
    scored: list[Scored] = []
    for one in evidence:
        cover = covered(one, weights)
        cosine = max(
            0.0, one.hit.why.arms.get("dense", 0.0), one.hit.why.arms.get("dense_context", 0.0)
        )
        who = _who(one, view)
        late = (
            (one.said_at.timestamp() - first) / (last - first)
            if one.said_at is not None and last > first
            else 0.0
        )
        score = (
            _COVER * cover
            + _FOUND * one.hit.score / top
            + _SPEAKER * who
            + _TIMED * _time_fit(one, view)
            + _PERIOD * _period_fit(one, view, late)
            + _INTRODUCED * _introduces(one, view)
            - _ECHO * _echoes(one, view)
        )
        scored.append(Scored(one, score, cover, cosine, who))
    return sorted(scored, key=lambda each: -each.score)


def _who(evidence: Evidence, view: QuestionView) -> float:
    """1 when someone the question names said it of themselves, less when they speak of
    others or only ask; 0.5 when another speaks of such a person or nobody knows who
    said it, else 0; 1 when nobody is named.
    """
    if not view.people:
        return 1.0
    if evidence.speaker is not None and any(
        folded(evidence.speaker) == folded(name) for name in view.people
    ):
        return (1.0 if _OWN.search(evidence.text) else 0.7) - (
            0.3 if evidence.text.rstrip().endswith("?") else 0.0
        )
    text = folded(evidence.text)
    return (
        0.5
        if evidence.speaker is None or any(folded(name) in text for name in view.people)
        else 0.0
    )


def _time_fit(evidence: Evidence, view: QuestionView) -> float:
    """Whether the statement tells a time, for a question that asks for one; whether it
    is about the time that a question names, or was said then.
    """
    if view.span is not None:
        if (evidence.valid is not None and evidence.valid.overlaps(view.span)) or (
            not evidence.current and _stood(evidence, view.span)
        ):
            return 1.0
        return 0.5 if evidence.said_at is not None and view.span.contains(evidence.said_at) else 0.0
    return (
        1.0
        if view.kind in (QuestionKind.WHEN, QuestionKind.HOW_LONG) and evidence.valid is not None
        else 0.0
    )


def _period_fit(evidence: Evidence, view: QuestionView, late: float) -> float:
    """Now: what stands, the later said the better.

    Then: what has been replaced. At a named time: the version that stood then.
    """
    if view.period is Period.NOW:
        return 0.5 * late if evidence.current else -1.0
    if view.period is Period.THEN:
        return 0.0 if evidence.current else 1.0
    if evidence.current:
        return 0.0
    return 1.0 if view.span is not None and _stood(evidence, view.span) else -1.0


def _stood(evidence: Evidence, span: TimeSpan) -> bool:
    """Whether a version held at some moment of the span; one that was corrected rather
    than outdated never held.
    """
    since, until = evidence.since, evidence.until
    if since is not None and until is not None and until <= since:
        return False
    return (since is None or span.end is None or since < span.end) and (
        until is None or span.start is None or span.start < until
    )


def _introduces(evidence: Evidence, view: QuestionView) -> float:
    """For "who is Clara": whether the statement says what she is to the speaker ("my
    sister Clara").
    """
    if view.kind is not QuestionKind.WHO:
        return 0.0
    as_whom = r"\b(?:my|our|his|her|their|an?|the)\s+(?:\w+\s+){1,2}"
    return (
        1.0
        if any(
            re.search(rf"{as_whom}{re.escape(name)}\b", evidence.text, re.I) for name in view.people
        )
        else 0.0
    )


def _echoes(evidence: Evidence, view: QuestionView) -> float:
    """Whether the statement only asks what the question asks."""
    if not evidence.text.rstrip().endswith("?") or not view.terms:
        return 0.0
    own = set(tokenize(evidence.text))
    return 1.0 if set(view.terms) <= own and len(own) <= len(view.terms) + 4 else 0.0
