"""A search by a recipe: arms, fusion, expansion, weights, reranking, cuts, in this order.

The vector index may be anywhere; everything here works on the bank's own view, so the
order of hits does not depend on the index. Reads change nothing. Invariant: a hit's
score is the fused sum times all factors in its `why`, unless a reranker had the last
word. The surprise: at most k hits come back whatever was added on the way; a neighbour
or a node of the graph stands there only in place of a hit that was worth less.

The projection of a state that is searched stands here too. A view is brought up to date
lazily, before a search or at the end of an ingest, so a durable write waits for the
journal only. The texts of an item follow from the state alone, so a replay builds the
same view. When the embedder fails, items stay findable by keyword and carry
`embedding_missing`; no vector is ever made up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from math import exp, isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from memagent.core import Later
from memagent.core.answers import MAX_ASKED_TIMES, MAX_RULED_CHARS, Filter, Query
from memagent.core.errors import EmbeddingError, ModelError, boundary
from memagent.core.long_work import Slices, aside
from memagent.core.recipes import PLAIN, Recipe
from memagent.core.records import MemoryItem, Scope, Session, TimeSpan, Turn
from memagent.embed.cached import off_unit
from memagent.protocols import Embedder, IndexRow, Matrix, Reranker, Vector
from memagent.search.fusion import Candidate, Pool
from memagent.search.index import IndexView
from memagent.search.scoring import Ranking, Scoring
from memagent.search.segments import CONTEXT, NO_ROW, OWN, Arena, Doc, Floats, make_doc
from memagent.search.weights import (
    ITEM_RULES,
    calls,
    importance,
    named_in,
    nearness,
    proximity,
    recency,
    utility,
)
from memagent.state.effects import K1, B, query_terms, tokenize
from memagent.state.fold import BankState
from memagent.timex.resolve import find_times

_MAX_INDEX_CHARS = 8_000
_NEIGHBOURS = 2
_LARGE = 256
"""Documents from which on the new view is made in a thread."""
_TEXTS_AT_ONCE = 512
"""Texts that are embedded in one call."""


class Projection(NamedTuple):
    """A state and the index of it; the content of a checkpoint."""

    state: BankState
    view: IndexView
    pending: frozenset[str]
    """Items that the view has yet to catch up with."""


class Projected(Protocol):
    """A memory that can tell its projection; see `MemoryBank`."""

    @property
    def scope(self) -> Scope:
        """The owner of the memory."""
        ...

    @property
    def embedder(self) -> Embedder:
        """The embedder of its vectors."""
        ...

    def projection(self) -> Projection:
        """Return the present state and view as a value."""
        ...


@dataclass(frozen=True, slots=True)
class Level:
    """The state that a networked index is brought level with."""

    seq: int
    ids: Iterable[str]
    """All items, whether they belong in the index or not."""
    row: Callable[[str], IndexRow | None]
    """The row of an item; None for one that is gone, out of sight or without a vector."""
    head: Callable[[], Awaitable[int]]
    """The end of the journal now."""


class NetworkedIndex(Protocol):
    """A vector index outside of the process that follows a memory."""

    def changed(self, ids: Iterable[str]) -> None:
        """Note items that the index has yet to follow."""
        ...

    def erased(self) -> None:
        """Note that everything so far was erased."""
        ...

    async def catch_up(self, present: Callable[[], Level], *, insist: bool = False) -> None:
        """Bring the index level with a state; only with `insist` a failure is raised."""
        ...

    async def propose(
        self, vector: Vector, *, k: int, where: Filter | None, seq: int
    ) -> frozenset[str] | None:
        """Return the ids of the k nearest; None where the memory has to search itself."""
        ...


def index_texts(state: BankState, item: MemoryItem) -> tuple[str, str]:
    """Return an item's own text and its text in context.

    The own text has the speaker; the context has the date and the source turns with two
    neighbours either way.
    """
    own = (
        item.text
        if not item.speaker or item.text.startswith(item.speaker)
        else f"{item.speaker}: {item.text}"
    )
    own = own[:_MAX_INDEX_CHARS]
    lines: dict[str, None] = {}
    date = ""
    for turn_id in item.source_turn_ids:
        place = state.turns.get(turn_id)
        if place is None:
            continue
        session = state.sessions[place[0]]
        date = date or _date(session, session.turns[place[1]])
        for turn in session.turns[max(0, place[1] - _NEIGHBOURS) : place[1] + _NEIGHBOURS + 1]:
            if not turn.recalled:
                lines[f"{turn.speaker}: {turn.said}"] = None
    if not lines:
        return own, own
    if own not in lines:
        lines = {own: None, **lines}
    return own, " \n".join((*([date] if date else []), *lines))[:_MAX_INDEX_CHARS]


def _date(session: Session, turn: Turn) -> str:
    moment = session.date_of(turn)
    return f"{moment.day} {moment:%B %Y}" if moment else ""


@dataclass(slots=True)
class Projector:
    """Makes index documents of items, with an embedder and a shared arena."""

    embedder: Embedder
    arena: Arena = field(default_factory=lambda: Arena(0))
    """Vectors and vocabulary; a new one unless one is given."""
    failure: EmbeddingError | None = None
    """The last embedding failure, None after a success; search is lexical meanwhile."""

    def __post_init__(self) -> None:
        if not self.arena.dim:
            self.arena = Arena(self.embedder.dim)

    async def embed(self, texts: Sequence[str], *, queries: bool = False) -> Matrix:
        """Return checked vectors (N, D). Raises `EmbeddingError`."""
        embedder = (queries and getattr(self.embedder, "queries", None)) or self.embedder
        with boundary(EmbeddingError, f"embedder {embedder.id!r}"):
            vectors = await embedder.embed(texts)
        if vectors.shape != (len(texts), self.arena.dim):
            raise EmbeddingError(
                f"embedder {self.embedder.id!r} gave shape {vectors.shape} for {len(texts)} texts, "
                f"this memory holds width {self.arena.dim}; "
                "run `memagent reembed` after changing the embedder"
            )
        if off_unit(vectors):
            raise EmbeddingError(
                f"embedder {self.embedder.id!r} gave vectors that are not finite and of unit length"
            )
        return vectors

    async def query_vectors(self, texts: Sequence[str]) -> list[Vector | None]:
        """Return a vector (D,) for each text; all None when the embedder fails."""
        try:
            vectors = await self.embed(texts, queries=True)
        except EmbeddingError as failure:
            self.failure = failure
            return [None] * len(texts)
        self.failure = None
        return list(vectors)

    async def catch_up(
        self,
        view: IndexView,
        state: BankState,
        changed: Iterable[str],
        *,
        expired: Container[str] = frozenset[str](),
    ) -> IndexView:
        """Return the view brought up to date for the changed items, without expired ones."""
        gone: list[str] = []
        fresh: list[MemoryItem] = []
        texts: list[tuple[str, str]] = []
        slices = Slices()
        async for item_id in slices.over(sorted(set(changed))):
            item = state.items.get(item_id)
            if item is not None and item.active and item_id not in expired:
                fresh.append(item)
                texts.append(index_texts(state, item))
            else:
                gone.append(item_id)
        await self._fill_arena(texts, slices)
        pairs = slices.over(zip(fresh, texts, strict=True))
        docs = [self._doc(item, pair) async for item, pair in pairs]
        if len(gone) + len(docs) < _LARGE:
            return _changed(view, gone, docs)
        return await aside(_changed, view, gone, docs)

    def row_of(self, state: BankState, item: MemoryItem) -> int:
        """Return the arena row of an item's own text, `NO_ROW` without a vector."""
        return self.arena.row(index_texts(state, item)[0])

    def _doc(self, item: MemoryItem, texts: tuple[str, str]) -> Doc:
        doc = make_doc(item, texts, (tokenize(texts[0]), tokenize(texts[1])), self.arena)
        if NO_ROW in doc.rows:
            return replace(doc, item=item.model_copy(update={"embedding_missing": True}))
        return doc

    async def _fill_arena(self, texts: Sequence[tuple[str, str]], slices: Slices) -> None:
        # Own texts first: the rows of one field then lie side by side, and a scan of
        # one does not pass through the other's.
        ordered = dict.fromkeys((*(own for own, _ in texts), *(context for _, context in texts)))
        row = self.arena.row
        missing = [text async for text in slices.over(ordered) if row(text) == NO_ROW]
        for at in range(0, len(missing), _TEXTS_AT_ONCE):
            some = missing[at : at + _TEXTS_AT_ONCE]
            try:
                vectors = await self.embed(some)
            except EmbeddingError as failure:
                self.failure = failure
                return
            self.failure = None
            self.arena.put(some, vectors)
            await slices.rest()


