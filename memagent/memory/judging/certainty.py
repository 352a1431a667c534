"""The certainty of an answer: statements in order of how well they answer, and a probability.

Two small linear models over `features`, fitted by `scripts/fit_certainty.py` on generated
worlds and three conversations; their weights are a data file with a digest. The first
orders the statements (a softmax over the candidates of one question). The second reads
the order as a whole and gives the probability that one of the statements chosen for
quoting answers the question: a logistic model, calibrated on questions that no weight
was fitted to. Pure but for the data file, which is read once.

What tells whether a statement answers a question, as numbers.

Pure. Every candidate statement gets one row; `WORDS` are shares of the question's
content by weight, where a rare word weighs more. The surprise: nothing here knows the
answer's words, only the question's, the speaker and the form of what was said, so a
fit that was learned on one conversation carries over to others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Final, cast

import numpy as np

from memagent.core.answers import QUOTED_FROM, Hit, Relevance
from memagent.core.errors import ConfigError
from memagent.language.vocabulary import NEGATION, NUMBER, RECURS
from memagent.memory.judging.evidence import (
    PLACE_WORD,
    SOMEWHERE,
    Evidence,
    echoes,
    evidence_of,
    introduces,
    is_over,
    likeness,
    names_beside,
    period_fits,
    time_fits,
    who_fits,
    words_of,
)
from memagent.memory.question import Period, QuestionKind, QuestionView, read_question
from memagent.search.index import IndexView
from memagent.state.effects import tokenize
from memagent.state.fold import BankState, folded
from memagent.timex.resolve import find_times

Matrix = np.typing.NDArray[np.float64]
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
# Words around a statement of at least this weight are its own: what a correction corrects.
_SAME: Final = 0.9
_NAMED = re.compile(r"(?<=[^.!?\s])\s+[A-Z][\w’'-]*[a-z][\w-]*")
_FEW = re.compile(r"\b(?:couple|few|several|many|twice|once|dozen|both)\b", re.I)
_PLACE = re.compile(
    r"\b(?:in|at|to|from|near|around|visited|visit|through)\s+(?:the\s+|an?\s+|my\s+)?[A-Z]"
)
_CLAUSE = re.compile(
    r"[.!?;,:\n]+|\s[-–—]+\s|\b(?:but|although|though|because|while|so\s+that)\b", re.I
)
_OF_ANOTHER = re.compile(
    r"^\W*(?:\w+\W+){0,2}?(?:my|our|his|her|their|mein\w*|unser\w*|seine?|ihre?|mis?|nuestr[oa]s?|sus?)\s+"
    r"((?:\w+\s+){0,2}?\w+)|^\W*((?:s?he|they|er|él|ella|ellos)\b)",
    re.I,
)
_OF_ONESELF = re.compile(
    r"\b(?:I|me|we|us|myself|ourselves|ich|mich|mir|wir|uns|yo|nos|nosotr[oa]s)\b", re.I
)
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
    by_weight = sorted(terms, key=weights.__getitem__, reverse=True)
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
        arms = entry.hit.why.arms
        cosine = max(0.0, arms.get("dense", 0.0))
        found = {
            "cosine": cosine,
            "cosine_near": max(cosine, arms.get("dense_context", 0.0)),
            "score": entry.hit.score / top,
            "rank": 1.0 / (1.0 + rank),
        }
        values = (
            found
            | _words(view, entry, weights, by_weight, near)
            | (_subject(view, entry) if known else _mention(view, entry))
            | _form(view, entry, late)
        )
        rows[at] = [values[name] for name in FEATURES]
    return rows


def has_term(term: str, terms: Container[str]) -> bool:
    """Say whether a term of a question, or one of its kin, is among terms."""
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
    told = (entry.text, *(text for share, text in entry.around if share >= _SAME))
    own = frozenset[str]().union(*map(_terms, told))
    asked = frozenset[str]().union(*(_terms(text) for _, text in entry.around if "?" in text))
    held = {term for term in weights if has_term(term, own)}
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
    """Return the distinct index terms of a text, of its first 4,000 characters."""
    return frozenset(tokenize(text[:4_000]))


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
    place = bool(_PLACE.search(text)) + 0.5 * bool(PLACE_WORD.search(text))
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
            if term in close or has_term(term, own)
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
    asked = set(view.terms) | {kin for term in view.terms for kin in _KINDRED.get(term, ())}
    clauses = [clause for clause in _CLAUSE.split(entry.text) if asked & set(tokenize(clause))]
    return bool(clauses) and all(
        (match := _OF_ANOTHER.match(clause)) is not None
        and not asked & set(tokenize(match[1] or match[2]))
        and not _OF_ONESELF.search(clause)
        for clause in clauses
    )


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


MODEL_FILE: Final = Path(__file__).parent / "certainty.json"
SHARE: Final = 0.3
"""A statement is chosen beside the best if it is at least this likely, relative to it."""
MOST_CHOSEN: Final = 3
MOST_TERMS: Final = 24
UNLIKE: Final = 0.4
"""A statement that has nothing as like the question's rarest word as this lacks it."""
UNMET: Final = 0.2
"""Most that a reading may be sure when its best statement meets no word of the question."""
UNMET_COSINE: Final = 0.45
"""Unless it is as near in meaning as this."""
DOUBTED: Final = 0.6
"""Most that a reading may be sure when its best statement does not tell of what is asked."""
CHANGED: Final = "it has changed since"
OPEN_YEAR: Final = "it leaves open which year is meant"
OVER: Final = "the time that it told of is over"
Floats = np.typing.NDArray[np.float64]

