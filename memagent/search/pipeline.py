"""A search by a recipe: arms, fusion, expansion, weights, reranking, cuts, in this order.

The vector index may be anywhere; everything here works on the bank's own view, so the
order of hits does not depend on the index. Reads change nothing. Invariant: a hit's
score is what its `why` says: the fused sum times all factors, unless a reranker had the
last word. The surprise: at most k hits come back whatever was added on the way; a
neighbour or a node of the graph stands there only in place of a hit that was worth
less.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import exp, isfinite, prod

import numpy as np
import numpy.typing as npt

from memagent.core.answers import Filter, Query
from memagent.core.errors import ModelError, boundary
from memagent.core.recipes import PLAIN, Recipe
from memagent.core.records import TimeSpan
from memagent.protocols import Reranker, Vector
from memagent.search.columns import adds_nothing, in_columns
from memagent.search.cuts import budget, collapse, fixed_words, quota, token_estimate, word_overlap
from memagent.search.expansion import add_neighbours, graph_ranking, session_ranking
from memagent.search.fusion import ARM_WEIGHTS, Candidate, Fusion, in_order
from memagent.search.index import IndexView
from memagent.search.projection import index_texts
from memagent.search.scoring import Ranking, Scored, Scoring, ordered
from memagent.search.segments import CONTEXT, NO_ROW, OWN
from memagent.search.weights import (
    asking,
    calls,
    importance,
    length,
    named_in,
    nearness,
    proximity,
    recency,
)
from memagent.state.fold import BankState
from memagent.state.tokens import K1, B, query_terms, tokenize
from memagent.timex.resolve import find_times

TIME_WEIGHT = 1.0
"""How much being at the time asked about adds to a weight of 1."""
_LEXICAL = (("lexical", OWN), ("lexical_context", CONTEXT))
_COLLAPSED_FROM = 4
"""Near duplicates are looked for among the best 4 k hits."""

Propose = Callable[[Vector, int, Filter], Awaitable[Filter]]
"""A filter narrowed to the candidates that a vector index elsewhere proposes, or the
filter as it is.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a search stands on."""

    state: BankState
    view: IndexView
    expired: Container[str]
    propose: Propose
    reranker: Reranker | None = None


async def recall(
    query: Query,
    vector: Vector | None,
    *,
    k: int,
    now: datetime,
    ground: Ground,
    explain: bool = True,
) -> list[Candidate]:
    """At most k items, best first, ties by id.

    `vector` (D,) is the query's; None searches by keyword only.

    Without `explain` items and scores are the same, but the candidates need not tell
    how they came to be.
    """
    recipe = query.recipe or PLAIN
    moment = query.asked_at or now
    span = asked_span(query.text, moment) if recipe.time != "off" else None
    words = query_terms(query.text) if "lexical" in query.arms else []
    terms = ground.view.arena.known_terms(words)
    work = _Work(
        query,
        recipe,
        vector,
        Scoring(ground.view, vector=vector, terms=terms, k1=K1, b=B),
        ground,
        Fusion(),
    )
    pool = max(recipe.pool, 2 * k)
    unknown = len(words) - len(terms)
    most = {
        name: work.scoring.lexical_most(unknown=unknown, field=field)
        for name, field in _LEXICAL
        if name in recipe.arms
    }
    if (
        span is None
        and adds_nothing(recipe)
        and not (recipe.rerank and ground.reranker is not None)
    ):
        return in_columns(
            {name: ranking async for name, ranking in work.columns(query.where, pool)},
            most=most,
            pool=pool,
            k=k,
            names=_named(query.text, ground.view) if recipe.names else frozenset[str](),
            names_weight=recipe.names,
            view=ground.view,
            explain=explain,
        )
    fusion, found = work.fusion, work.fusion.found
    fusion.add(await work.rankings(span, pool=pool), weights=ARM_WEIGHTS, most=most, pool=pool)
    if recipe.sessions or recipe.graph:
        work.expand(in_order(found.values()))
    if recipe.neighbours:
        best = in_order(found.values())[:k]
        add_neighbours(
            best,
            found,
            distance=recipe.neighbours,
            where=query.where,
            state=ground.state,
            view=ground.view,
        )
    _weigh(found, query, recipe, span, moment, ground)
    order = [
        one
        for one in in_order(found.values())
        if not (recipe.time == "hard" and _misses(one, span))
    ]
    if recipe.rerank and ground.reranker is not None and order:
        order = await _reranked(
            order, max(recipe.rerank, k), query.text, ground.reranker, ground.state
        )
    return _selected(order, k, recipe, ground.view)


def alike(text: str, vector: Vector | None, *, k: int, view: IndexView) -> list[Candidate]:
    """The k items whose own texts are most like a text, by cosine and by keyword, best
    first, ties by id; nothing weighs in.
    """
    words = query_terms(text)
    terms = view.arena.known_terms(words)
    scoring = Scoring(view, vector=vector, terms=terms, k1=K1, b=B)
    fusion, pool = Fusion(), 2 * k
    fusion.add(
        {"dense": scoring.nearest(k=pool), "lexical": scoring.lexical(k=pool)},
        weights=ARM_WEIGHTS,
        most={"lexical": scoring.lexical_most(unknown=len(words) - len(terms))},
        pool=pool,
    )
    return in_order(fusion.found.values())[:k]


def asked_span(text: str, asked_at: datetime) -> TimeSpan | None:
    """The first time that a question names, relative phrases read from the moment it is
    asked; None when it names none.
    """
    times = find_times(text, anchor=asked_at)
    return times[0].span if times else None


# -- arms and expansion ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    """One query by one recipe."""

    query: Query
    recipe: Recipe
    vector: Vector | None
    scoring: Scoring
    ground: Ground
    fusion: Fusion

    async def rankings(self, span: TimeSpan | None, *, pool: int) -> dict[str, list[Scored]]:
        """Every arm's best, and with a time asked about its best of that time."""
        narrowed = _narrowed(self.query.where, span) if span is not None else []
        found: dict[str, list[Scored]] = {}
        if not narrowed or self.recipe.time == "soft":
            found = await self._arms(self.query.where, pool)
        seen = {name: {item.id for item, _ in ranking} for name, ranking in found.items()}
        for where in narrowed:
            for name, more in (await self._arms(where, pool)).items():
                known, ids = found.setdefault(name, []), seen.setdefault(name, set())
                known += [pair for pair in more if pair[0].id not in ids]
                ids.update(item.id for item, _ in more)
        if self.recipe.time == "hard":
            return {name: ordered(ranking, pool) for name, ranking in found.items()}
        return found

    async def _arms(self, where: Filter, pool: int) -> dict[str, list[Scored]]:
        return {
            name: self.scoring.listed(ranking) async for name, ranking in self.columns(where, pool)
        }

    async def columns(self, where: Filter, pool: int) -> AsyncIterator[tuple[str, Ranking]]:
        """Each arm's name and the best `pool` that it finds."""
        arms = self.recipe.arms
        only = None if where.empty else where
        if self.vector is not None:
            if "dense" in arms:
                near = await self.ground.propose(self.vector, pool, where)
                yield "dense", self.scoring.cosines(k=pool, where=None if near.empty else near)
            if "dense_context" in arms:
                yield "dense_context", self.scoring.cosines(k=pool, field=CONTEXT, where=only)
        for name, field in _LEXICAL:
            if name in arms:
                yield name, self.scoring.words(k=pool, field=field, where=only)

    def expand(self, order: Sequence[Candidate]) -> None:
        """Fuse what the sessions of the best hits and the event graph add."""
        recipe, where, ground, found = self.recipe, self.query.where, self.ground, self.fusion.found
        more: dict[str, list[Scored]] = {}
        if recipe.sessions:
            more["session"] = session_ranking(
                order, self.scoring, sessions=recipe.sessions, where=where
            )
        reached = (
            graph_ranking(
                order, most=recipe.graph, where=where, state=ground.state, expired=ground.expired
            )
            if recipe.graph
            else []
        )
        more["graph"] = [(item, share) for item, share, _ in reached]
        heads: dict[str, str] = {}
        for one in order:
            if one.item.session_id is not None:
                heads.setdefault(one.item.session_id, one.id)
        known = set(found)
        self.fusion.add(more, weights=ARM_WEIGHTS, most={"graph": reached[0][1]} if reached else {})
        for item, _, via in reached:
            found[item.id].via = via
        for item, _ in more.get("session", ()):
            if item.id not in known and item.session_id is not None:
                found[item.id].expanded_from = heads.get(item.session_id)


