"""What tells whether a statement answers a question, as numbers.

Pure. Every candidate statement gets one row; `WORDS` are shares of the question's
content by weight, where a rare word weighs more. The surprise: nothing here knows the
answer's words, only the question's, the speaker and the form of what was said, so a
fit that was learned on one conversation carries over to others.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

from memagent.language.vocabulary import NEGATION, NUMBER
from memagent.memory.judging.evidence import (
    Evidence,
    echoes,
    introduces,
    period_fits,
    time_fits,
    who_fits,
)
from memagent.memory.judging.likeness import likeness, words_of
from memagent.memory.question import QuestionKind, QuestionView
from memagent.state.fold import folded
from memagent.state.tokens import tokenize

Matrix = npt.NDArray[np.float64]
"""(N candidates, F features)"""

_KINDRED: dict[str, tuple[str, ...]] = {
    "live": ("move", "reloc", "settl", "rent"),
    "work": ("job", "hire"),
    "job": ("work", "hire"),
    "move": ("reloc",),
    "name": ("call",),
    "call": ("name",),
    "old": ("age", "year", "birthday", "turn"),
}
_KIN: Final = 0.8
_SAME: Final = 0.9
"""Words around a statement of at least this weight are its own: what a correction corrects."""
_NAMED = re.compile(r"(?<=[^.!?\s])\s+[A-Z][\w’'-]*[a-z][\w-]*")
_FEW = re.compile(r"\b(?:couple|few|several|many|twice|once|dozen|both)\b", re.I)
_PLACE = re.compile(
    r"\b(?:in|at|to|from|near|around|visited|visit|through)\s+(?:the\s+|an?\s+|my\s+)?[A-Z]"
)
_PLACE_WORD = re.compile(
    r"\b(?:home|park|beach|city|town|house|store|shop|school|studio|cafe|restaurant|cent(?:er|re)"
    r"|museum|mountains?|lake|gym|forest|church|country|state|street|place|spot|downtown|library"
    r"|hospital|farm|shelter)\b",
    re.I,
)
_CLAUSE = re.compile(
    r"[.!?;,:\n]+|\s[-–—]+\s|\b(?:but|although|though|because|while|so\s+that)\b", re.I
)
_OF_ANOTHER = re.compile(
    r"^\W*(?:\w+\W+){0,2}?(?:my|our|his|her|their)\s+((?:\w+\s+){0,2}?\w+)", re.I
)
_OF_ONESELF = re.compile(r"\b(?:I|me|we|us|myself|ourselves)\b", re.I)
COUNTING: Final = (QuestionKind.HOW_MANY, QuestionKind.HOW_LONG)

FEATURES: Final = (
    "near", "own", "like", "clause", "asked", "rare", "rare_like", "rare_near", "least_like",
    "cosine", "cosine_near", "score", "rank", "who", "speaks", "mentioned", "echo", "asks",
    "time", "period", "introduces", "undated", "place", "number", "name", "length", "picture",
    "name_missing", "owned_missing", "rare_missing", "negated",
)  # fmt: skip
"""The columns, in order."""
COLUMN: Final = {name: at for at, name in enumerate(FEATURES)}


def features(
    view: QuestionView, evidence: Sequence[Evidence], weights: Mapping[str, float], text: str
) -> Matrix:
    """Return a row of `FEATURES` for each statement; `text` is the question's own."""
    rows = np.zeros((len(evidence), len(FEATURES)))
    if not evidence:
        return rows
    terms = list(weights)
    by_weight = sorted(terms, key=lambda term: -weights[term])
    surface = words_of(text)
    alike = likeness(
        [surface.get(term, term) for term in terms], [entry.text for entry in evidence]
    )
    top = max(entry.hit.score for entry in evidence) or 1.0
    ranks: dict[str, int] = {}
    dates = [entry.said_at.timestamp() for entry in evidence if entry.said_at is not None]
    first, last = (min(dates), max(dates)) if dates else (0.0, 0.0)
    speakers = {folded(entry.speaker) for entry in evidence if entry.speaker}
    known = any(folded(name) in speakers for name in view.people)
    for at, entry in enumerate(evidence):
        rank = ranks.setdefault(entry.hit.id, len(ranks))
        near = dict(zip(terms, alike[at].tolist(), strict=True))
        late = 0.0
        if entry.said_at is not None and last > first:
            late = (entry.said_at.timestamp() - first) / (last - first)
        values = (
            _words(view, entry, weights, by_weight, near)
            | _found(entry, top, rank)
            | (_subject(view, entry) if known else _mention(view, entry))
            | _form(view, entry, late)
        )
        rows[at] = [values[name] for name in FEATURES]
    return rows


def _has(term: str, terms: Container[str]) -> bool:
    return term in terms or any(other in terms for other in _KINDRED.get(term, ()))