def _changed(view: IndexView, gone: Sequence[str], docs: Sequence[Doc]) -> IndexView:
    """Return the view without some items and with these documents."""
    view = view.drop(gone) if gone else view
    if not docs:
        return view
    view = view.put(docs)
    if len(docs) >= _LARGE:
        view.prepare(ITEM_RULES.values())
    return view


if TYPE_CHECKING:
    from memagent.events import visibility
    from memagent.search import cuts, cuts as expansion
else:
    cuts = Later("memagent.search.cuts")
    expansion = Later("memagent.search.cuts")
    visibility = Later("memagent.events.visibility")

TIME_WEIGHT = 1.0
"""Added to a weight of 1 for an item at the time asked about."""
_LEXICAL = (("lexical", OWN), ("lexical_context", CONTEXT))
_COLLAPSED_FROM = 4
"""Near duplicates are looked for among the best 4 k hits."""

Propose = Callable[[Vector, int, Filter | None], Awaitable[Filter | None]]
"""Narrows a filter to the candidates of a vector index elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchContext:
    """The memory that a search reads."""

    state: BankState
    view: IndexView
    expired: Container[str]
    propose: Propose | None = None
    reranker: Reranker | None = None


async def recall(
    query: Query,
    vector: Vector | None,
    *,
    k: int,
    now: datetime,
    context: SearchContext,
    explain: bool = True,
) -> list[Candidate]:
    """Return at most k items, best first, ties by id.

    `vector` (D,) is the query's; None searches by keyword only. Without `explain` items
    and scores are the same, but the candidates lack their reasons.
    """
    recipe = query.recipe or PLAIN
    moment = query.asked_at or now
    span = asked_span(query.text, moment) if recipe.time != "off" else None
    arms = _Arms.of(query, recipe, vector, context)
    size = max(recipe.pool, 2 * k)
    rankings, pieces = await arms.rankings(span, size), context.view.pieces
    pool = Pool(rankings, most=arms.most, size=size, pieces=pieces)
    if recipe.sessions or recipe.graph:
        rows = pool.best(pool.scores)
        if recipe.sessions:
            expansion.add_sessions(
                pool, rows, arms.scoring, sessions=recipe.sessions, where=query.where
            )
        if recipe.graph:
            hidden = visibility.OutOfSight(context.state, query.where, context.expired)
            expansion.add_graph(pool, rows, most=recipe.graph, hidden=hidden, state=context.state)
    if recipe.neighbours:
        beside = expansion.Beside(recipe.neighbours, query.where, context.state, context.view)
        expansion.add_neighbours(pool, pool.best(pool.scores, k), beside)
    scores = pool.weigh(_factors(pool, query, recipe, span, moment, context))
    rows = pool.best(scores, _needed(recipe, k))
    if recipe.time == "hard" and span is not None:
        rows = [row for row in rows if proximity(pool.items[row], span) >= 1.0]
    order = pool.candidates(rows, scores)
    if recipe.rerank and context.reranker is not None and order:
        count = max(recipe.rerank, k)
        order = await _reranked(order, count, query.text, context.reranker, context.state)
    hits = _selected(order, k, recipe, context.view)
    if explain:
        pool.explain(hits)
    return hits


def most_similar(
    texts: Sequence[str], vectors: Sequence[Vector | None], *, k: int, view: IndexView
) -> list[list[Candidate]]:
    """Return for each text the k items whose own texts are most like it, best first.

    Ties go by id. Cosine and keywords count, and nothing else weighs in.
    """
    words = [query_terms(text) for text in texts]
    terms = [view.arena.known_terms(some) for some in words]
    scorings = Scoring.of_many(view, vectors, terms, k1=K1, b=B)
    pieces, size = view.pieces, 2 * k
    found: list[list[Candidate]] = []
    for scoring, some, known in zip(scorings, words, terms, strict=True):
        rankings = {"dense": scoring.cosines(k=size), "lexical": scoring.words(k=size)}
        most = {"lexical": scoring.lexical_most(unknown=len(some) - len(known))}
        pool = Pool(rankings, most=most, size=size, pieces=pieces)
        hits = pool.candidates(pool.best(pool.scores, k), pool.scores)
        pool.explain(hits)
        found.append(hits)
    return found


def asked_span(text: str, asked_at: datetime) -> TimeSpan | None:
    """Return the first time that a question names, or None.

    Relative phrases are read from the moment the question is asked.
    """
    times = find_times(text[:MAX_RULED_CHARS], anchor=asked_at, most=MAX_ASKED_TIMES)
    return times[0].span if times else None


# -- arms ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Arms:
    """The rankings of one query by one recipe."""

    query: Query
    recipe: Recipe
    vector: Vector | None
    scoring: Scoring
    most: dict[str, float]
    context: SearchContext

    @classmethod
    def of(
        cls, query: Query, recipe: Recipe, vector: Vector | None, context: SearchContext
    ) -> _Arms:
        words = query_terms(query.text) if "lexical" in query.arms else []
        terms = context.view.arena.known_terms(words)
        scoring = Scoring(context.view, vector=vector, terms=terms, k1=K1, b=B)
        most = {
            name: scoring.lexical_most(unknown=len(words) - len(terms), field=field)
            for name, field in _LEXICAL
            if name in recipe.arms
        }
        return cls(query, recipe, vector, scoring, most, context)

    async def rankings(self, span: TimeSpan | None, count: int) -> dict[str, Ranking]:
        """Return the best of every arm; with a time asked about, its best of that time too."""
        narrowed = _narrowed(self.query.where, span) if span is not None else []
        rankings: dict[str, Ranking] = {}
        if not narrowed or self.recipe.time == "soft":
            where = self.query.where
            rankings = await self._within(None if where.empty else where, count)
        for where in narrowed:
            for name, more in (await self._within(where, count)).items():
                rankings[name] = rankings[name].extended(more) if name in rankings else more
        if self.recipe.time == "hard" and narrowed:
            pieces = self.context.view.pieces
            return {name: ranking.best(count, pieces) for name, ranking in rankings.items()}
        return rankings

    async def _within(self, where: Filter | None, count: int) -> dict[str, Ranking]:
        """Return each arm's `count` best under a filter."""
        arms, scoring, propose = self.recipe.arms, self.scoring, self.context.propose
        rankings: dict[str, Ranking] = {}
        if self.vector is not None:
            if "dense" in arms:
                near = where if propose is None else await propose(self.vector, count, where)
                rankings["dense"] = scoring.cosines(k=count, where=near)
            if "dense_context" in arms:
                rankings["dense_context"] = scoring.cosines(k=count, field=CONTEXT, where=where)
        for name, part in _LEXICAL:
            if name in arms:
                rankings[name] = scoring.words(k=count, field=part, where=where)
        return rankings