_BEST: Final = tuple(name for name in FEATURES if name not in ("score", "period", "echo"))
OVERALL: Final = (
    *_BEST, "mass", "other_near", "other_like", "other_cosine", "other_own", "other_score",
    "ahead_near", "most_near", "most_like", "terms", "one_term", "people", "chosen",
    *(f"kind_{kind}" for kind in QuestionKind),
)  # fmt: skip
"""What the second model reads: the best statement's features, then those of the order."""


@dataclass(frozen=True)
class CertaintyModel:
    """The weights of both models, for raw features."""

    order: Floats
    """(F,), in the order of `FEATURES`."""
    overall: Floats
    """(1 + O,): the constant, then the weights in the order of `OVERALL`."""
    digest: str
    """SHA-256 of the file."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Evidence with its place in the order."""

    evidence: Evidence
    score: float
    share: float
    """Its share of the likelihood of all candidates, 0 to 1."""
    who: float
    cover: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Reading:
    """The statements for one question, best first, and how sure they make."""

    order: tuple[Scored, ...] = ()
    chosen: tuple[Scored, ...] = ()
    """The best, and those nearly as likely; one a turn."""
    probability: float = 0.0
    """That a chosen statement answers the question, 0 to 1."""
    doubts: tuple[str, ...] = ()
    """Reasons why the best statement cannot answer this very question."""
    meant: bool = False
    """Whether the best statement is near in meaning, whatever its words."""

    @property
    def sure(self) -> float:
        """The probability, bounded where there are doubts or no word of the question is met."""
        unmet = self.order and self.order[0].cover < 0.1 and self.order[0].cosine < UNMET_COSINE
        if unmet and not self.meant:
            return min(self.probability, UNMET)
        return min(self.probability, DOUBTED) if self.doubts else self.probability


@lru_cache(maxsize=4)
def open_model(path: Path = MODEL_FILE) -> CertaintyModel:
    """Read the weights. Raises `ConfigError` for a file that does not fit this version."""
    try:
        data = path.read_bytes()
        weights = cast("dict[str, dict[str, float]]", json.loads(data))
        order = np.array([weights["order"][name] for name in FEATURES])
        overall = np.array([weights["overall"][name] for name in ("constant", *OVERALL)])
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise ConfigError(
            f"the weights in {path} cannot be read ({type(exc).__name__}: {exc}); "
            "reinstall memagent"
        ) from exc
    return CertaintyModel(order, overall, hashlib.sha256(data).hexdigest())


