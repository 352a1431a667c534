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
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import exp, isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from memagent.core import Later
from memagent.core.answers import MAX_ASKED_TIMES, MAX_RULED_CHARS, Filter, Query
from memagent.core.errors import EmbeddingError, ModelError, boundary
from memagent.core.long_work import Slices, aside
from memagent.core.recipes import PLAIN, Recipe
from memagent.core.records import MemoryItem, Scope, TimeSpan
from memagent.embed.static import off_unit
from memagent.protocols import Embedder, IndexRow, Matrix, Reranker, Vector
from memagent.search.fusion import (
    ITEM_RULES,
    Candidate,
    Pool,
    calls,
    importance,
    named_in,
    nearness,
    recency,
    utility,
)
from memagent.search.index import IndexView, Ranking, Scoring
from memagent.search.segments import CONTEXT, NO_ROW, OWN, Arena, Doc, Floats, make_doc
from memagent.state.effects import query_terms, tokenize
from memagent.state.fold import BankState
from memagent.timex.resolve import TimeMention, find_times

_MAX_INDEX_CHARS = 8_000
_NEIGHBOURS = 2
# Documents from which on the new view is made in a thread.
_LARGE = 256
# Items that are indexed between two looks at the clock.
_ITEMS_AT_ONCE = 16
# Texts that are embedded in one call.
_TEXTS_AT_ONCE = 512


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


class SavedProjections(Protocol):
    """The place of projections between two openings of a memory, such as `Checkpoints`."""

    def load(self, scope: Scope, embedder: Embedder) -> Projection | None:
        """Return a memory's last projection, checked; None without one. Blocks."""

    def watch(self, memory: Projected) -> None:
        """Save a memory's projection when the store closes."""

    def grown(self, memory: Projected, *, seq: int, items: int) -> None:
        """Save a memory's projection in the background if it grew enough."""


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
        if not date and (moment := session.date_of(session.turns[place[1]])):
            date = f"{moment.day} {moment:%B %Y}"
        for turn in session.turns[max(0, place[1] - _NEIGHBOURS) : place[1] + _NEIGHBOURS + 1]:
            if not turn.recalled:
                lines[f"{turn.speaker}: {turn.said}"] = None
    if not lines:
        return own, own
    if own not in lines:
        lines = {own: None, **lines}
    return own, " \n".join((*([date] if date else []), *lines))[:_MAX_INDEX_CHARS]


@dataclass(slots=True)
class Projector:
    """Makes index documents of items, with an embedder and a shared arena."""

    embedder: Embedder
    arena: Arena = field(default_factory=lambda: Arena(0))
    """Vectors and vocabulary; a new one unless one is given."""
    failure: EmbeddingError | None = None
    """The last embedding failure, None after a success; search is lexical meanwhile."""
    former: Arena | None = None
    """Vectors of before an erasure: those of texts that stay are taken over, not made again."""

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
        owns: list[str] = []
        contexts: list[str] = []
        slices, ids = Slices(), sorted(set(changed))
        for at, item_id in enumerate(ids, 1):
            item = state.items.get(item_id)
            if item is not None and item.active and item_id not in expired:
                own, context = index_texts(state, item)
                fresh.append(item)
                owns.append(own)
                contexts.append(context)
            else:
                gone.append(item_id)
            if not at % _ITEMS_AT_ONCE:
                await slices.rest()
        # Own texts first: the rows of one field then lie side by side, and a scan of
        # one does not pass through the other's.
        await self._fill_arena([*owns, *contexts], slices)
        docs: list[Doc] = []
        for at, (item, own, context) in enumerate(zip(fresh, owns, contexts, strict=True), 1):
            words = tokenize(own), tokenize(context)
            doc = make_doc(item, (own, context), words, self.arena)
            if NO_ROW in doc.rows:
                doc = doc._replace(item=item.model_copy(update={"embedding_missing": True}))
            docs.append(doc)
            if not at % _ITEMS_AT_ONCE:
                await slices.rest()
        if len(gone) + len(docs) < _LARGE:
            return view.put(docs, gone=gone)
        return await aside(_changed, view, gone, docs)

    def row_of(self, state: BankState, item: MemoryItem) -> int:
        """Return the arena row of an item's own text, `NO_ROW` without a vector."""
        return self.arena.row(index_texts(state, item)[0])

    def index_row(self, state: BankState, expired: Container[str], item_id: str) -> IndexRow | None:
        """Return the row of an item for a networked index; see `Level.row`."""
        item = state.items.get(item_id)
        if item is None or not item.active or item_id in expired:
            return None
        at = self.row_of(state, item)
        return IndexRow(item, self.arena.matrix[at]) if at != NO_ROW else None

    async def _fill_arena(self, texts: Sequence[str], slices: Slices) -> None:
        row = self.arena.row
        each = slices.over(dict.fromkeys(texts))
        missing = [text async for text in each if row(text) == NO_ROW]
        for at in range(0, len(missing), _TEXTS_AT_ONCE):
            some = missing[at : at + _TEXTS_AT_ONCE]
            if self.former is not None:
                some = self.arena.take(some, self.former)
            try:
                vectors = await self.embed(some) if some else self.arena.matrix[:0]
            except EmbeddingError as failure:
                self.failure = failure
                return
            self.failure = None
            self.arena.put(some, vectors)
            await slices.rest()
        self.former = None