def _narrowed(where: Filter, span: TimeSpan) -> list[Filter]:
    """Return the filter narrowed to a time, on each axis that it leaves open."""
    axes = [axis for axis in ("valid", "said") if getattr(where, axis) is None]
    return [where.model_copy(update={axis: span}) for axis in axes]


# -- weights ---------------------------------------------------------------------------


def _factors(
    pool: Pool,
    query: Query,
    recipe: Recipe,
    span: TimeSpan | None,
    moment: datetime,
    context: SearchContext,
) -> dict[str, Iterable[float] | Floats]:
    """Return the weights of the pool's rows, by name."""
    items, days, stats = pool.items, recipe.half_life_days, context.state.stats
    parts = context.view.pieces.parts if recipe.names else ()
    forms = [_calls(part.segment.names) for part in parts if part.segment.names]
    names = named_in(query.text, *forms) if forms else frozenset[str]()
    factors: dict[str, Iterable[float] | Floats] = {}
    if span is not None:
        near = nearness(span)
        factors["time"] = (1.0 + TIME_WEIGHT * near(item) for item in items)
    if days is not None:
        factors["recency"] = (
            recency(item.said_at, now=moment, half_life_days=days) for item in items
        )
    if recipe.importance:
        factors["importance"] = (
            1.0 + recipe.importance * importance(item, stats.get(item.id)) for item in items
        )
    if recipe.utility:
        factors["utility"] = (1.0 + recipe.utility * utility(stats.get(item.id)) for item in items)
    if names:
        factors["names"] = (
            1.0 + recipe.names if item.speaker in names or item.subject in names else 1.0
            for item in items
        )
    return factors | pool.columns(ITEM_RULES)