def _narrowed(where: Filter, span: TimeSpan) -> list[Filter]:
    """The filter narrowed to a time, on each axis that it leaves open."""
    axes = [axis for axis, given in (("valid", where.valid), ("said", where.said)) if given is None]
    return [where.model_copy(update={axis: span}) for axis in axes]


# -- weights ---------------------------------------------------------------------------


def _weigh(
    found: dict[str, Candidate],
    query: Query,
    recipe: Recipe,
    span: TimeSpan | None,
    moment: datetime,
    ground: Ground,
) -> None:
    names = _named(query.text, ground.view) if recipe.names else frozenset[str]()
    near = nearness(span) if span is not None else None
    for one in found.values():
        item, factors = one.item, one.factors
        if near is not None:
            factors["time"] = 1.0 + TIME_WEIGHT * near(item)
        if recipe.half_life_days is not None:
            factors["recency"] = recency(
                item.said_at, now=moment, half_life_days=recipe.half_life_days
            )
        if recipe.importance:
            factors["importance"] = 1.0 + recipe.importance * importance(
                item, ground.state.stats.get(item.id)
            )
        if names and (item.speaker in names or item.subject in names):
            factors["names"] = 1.0 + recipe.names
        factors["asking"] = asking(item.text)
        factors["length"] = length(item.text)
        one.score *= prod(factors.values())