def read_hits(
    view: QuestionView,
    hits: Sequence[Hit],
    state: BankState,
    *,
    text: str,
    weights: Mapping[str, float],
    model: CertaintyModel | None = None,
) -> Reading:
    """Order the statements behind the hits by how well they answer, and say how surely.

    `text` is the question's own, `weights` those of its terms. Where nothing fits, the
    memories are read once more by their earlier wordings: a new one often shares no word
    with the question. Then the newest wording is quoted, at most, and sooner than others:
    what changed was worth telling twice.
    """
    model = model or open_model()
    evidence = statements_of(view, hits, state)
    reading = _read(view, evidence, text, weights, model)
    if reading.sure >= QUOTED_FROM or view.period is Period.THEN:
        return reading
    current = {entry.hit.id: entry for entry in evidence if entry.current}
    worded: list[Evidence] = []
    for entry in evidence:
        older = [old for old in evidence_of(entry.hit, state, past=True)[1:] if not old.by_hand]
        worded += [replace(old, current=True) for old in older] or [entry]
    again = _read(view, worded, text, weights, model)
    if again.sure <= UNMET or again.order[0].evidence in evidence:
        return reading

    def newest(entries: Sequence[Scored]) -> tuple[Scored, ...]:
        """Return the entries in their newest wording, one a memory."""
        known = {entry.evidence.hit.id: entry for entry in reversed(entries)}
        return tuple(
            replace(known[at], evidence=current.get(at, known[at].evidence))
            for at in dict.fromkeys(entry.evidence.hit.id for entry in entries)
        )

    return replace(
        again,
        order=newest(again.order),
        chosen=newest(again.chosen),
        probability=min(max(again.sure, QUOTED_FROM), DOUBTED),
    )


def _read(
    view: QuestionView,
    evidence: list[Evidence],
    text: str,
    weights: Mapping[str, float],
    model: CertaintyModel,
) -> Reading:
    """Order statements by how well they answer, and say how surely."""
    if not evidence:
        return Reading()
    evidence = evidence + ([_nothing_else(evidence[0])] if len(evidence) == 1 else [])
    rows = features(view, evidence, weights, text)
    scores = rows @ model.order
    order = np.argsort(-scores, kind="stable")
    shares = np.exp(scores - scores[order[0]])
    shares /= shares.sum()
    chosen = [at for at in chosen_of(evidence, order, shares) if evidence[at].text]
    doubts = {at: _doubts(view, rows[at], evidence[at]) for at in chosen}
    chosen = [at for at in chosen if not doubts[at]] + [at for at in chosen if doubts[at]]
    overall = overall_of(
        view, rows, scores, mass=float(shares[chosen].sum()), count=len(chosen), weights=weights
    )
    logit = float(model.overall[0] + overall @ model.overall[1:])
    scored = {
        at: Scored(
            evidence[at],
            float(scores[at]),
            float(shares[at]),
            who=float(rows[at, COLUMN["who"]]),
            cover=float(rows[at, COLUMN["near"]]),
            cosine=float(rows[at, COLUMN["cosine"]]),
        )
        for at in map(int, order)
        if evidence[at].text
    }
    return Reading(
        order=tuple(scored[at] for at in dict.fromkeys((*chosen[:1], *scored))),
        chosen=tuple(scored[at] for at in chosen),
        probability=float(1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0)))),
        doubts=doubts[chosen[0]],
    )


def _nothing_else(only: Evidence) -> Evidence:
    """Return an empty statement beside the only one.

    The weights were fitted to several candidates: how far the best leads tells how sure
    it is.
    """
    hit = only.hit.model_copy(update={"id": "-", "score": 0.0, "why": Relevance()})
    return replace(only, hit=hit, text="", turn_ids=(), valid=None, around=(), by_hand=False)


def read_search(
    text: str, hits: Sequence[Hit], state: BankState, index: IndexView, *, asked_at: datetime
) -> Reading:
    """Read a text and what was found for it as a question and its candidates."""
    items = [hit.item for hit in hits if hit.item is not None]
    speakers = dict.fromkeys(
        name for item in items for name in (item.speaker, item.subject) if name
    )
    view = read_question(text, speakers=speakers, asked_at=asked_at)
    return read_hits(view, hits, state, text=text, weights=term_weights(view.terms, index))


def statements_of(view: QuestionView, hits: Sequence[Hit], state: BankState) -> list[Evidence]:
    """Return the statements behind the hits; replaced ones too for then, and for "when did"."""
    when = view.kind is QuestionKind.WHEN and not view.ahead
    past = view.period is Period.THEN or view.span is not None or when
    return [entry for hit in hits for entry in evidence_of(hit, state, past=past)]