def _changed(view: IndexView, gone: Sequence[str], docs: Sequence[Doc]) -> IndexView:
    """Return the view without some items and with these documents, ready to be searched."""
    view = view.put(docs, gone=gone)
    if len(docs) >= _LARGE:
        for part in view.pieces.parts:
            for rule in ITEM_RULES.values():
                part.segment.column(rule)
    return view


if TYPE_CHECKING:
    from memagent.events import visibility
    from memagent.search import cuts
else:
    cuts = Later("memagent.search.cuts")
    visibility = Later("memagent.events.visibility")

TIME_WEIGHT = 1.0
"""Added to a weight of 1 for an item at the time asked about."""
_LEXICAL = (("lexical", OWN), ("lexical_context", CONTEXT))
# Near duplicates are looked for among the best 4 k hits.
_COLLAPSED_FROM = 4
# Questions whose times are remembered while they are answered.
_QUESTIONS = 64

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
    times = asked_times(query.text, moment) if recipe.time != "off" else ()
    span = times[0].span if times else None
    words = query_terms(query.text) if "lexical" in query.arms else []
    scoring = Scoring(context.view, vector=vector, words=words)
    most = {
        name: scoring.lexical_most(field=part) for name, part in _LEXICAL if name in recipe.arms
    }
    size = max(recipe.pool, 2 * k)
    rankings = await _rankings(query, recipe, scoring, span=span, count=size, context=context)
    pool = Pool(rankings, most=most, size=size, pieces=context.view.pieces)
    if recipe.sessions or recipe.graph or recipe.neighbours:
        _expand(pool, query, recipe, scoring, k=k, context=context)
    scores = pool.weigh(_factors(pool, query, recipe, span, moment, context))
    # None: the recipe's end looks at all of them
    needed = max(_COLLAPSED_FROM * k, 1) if recipe.collapse else k
    cut = recipe.rerank or recipe.time == "hard" or recipe.per_session or recipe.max_tokens
    rows = pool.best(scores, None if cut else needed)
    if recipe.time == "hard" and span is not None:
        near = nearness(span)
        rows = [row for row in rows if near(pool.items[row]) >= 1.0]
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
    scorings = Scoring.of_many(view, vectors, [query_terms(text) for text in texts])
    pieces, size = view.pieces, 2 * k
    found: list[list[Candidate]] = []
    for scoring in scorings:
        rankings = {"dense": scoring.cosines(k=size), "lexical": scoring.words(k=size)}
        most = {"lexical": scoring.lexical_most()}
        pool = Pool(rankings, most=most, size=size, pieces=pieces)
        hits = pool.candidates(pool.best(pool.scores, k), pool.scores)
        pool.explain(hits)
        found.append(hits)
    return found


@lru_cache(maxsize=_QUESTIONS)
def asked_times(text: str, asked_at: datetime | None) -> tuple[TimeMention, ...]:
    """Return the times that a question names, in reading order.

    Relative phrases are read from the moment the question is asked. The parts that find
    and judge its hits ask one after the other; its words are read once.
    """
    return tuple(find_times(text[:MAX_RULED_CHARS], anchor=asked_at, most=MAX_ASKED_TIMES))