def _needed(recipe: Recipe, k: int) -> int | None:
    """Return how many of the best a recipe's end looks at; None for all."""
    if recipe.rerank or recipe.time == "hard" or recipe.per_session or recipe.max_tokens:
        return None
    return max(_COLLAPSED_FROM * k, 1) if recipe.collapse else k


@lru_cache(maxsize=256)
def _calls(names: frozenset[str]) -> dict[str, list[str]]:
    return calls(sorted(names))


# -- the end ---------------------------------------------------------------------------


async def _reranked(
    order: Sequence[Candidate], count: int, text: str, reranker: Reranker, state: BankState
) -> list[Candidate]:
    """Return the best in the reranker's order, ties by id, then the others as they were."""
    first, rest = list(order[:count]), order[count:]
    with boundary(ModelError, f"reranker {reranker.id!r}"):
        texts = [index_texts(state, candidate.item)[OWN] for candidate in first]
        scores = await reranker.score(text, texts)
    if len(scores) != len(first) or not all(isfinite(score) for score in scores):
        raise ModelError(
            f"reranker {reranker.id!r} gave {len(scores)} scores for {len(first)} texts, "
            "or some not finite"
        )
    ceiling = max([1.0, *(candidate.score for candidate in rest)])
    for candidate, score in zip(first, scores, strict=True):
        candidate.rerank = float(score)
        candidate.score = ceiling + _logistic(candidate.rerank)
    first.sort(key=lambda candidate: (-round(candidate.rerank or 0.0, 6), candidate.id))
    return [*first, *rest]


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + exp(-value)) if value >= 0 else exp(value) / (1.0 + exp(value))


