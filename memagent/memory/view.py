"""The search view of a memory: the index of its state, which follows before the next search.

A `View` holds a state, an index of it (a value), and the items that the index has yet to
catch up with. It follows a `Log` and never writes. Forks share the projector, whose
vectors and vocabulary only grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, Protocol

from rpds import HashTrieSet

from memagent.core.answers import AsOf, Filter, Query
from memagent.core.crash_points import reach
from memagent.core.long_work import LARGE, Slices, let_go
from memagent.core.records import Scope
from memagent.protocols import Embedder, IndexRow, Reranker, Vector
from memagent.search.fusion import Candidate
from memagent.search.index import IndexView
from memagent.search.pipeline import (
    Level,
    NetworkedIndex,
    Projected,
    Projection,
    Projector,
    SearchContext,
    most_similar,
    recall,
)
from memagent.search.segments import NO_ROW
from memagent.state.fold import EMPTY_STATE, BankState
from memagent.state.versions import ExpiredIds

MOST_PAST: Final = 2
LARGE_PAST: Final = 256
"""Items from which on a view of the past is kept: to make it takes longer than a search."""
# Texts that are compared in one pass over the index; a long session has hundreds.
_TEXTS_AT_ONCE: Final = 8
# A filter on ids that no item passes.
_NO_ID: Final = frozenset({""})
_NOTHING: Final[HashTrieSet[str]] = HashTrieSet()
NEVER_LOOKED: Final = ExpiredIds(EMPTY_STATE, None)


class SavedProjections(Protocol):
    """The place of projections between two openings of a memory, such as `Checkpoints`."""

    def load(self, scope: Scope, embedder: Embedder) -> Projection | None:
        """Return a memory's last projection, checked; None without one. Blocks."""

    def watch(self, memory: Projected) -> None:
        """Save a memory's projection when the store closes."""

    def grown(self, memory: Projected, *, seq: int, items: int) -> None:
        """Save a memory's projection in the background if it grew enough."""


class ViewContent(NamedTuple):
    """The content of a view, which lets another go on from it at once."""

    state: BankState
    indexed: IndexView
    pending: HashTrieSet[str]
    projector: Projector
    expired: ExpiredIds = NEVER_LOOKED


@dataclass(slots=True, kw_only=True)
class Sources:
    """The parts that a view may use beside its projector."""

    networked: NetworkedIndex | None = None
    """Proposes candidates for the head of the journal; without it the view searches alone."""
    reranker: Reranker | None = None
    """Has the last word in searches whose recipe asks for one."""
    saved: SavedProjections | None = None

    @property
    def private(self) -> Sources:
        """The parts that a fork may use too."""
        alone = self.networked is None and self.saved is None
        return self if alone else Sources(reranker=self.reranker)