# -- arms ------------------------------------------------------------------------------


async def _rankings(
    query: Query,
    recipe: Recipe,
    scoring: Scoring,
    *,
    span: TimeSpan | None,
    count: int,
    context: SearchContext,
) -> dict[str, Ranking]:
    """Return the best of every arm; with a time asked about, its best of that time too."""
    narrowed = narrowed_to(span, query.where) if span is not None else []
    filters: list[Filter | None] = [*narrowed]
    if not narrowed or recipe.time == "soft":
        filters = [None if query.where.empty else query.where, *narrowed]
    arms, propose = recipe.arms, context.propose
    rankings: dict[str, Ranking] = {}
    for where in filters:
        best: dict[str, Ranking] = {}
        if scoring.vector is not None and "dense" in arms:
            near = where if propose is None else await propose(scoring.vector, count, where)
            best["dense"] = scoring.cosines(k=count, where=near)
        if scoring.vector is not None and "dense_context" in arms:
            best["dense_context"] = scoring.cosines(k=count, field=CONTEXT, where=where)
        for name, part in _LEXICAL:
            if name in arms:
                best[name] = scoring.words(k=count, field=part, where=where)
        for name, more in best.items():
            rankings[name] = rankings[name].extended(more) if name in rankings else more
    if recipe.time == "hard" and narrowed:
        pieces = context.view.pieces
        return {name: ranking.best(count, pieces) for name, ranking in rankings.items()}
    return rankings


def narrowed_to(span: TimeSpan, where: Filter) -> list[Filter]:
    """Return the filter narrowed to a time, on each axis that it leaves open."""
    axes = [axis for axis in ("valid", "said") if getattr(where, axis) is None]
    return [where.model_copy(update={axis: span}) for axis in axes]


def _expand(
    pool: Pool, query: Query, recipe: Recipe, scoring: Scoring, *, k: int, context: SearchContext
) -> None:
    """Add what the best hits lead to: of their sessions, in the graph, and beside them."""
    state, where = context.state, query.where
    if recipe.sessions or recipe.graph:
        rows = pool.best(pool.scores)
        if recipe.sessions:
            cuts.add_sessions(pool, rows, scoring, sessions=recipe.sessions, where=where)
        if recipe.graph:
            hidden = visibility.OutOfSight(state, where, context.expired)
            cuts.add_graph(pool, rows, most=recipe.graph, hidden=hidden, state=state)
    if recipe.neighbours:
        cuts.add_neighbours(
            pool,
            pool.best(pool.scores, k),
            distance=recipe.neighbours,
            where=where,
            state=state,
            view=context.view,
        )


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
    days, stats = recipe.half_life_days, context.state.stats
    parts = context.view.pieces.parts if recipe.names else ()
    forms = [_calls(part.segment.names) for part in parts if part.segment.names]
    names = named_in(query.text, *forms) if forms else frozenset[str]()
    factors: dict[str, Iterable[float] | Floats] = {}
    if span is not None:
        near = nearness(span)
        factors["time"] = (1.0 + TIME_WEIGHT * near(item) for item in pool.items)
    if days is not None:
        factors["recency"] = (
            recency(item.said_at, now=moment, half_life_days=days) for item in pool.items
        )
    if recipe.importance:
        factors["importance"] = (
            1.0 + recipe.importance * importance(item, stats.get(item.id)) for item in pool.items
        )
    if recipe.utility:
        factors["utility"] = (
            1.0 + recipe.utility * utility(stats.get(item.id)) for item in pool.items
        )
    return factors | pool.columns(ITEM_RULES, names=names, named=1.0 + recipe.names)


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
        # its logistic, without an overflow
        share = exp(-abs(candidate.rerank))
        candidate.score = ceiling + (1.0 if candidate.rerank >= 0 else share) / (1.0 + share)
    first.sort(key=lambda candidate: (-round(candidate.rerank or 0.0, 6), candidate.id))
    return [*first, *rest]


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
    products: np.typing.NDArray[np.float32] = np.vecdot(vectors[:, None], vectors[None])
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