def _misses(one: Candidate, span: TimeSpan | None) -> bool:
    """Whether a hit is neither told of nor said within the span; never, when no time was named."""
    return span is not None and proximity(one.item, span) < 1.0


def _named(text: str, view: IndexView) -> frozenset[str]:
    """Known speakers and subjects that a text names."""
    return frozenset(name for names in view.names() for name in named_in(text, _calls(names)))


@lru_cache(maxsize=256)
def _calls(names: frozenset[str]) -> dict[str, list[str]]:
    return calls(sorted(names))


# -- the end ---------------------------------------------------------------------------


async def _reranked(
    order: Sequence[Candidate], count: int, text: str, reranker: Reranker, state: BankState
) -> list[Candidate]:
    """The best in the reranker's order, ties by id, then the others as they were."""
    first, rest = list(order[:count]), order[count:]
    with boundary(ModelError, f"reranker {reranker.id!r}"):
        scores = await reranker.score(text, [index_texts(state, one.item)[OWN] for one in first])
    if len(scores) != len(first) or not all(isfinite(score) for score in scores):
        raise ModelError(
            f"reranker {reranker.id!r} gave {len(scores)} scores for {len(first)} texts, or some not finite"
        )
    ceiling = max([1.0, *(one.score for one in rest)])
    for one, score in zip(first, scores, strict=True):
        one.rerank = float(score)
        one.score = ceiling + _logistic(one.rerank)
    return [*sorted(first, key=lambda one: (-round(one.rerank or 0.0, 6), one.id)), *rest]


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + exp(-value)) if value >= 0 else exp(value) / (1.0 + exp(value))


def _selected(
    order: Sequence[Candidate], k: int, recipe: Recipe, view: IndexView
) -> list[Candidate]:
    kept = (
        _collapsed(order[: max(_COLLAPSED_FROM * k, 1)], recipe.collapse, view)
        if recipe.collapse
        else list(order)
    )
    if recipe.per_session is not None:
        kept = [
            kept[at] for at in quota([one.item.session_id for one in kept], most=recipe.per_session)
        ]
    if recipe.max_tokens is not None:
        for one in kept:
            one.tokens = token_estimate(one.item.text)
        kept = [
            kept[at] for at in budget([one.tokens or 0 for one in kept], most=recipe.max_tokens)
        ]
    return kept[:k]


def _collapsed(order: Sequence[Candidate], threshold: float, view: IndexView) -> list[Candidate]:
    rows = np.fromiter((view.row_of(one.id) for one in order), np.int64, len(order))
    vectors = view.arena.matrix[rows] if len(view.arena) else np.zeros((len(order), 1), np.float32)
    products: npt.NDArray[np.float32] = np.vecdot(vectors[:, None], vectors[None])
    cosines: list[list[float]] = np.round(products, 6).tolist()
    with_vector: list[bool] = (rows != NO_ROW).tolist()
    words: dict[int, frozenset[str]] = {}

    def words_of(at: int) -> frozenset[str]:
        if at not in words:
            words[at] = frozenset(tokenize(order[at].item.text))
        return words[at]

    def alike(head: int, at: int) -> bool:
        if with_vector[head] and with_vector[at]:
            return cosines[head][at] >= threshold
        return word_overlap(words_of(head), words_of(at)) >= threshold

    frames = [(one.item.speaker, fixed_words(one.item.text)) for one in order]
    kept: list[Candidate] = []
    for head, joined in collapse(frames, alike):
        order[head].collapsed = tuple(order[at].id for at in joined)
        kept.append(order[head])
    return kept