def term_weights(terms: Sequence[str], view: IndexView) -> dict[str, float]:
    """Weigh each term by its rarity in a memory: idf, at least 0.2.

    A term that memory lacks weighs as the rarest.
    """
    rarity = view.rarity(terms)
    unknown = log(1.0 + (len(view) + 0.5) / 0.5)
    return {term: max(0.2, rarity.get(term, unknown)) for term in terms[:MOST_TERMS]}


def chosen_of(
    evidence: Sequence[Evidence], order: np.typing.NDArray[np.intp], shares: Floats
) -> list[int]:
    """Return the places of the best statements: those nearly as likely, one a turn."""
    chosen: dict[str, int] = {}
    for at in map(int, order):
        if shares[at] < SHARE * shares[order[0]] or len(chosen) == MOST_CHOSEN:
            break
        entry = evidence[at]
        same = entry.current == evidence[int(order[0])].current
        key = entry.turn_ids[-1] if entry.turn_ids else entry.hit.id
        if same:
            chosen.setdefault(key, at)
    return list(chosen.values())


def overall_of(
    view: QuestionView,
    rows: Matrix,
    scores: Floats,
    *,
    mass: float,
    count: int,
    weights: Mapping[str, float],
) -> Floats:
    """Return the features (O,) of the order as a whole, in the order of `OVERALL`."""
    order = np.argsort(-scores, kind="stable")
    best = rows[order[0]]
    speaks = rows[:, COLUMN["speaks"]] > 0.0

    def lead(name: str) -> float:
        """Return the lead of the best of other speakers over the one asked about."""
        column = rows[:, COLUMN[name]]
        return float(column[~speaks].max(initial=0.0) - column[speaks].max(initial=0.0))

    named, near, least = bool(view.people), rows[:, COLUMN["near"]], scores.min()
    others = scores[~speaks].max(initial=least) - scores[speaks].max(initial=least)
    ahead = near[~speaks].max(initial=0.0) - best[COLUMN["near"]]
    values = {
        "mass": mass,
        "other_near": lead("near") if named else 0.0,
        "other_like": lead("like") if named else 0.0,
        "other_cosine": lead("cosine") if named else 0.0,
        "other_own": lead("own") if named else 0.0,
        "other_score": float(others) if named else 0.0,
        "ahead_near": float(ahead) if named else 0.0,
        "most_near": float(near.max()),
        "most_like": float(rows[:, COLUMN["like"]].max()),
        "terms": float(min(len(weights), 8)),
        "one_term": float(len(weights) <= 1),
        "people": float(min(len(view.people), 2)),
        "chosen": float(count),
    }
    values |= {f"kind_{kind}": float(view.kind is kind) for kind in QuestionKind}
    values |= {name: float(best[COLUMN[name]]) for name in _BEST}
    return np.array([values[name] for name in OVERALL])


def _doubts(view: QuestionView, best: Floats, entry: Evidence) -> tuple[str, ...]:
    """Return what speaks against a statement whatever its probability."""
    doubts = {
        "it does not tell of the very name asked about": bool(best[COLUMN["name_missing"]]),
        "it does not tell of the very thing asked about": bool(
            best[COLUMN["owned_missing"]]
            or (best[COLUMN["rare_missing"]] and best[COLUMN["rare_like"]] < UNLIKE)
        ),
        CHANGED: not entry.current
        and view.period is not Period.THEN
        and view.span is None
        and view.kind is not QuestionKind.WHEN,
        OVER: entry.valid is not None and is_over(entry, view),
        "no place is told": view.kind is QuestionKind.WHERE and not SOMEWHERE.search(entry.text),
        "no number is told": view.kind in COUNTING and not best[COLUMN["number"]],
        "it tells of somebody or something else": tells_of_another(view, entry)
        or names_beside(entry, view),
        OPEN_YEAR: view.kind is QuestionKind.WHEN
        and entry.valid is None
        and not RECURS.search(entry.text)
        and any(time.open for time in find_times(entry.text, anchor=entry.said_at, most=8)),
    }
    return tuple(reason for reason, there in doubts.items() if there)