def _words(
    view: QuestionView,
    entry: Evidence,
    weights: Mapping[str, float],
    by_weight: Sequence[str],
    alike: Mapping[str, float],
) -> dict[str, float]:
    """Return the shares of the question's content in the statement and around it."""
    total = sum(weights.values()) or 1.0
    own = _terms(entry.text)
    for share, text in entry.around:
        if share >= _SAME:
            own = own | _terms(text)
    asked = frozenset[str]().union(*(_terms(text) for _, text in entry.around if "?" in text))
    held = {term for term in weights if _has(term, own)}
    like = {term: 1.0 if term in held else alike[term] for term in weights}
    clause, negated = _best_clause(entry.text, weights, like)

    def nearest(term: str) -> float:
        """Return the weight of the nearest text that holds a term."""
        if term in own:
            return 1.0
        return max((share for share, text in entry.around if term in _terms(text)), default=0.0)

    near = {
        term: max(nearest(term), _KIN * max(map(nearest, _KINDRED.get(term, ())), default=0.0))
        for term in weights
    }
    rare = by_weight[0] if by_weight else None

    def missing(needed: Sequence[str]) -> float:
        lacking = (term for term in needed if near.get(term, 1.0) <= 0.0)
        return float(any(like.get(term, 1.0) < 0.6 for term in lacking))

    return {
        "near": sum(weight * near[term] for term, weight in weights.items()) / total,
        "own": sum(weights[term] for term in held) / total,
        "like": sum(weight * like[term] for term, weight in weights.items()) / total,
        "clause": clause / total,
        "negated": float(negated),
        "asked": sum(weight for term, weight in weights.items() if term in asked) / total,
        "rare": float(rare in own),
        "rare_like": like[rare] if rare is not None else 0.0,
        "rare_near": float(rare is not None and nearest(rare) > 0.0),
        "least_like": min((like[term] for term in by_weight[:2]), default=0.0),
        "length": log(1.0 + len(own)),
        "name_missing": missing(view.names),
        "owned_missing": missing(view.owned),
        "rare_missing": missing([rare] if rare is not None else []),
    }


@lru_cache(maxsize=8_192)
def _terms(text: str) -> frozenset[str]:
    """Return the distinct index terms of a text."""
    return frozenset(tokenize(text))


@lru_cache(maxsize=8_192)
def _clauses(text: str) -> tuple[tuple[frozenset[str], bool], ...]:
    """Return the terms of each clause, and whether it denies."""
    return tuple(
        (frozenset(tokenize(clause)), NEGATION.search(clause) is not None)
        for clause in _CLAUSE.split(text)
    )


@lru_cache(maxsize=8_192)
def _shape(text: str) -> tuple[float, bool, bool]:
    """Return whether a text tells a place (to 1.5), a number and a name."""
    place = bool(_PLACE.search(text)) + 0.5 * bool(_PLACE_WORD.search(text))
    return place, bool(NUMBER.search(text) or _FEW.search(text)), bool(_NAMED.search(text))


def _best_clause(
    text: str, weights: Mapping[str, float], like: Mapping[str, float]
) -> tuple[float, bool]:
    """Return the most weight of question terms that one clause meets, and whether it denies."""
    best, denies = 0.0, False
    close = {term for term in weights if 0.6 <= like[term] < 1.0}
    for own, negated in _clauses(text):
        met = sum(
            weight * like[term]
            for term, weight in weights.items()
            if term in close or _has(term, own)
        )
        if met > best:
            best, denies = met, negated
    return best, denies


def tells_of_another(view: QuestionView, entry: Evidence) -> bool:
    """Say whether a statement has another subject than the person asked about.

    "My dog is five" says nothing about its owner's age; "my brother coaches me" does
    tell who coaches the speaker.
    """
    named = {folded(name) for name in view.people}
    own = folded(entry.speaker or "") in named
    if not own or view.owned or view.kind is QuestionKind.WHO or not view.terms:
        return False
    asked = set(view.terms)
    clauses = [clause for clause in _CLAUSE.split(entry.text) if asked & set(tokenize(clause))]
    return bool(clauses) and all(
        (match := _OF_ANOTHER.match(clause)) is not None
        and not asked & set(tokenize(match[1]))
        and not _OF_ONESELF.search(clause)
        for clause in clauses
    )


def _found(entry: Evidence, top: float, rank: int) -> dict[str, float]:
    arms = entry.hit.why.arms
    cosine = max(0.0, arms.get("dense", 0.0))
    return {
        "cosine": cosine,
        "cosine_near": max(cosine, arms.get("dense_context", 0.0)),
        "score": entry.hit.score / top,
        "rank": 1.0 / (1.0 + rank),
    }


def _subject(view: QuestionView, entry: Evidence) -> dict[str, float]:
    """Return who speaks and who is only mentioned."""
    who = who_fits(entry, view)
    named = [folded(name) for name in view.people]
    speaks = not named or who >= 1.0 or folded(entry.speaker or "") in named
    return {"who": who, "speaks": float(speaks), "mentioned": float(not speaks and who > 0.0)}


def _mention(view: QuestionView, entry: Evidence) -> dict[str, float]:
    """Return how a statement tells of people who do not speak in this memory themselves."""
    names = [folded(name) for name in view.people]
    text = folded(entry.text)
    told = not names or any(name in text for name in names)
    near = told or any(name in folded(other) for _, other in entry.around for name in names)
    return {
        "who": 1.0 if told else 0.5 * near,
        "speaks": float(told),
        "mentioned": float(near and not told),
    }


def _form(view: QuestionView, entry: Evidence, late: float) -> dict[str, float]:
    """Return how the statement's form fits the kind of answer asked for."""
    text, kind = entry.text, view.kind
    place, number, name = _shape(text)
    return {
        "echo": echoes(entry, view),
        "asks": float(text.rstrip().endswith("?")),
        "time": time_fits(entry, view),
        "period": period_fits(entry, view, late),
        "introduces": introduces(entry, view),
        "undated": float(kind is QuestionKind.WHEN and entry.valid is None),
        "place": place if kind is QuestionKind.WHERE else 0.0,
        "number": float(kind in COUNTING and number),
        "name": float(kind is QuestionKind.WHO and name),
        "picture": float("[image" in text),
    }