def _selected(
    order: Sequence[Candidate], k: int, recipe: Recipe, view: IndexView
) -> list[Candidate]:
    """Return the first k after the recipe's cuts."""
    kept = list(order)
    if recipe.collapse:
        kept = _collapsed(order[: max(_COLLAPSED_FROM * k, 1)], recipe.collapse, view)
    if recipe.per_session is not None:
        sessions = [candidate.item.session_id for candidate in kept]
        kept = [kept[at] for at in cuts.quota(sessions, most=recipe.per_session)]
    if recipe.max_tokens is not None:
        costs = [cuts.token_estimate(candidate.item.text) for candidate in kept]
        for candidate, cost in zip(kept, costs, strict=True):
            candidate.tokens = cost
        kept = [kept[at] for at in cuts.budget(costs, most=recipe.max_tokens)]
    return kept[:k]


def _collapsed(order: Sequence[Candidate], threshold: float, view: IndexView) -> list[Candidate]:
    rows = np.fromiter((view.row_of(candidate.id) for candidate in order), np.int64, len(order))
    vectors = view.arena.matrix[rows] if len(view.arena) else np.zeros((len(order), 1), np.float32)
    products: npt.NDArray[np.float32] = np.vecdot(vectors[:, None], vectors[None])
    cosines: list[list[float]] = np.round(products, 6).tolist()
    with_vector: list[bool] = (rows != NO_ROW).tolist()
    words: dict[int, frozenset[str]] = {}

    def words_of(at: int) -> frozenset[str]:
        if at not in words:
            words[at] = frozenset(tokenize(order[at].item.text))
        return words[at]

    def is_duplicate(head: int, at: int) -> bool:
        if with_vector[head] and with_vector[at]:
            return cosines[head][at] >= threshold
        return cuts.word_overlap(words_of(head), words_of(at)) >= threshold

    items = [candidate.item for candidate in order]
    frames = [(item.speaker, cuts.fixed_words(item.text)) for item in items]
    kept: list[Candidate] = []
    for head, joined in cuts.collapse(frames, is_duplicate):
        order[head].collapsed = tuple(order[at].id for at in joined)
        kept.append(order[head])
    return kept