class View:
    """The index of a state, and the searches in it."""

    __slots__ = (
        "_indexing", "_pending", "_unembedded", "expired", "index", "past", "projector", "sources",
        "state",
    )  # fmt: skip

    def __init__(
        self, projector: Projector, sources: Sources, start: ViewContent | None = None
    ) -> None:
        """Make an empty view, or one that goes on from what another has seen."""
        self.projector, self.sources = projector, sources
        self.state, self.expired = EMPTY_STATE if start is None else start.state, NEVER_LOOKED
        if start is not None and start.projector is projector:
            self.index, self._pending, self.expired = start.indexed, start.pending, start.expired
        else:
            self.index, self._pending = IndexView(projector.arena), HashTrieSet(self.state.items)
        self.past: dict[tuple[int, AsOf], Projected] = {}
        """The last views of the past of a large memory; kept until words are erased."""
        self._unembedded: frozenset[str] = frozenset()
        """Items that the embedder failed on; they are tried again when it works again."""
        self._indexing: asyncio.Lock | None = None
        """Held by the one task that indexes many items."""

    @property
    def content(self) -> ViewContent:
        """State and index as they are, for another view to go on from."""
        return ViewContent(self.state, self.index, self._pending, self.projector, self.expired)

    @property
    def projection(self) -> Projection:
        """State and index, and the items that the index lags behind with."""
        return Projection(self.state, self.index, self.lagging)

    @property
    def lagging(self) -> frozenset[str]:
        """Items that the index shows otherwise than the state."""
        return frozenset(self._pending) | self.expired

    # -- following a log ---------------------------------------------------------------

    async def load(self, scope: Scope) -> Projection | None:
        """Return the saved projection of a memory, if there is one."""
        saved = self.sources.saved
        return (
            await asyncio.to_thread(saved.load, scope, self.projector.embedder) if saved else None
        )

    def start(self, content: Projection) -> None:
        """Go on from a saved projection."""
        self.state, self.index, pending = content
        self._pending = HashTrieSet(pending)
        # Forks made before keep the old one, whose arena their views go by.
        self.projector = Projector(self.projector.embedder, self.index.arena)
        if self.sources.networked is not None:
            self.sources.networked.changed(self.state.items)

    def changed(self, state: BankState, item_ids: Iterable[str]) -> None:
        """Note a state, and the items that differ from the one before."""
        self.state = state
        for item_id in item_ids:
            self._pending = self._pending.insert(item_id)

    def forget(self, state: BankState) -> None:
        """Drop what was derived from the entries before an erasure."""
        if len(self.index) >= LARGE_PAST:
            let_go(self.index)
        # The old projector may hold a deleted checkpoint. Where the journal is read anew,
        # most texts come again: their vectors are taken over.
        former = None if state.seq else self.projector.arena
        self.projector = Projector(self.projector.embedder, former=former)
        self.state, self.index = state, IndexView(self.projector.arena)
        # what had expired before holds the old state, which is freed in slices
        self._pending, self.expired = _NOTHING, NEVER_LOOKED
        for past in self.past.values():
            let_go(*past.projection()[:2])
        self.past.clear()
        if self.sources.networked is not None:
            self.sources.networked.erased()

    async def follow(self, now: datetime, head: Callable[[], Awaitable[int]]) -> None:
        """Bring the index level with the state at a moment (embeds what is new).

        `head` tells the end of the journal, for a networked index.
        """
        before, self.expired = self.expired, ExpiredIds(self.state, now)
        again = self._unembedded if self.projector.failure is None else ()
        ended = self.expired.since(before) if len(self.state.expiring) else ()
        for item_id in (*ended, *again):
            self._pending = self._pending.insert(item_id)
        if again:
            self._unembedded = frozenset()
        if 0 < len(self._pending) < LARGE:
            await self._catch_up()
        elif len(self._pending):
            if self._indexing is None:
                self._indexing = asyncio.Lock()
            async with self._indexing:
                await self._catch_up()
        if self.sources.networked is not None:
            await self.sources.networked.catch_up(partial(self.level, head))

    async def _catch_up(self) -> None:
        """Index the items that changed."""
        while len(self._pending):
            state, pending = self.state, self._pending
            if self.sources.networked is not None:
                self.sources.networked.changed(pending)
            reach("refresh.begun")
            index = await self.projector.catch_up(self.index, state, pending, expired=self.expired)
            reach("refresh.caught_up")
            if self.projector.failure is not None:
                items = filter(None, map(state.items.get, pending))
                row = partial(self.projector.row_of, state)
                self._unembedded |= {item.id for item in items if row(item) == NO_ROW}
            if self._pending is pending:
                self.index, self._pending = index, _NOTHING

    def level(self, head: Callable[[], Awaitable[int]]) -> Level:
        """Return the content that a networked index should have."""
        state = self.state
        row = partial(_index_row, state, self.projector, self.expired)
        return Level(state.seq, state.items, row, head)

    # -- searching ---------------------------------------------------------------------

    async def search(
        self, queries: Sequence[Query], *, k: int, now: datetime, explain: bool
    ) -> list[list[Candidate]]:
        """Return at most k candidates for each query, best first, ties by id.

        The queries are embedded in one batch. Without `explain` items and scores are the
        same, but the reasons are lacking.
        """
        if not queries or not len(self.index):
            return [[] for _ in queries]
        texts = [query.text or " " for query in queries if "dense" in query.arms]
        vectors = iter(await self.projector.query_vectors(texts) if texts else ())
        context = SearchContext(
            state=self.state,
            view=self.index,
            expired=self.expired,
            propose=None if self.sources.networked is None else self._proposed,
            reranker=self.sources.reranker,
        )
        return [
            await recall(
                query,
                next(vectors) if "dense" in query.arms else None,
                k=k,
                now=now,
                context=context,
                explain=explain,
            )
            for query in queries
        ]

    async def most_similar(self, texts: Sequence[str], *, k: int) -> list[list[Candidate]]:
        """Return the k items most like each text by cosine and keyword, best first, ties by id."""
        if not texts or not len(self.index):
            return [[] for _ in texts]
        index, slices = self.index, Slices()
        vectors = await self.projector.query_vectors([text or " " for text in texts])
        found: list[list[Candidate]] = []
        for at in range(0, len(texts), _TEXTS_AT_ONCE):
            part = slice(at, at + _TEXTS_AT_ONCE)
            found += most_similar(texts[part], vectors[part], k=k, view=index)
            await slices.rest()
        return found

    async def _proposed(self, vector: Vector, k: int, where: Filter | None) -> Filter | None:
        """Narrow the filter to the candidates of the networked index."""
        assert self.sources.networked is not None
        ids = await self.sources.networked.propose(vector, k=k, where=where, seq=self.state.seq)
        if ids is None:
            return where
        return (where or Filter()).model_copy(update={"ids": ids or _NO_ID})


def _index_row(
    state: BankState, projector: Projector, expired: ExpiredIds | Container[str], item_id: str
) -> IndexRow | None:
    item = state.items.get(item_id)
    if item is None or not item.active or item_id in expired:
        return None
    at = projector.row_of(state, item)
    return IndexRow(item, projector.arena.matrix[at]) if at != NO_ROW else None
