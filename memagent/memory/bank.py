"""The memory bank: one scope's memory, written through a journal and searchable.

A bank adds to its log a search view (a value) and the items that the view has yet to
catch up with; the view follows before the next search. A fork shares everything and
writes to a log of its own, so a thousand rollouts may start from one bank.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from rpds import HashTrieSet

from memagent.checkpoints.checkpoint import Projection
from memagent.checkpoints.store import Checkpoints
from memagent.core.answers import AsOf, Filter, Hit, Query
from memagent.core.crash_points import reach
from memagent.core.long_work import LARGE, Slices, let_go
from memagent.core.records import Scope
from memagent.core.snapshot import MemorySnapshot
from memagent.memory.log import MemoryLog
from memagent.memory.log_reader import NOTHING, system_clock
from memagent.protocols import Clock, Embedder, IndexRow, Journal, Reranker, Vector, VectorIndex
from memagent.search.arena import NO_ROW
from memagent.search.fusion import Candidate
from memagent.search.index import IndexView
from memagent.search.pipeline import SearchContext, most_similar, recall
from memagent.search.projection import Projector
from memagent.search.scoring import Scored, Scoring
from memagent.state.expiry import NEVER_LOOKED, ExpiredIds, Expiry
from memagent.state.fold import BankState, rebuilt, snapshot_of
from memagent.vectors.projection import IndexProjection, Level

_Name = tuple[int, AsOf]
"""A view of the past: the last sequence that it shows, and what was asked for."""
MOST_PAST: Final = 2
_LARGE_PAST: Final = 256
"""Items from which on a view of the past is kept: to make it takes longer than a search."""
_TEXTS_AT_ONCE: Final = 16
"""Texts that are compared in one pass over the view; a long session has hundreds."""
_NO_ID = frozenset({""})
"""A filter on ids that no item passes."""


class PastViews:
    """The last views of the past of a large memory; kept until words are erased."""

    __slots__ = ("_views",)

    def __init__(self) -> None:
        self._views: tuple[tuple[_Name, MemoryBank], ...] = ()

    def __len__(self) -> int:
        return len(self._views)

    def get(self, name: _Name) -> MemoryBank | None:
        """Return the view that was kept under a name, None where none was."""
        return next((view for known, view in self._views if known == name), None)

    def keep(self, name: _Name, view: MemoryBank) -> None:
        """Keep a view, if it takes long to make."""
        if len(view.state.items) >= _LARGE_PAST:
            self._views = (*self._views[1 - MOST_PAST :], (name, view))

    def clear(self) -> None:
        """Let all views go."""
        for _, view in self._views:
            let_go(view.state, view.view)
        self._views = ()


class _Live(NamedTuple):
    """The part of a bank that lets another continue from a snapshot at once."""

    state: BankState
    view: IndexView
    pending: HashTrieSet[str]
    projector: Projector
    expiry: Expiry


def _index_row(
    state: BankState, projector: Projector, expired: Container[str], item_id: str
) -> IndexRow | None:
    item = state.items.get(item_id)
    if item is None or not item.active or item_id in expired:
        return None
    at = projector.row_of(state, item)
    return IndexRow(item, projector.arena.matrix[at]) if at != NO_ROW else None


class IndexedLog(MemoryLog):
    """A log with a search view that follows it."""

    __slots__ = (
        "__weakref__",
        "_checkpoints",
        "_expiry",
        "_indexing",
        "_projector",
        "_remote",
        "_reranker",
        "_unembedded",
        "_view",
        "past",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 (the collaborators of a memory)
        self,
        *,
        embedder: Embedder | Projector,
        scope: Scope | None = None,
        journal: Journal | None = None,
        index: VectorIndex | None = None,
        reranker: Reranker | None = None,
        clock: Clock = system_clock,
        read_only: bool = False,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """Make a bank over a journal, or a private one in memory without one.

        A journal is replayed at first use, from the memory's checkpoint on where
        `checkpoints` has one. `index` is a networked vector index that proposes
        candidates for the head of the journal; while it is away the bank searches by
        itself. Forks and read-only banks never touch it. `reranker` has the
        last word in searches whose recipe asks for one, those of forks too.
        """
        super().__init__(scope or Scope(), journal, clock=clock, read_only=read_only)
        self._projector = embedder if isinstance(embedder, Projector) else Projector(embedder)
        self._remote = IndexProjection(index) if index is not None and not read_only else None
        self._reranker = reranker
        self._view = IndexView(self._projector.arena)
        self._expiry = NEVER_LOOKED
        self.past = PastViews()
        self._unembedded: frozenset[str] = frozenset()
        """Items that the embedder failed on; they are tried again when it works again."""
        self._indexing: asyncio.Lock | None = None
        """Held by the one task that indexes many items."""
        self._checkpoints = checkpoints
        if checkpoints is not None:
            checkpoints.watch(self)

    @property
    def view(self) -> IndexView:
        """The search view as last refreshed."""
        return self._view

    @property
    def embedder(self) -> Embedder:
        """The embedder of this bank and its forks."""
        return self._projector.embedder

    @property
    def degraded(self) -> str | None:
        """The reason for searching by keyword only at present, or None."""
        return str(self._projector.failure) if self._projector.failure else None

    @property
    def expired(self) -> ExpiredIds:
        """Ids of expired items, which are in the state but neither found nor shown."""
        return ExpiredIds(self._state, self._clock())

    async def refresh(self) -> None:
        """Bring the search view up to date (embeds what is new)."""
        await self.sync()
        before, self._expiry = self._expiry, self._expiry.at(self._state, self._clock())
        for item_id in self._expiry.since(before):
            self._pending = self._pending.insert(item_id)
        if self._unembedded and self._projector.failure is None:
            for item_id in self._unembedded:
                self._pending = self._pending.insert(item_id)
            self._unembedded = frozenset()
        if len(self._pending) < LARGE:
            await self._index()
        else:
            if self._indexing is None:
                self._indexing = asyncio.Lock()
            async with self._indexing:
                await self._index()
        if self._remote is not None:
            await self._remote.catch_up(self._present)
        if self._checkpoints is not None:
            self._checkpoints.grown(self, seq=self._state.seq, items=len(self._state.items))

    async def _index(self) -> None:
        """Let the search view follow the items that changed."""
        while len(self._pending):
            state, pending = self._state, self._pending
            if self._remote is not None:
                self._remote.changed(pending)
            reach("refresh.begun")
            view = await self._projector.catch_up(
                self._view, state, pending, expired=self._expiry.ids
            )
            reach("refresh.caught_up")
            if self._projector.failure is not None:
                lacking = (at for at in pending if self._lacks_vector(state, at))
                self._unembedded = self._unembedded.union(lacking)
            if self._pending is pending:
                self._view, self._pending = view, NOTHING

    def _lacks_vector(self, state: BankState, item_id: str) -> bool:
        item = state.items.get(item_id)
        return item is not None and self._projector.row_of(state, item) == NO_ROW

    async def settle(self) -> None:
        """Bring the networked index, if there is one, level with this memory.

        Raises `StoreUnavailable` when it is away.
        """
        await self.refresh()
        if self._remote is not None:
            await self._remote.catch_up(self._present, insist=True)

    def _present(self) -> Level:
        """Return the content that a networked index should have."""
        state = self._state
        row = partial(_index_row, state, self._projector, self._expiry.ids)

        async def head() -> int:
            return state.seq if self._journal is None else await self._journal.head(self.scope)

        return Level(state.seq, state.items, row, head)

    def projection(self) -> Projection:
        """Return state and search view, and the items that the view lags behind with."""
        return Projection(self._state, self._view, frozenset(self._pending) | self._expiry.ids)

    async def _begin(self) -> None:
        load = None if self._checkpoints is None else self._checkpoints.load
        content = await asyncio.to_thread(load, self.scope, self.embedder) if load else None
        if content is not None and not self._state.seq:
            self._state, self._view, self._pending = *content[:2], HashTrieSet(content.pending)
            self._origin = self._state
            # Forks made before keep the old one, whose arena their views go by.
            self._projector = Projector(self.embedder, self._view.arena)
            if self._remote is not None:
                self._remote.changed(self._state.items)

    def _forget(self) -> None:
        if len(self._view) >= _LARGE_PAST:
            let_go(self._view)
        self._projector = Projector(self.embedder)  # the old one may hold a deleted checkpoint
        self._view, self._pending = IndexView(self._projector.arena), NOTHING
        self.past.clear()
        if self._remote is not None:
            self._remote.erased()


class MemoryBank(IndexedLog):
    """One scope's memory; make one with `Store.bank`, `fork` or `restore`."""

    __slots__ = ()

    # -- searching ---------------------------------------------------------------------

    async def search(self, query: Query, *, k: int) -> list[Hit]:
        """Return at most k hits by the query's recipe, best first, ties by id."""
        return (await self.search_many([query], k=k))[0]

    async def search_many(self, queries: Sequence[Query], *, k: int) -> list[list[Hit]]:
        """Search for several queries with one embedding batch.

        To search the past, use a bank from `timetravel.as_of`.
        """
        rankings = await self._recalled(queries, k=k, explain=True)
        return [[candidate.hit() for candidate in candidates] for candidates in rankings]

    async def ranked(self, query: Query, *, k: int) -> list[Scored]:
        """Return the items and scores of `search` without the reasons, in less time."""
        (candidates,) = await self._recalled([query], k=k, explain=False)
        return [(candidate.item, candidate.score) for candidate in candidates]

    async def _recalled(
        self, queries: Sequence[Query], *, k: int, explain: bool
    ) -> list[list[Candidate]]:
        await self.refresh()
        if not queries or not len(self._view):
            return [[] for _ in queries]
        texts = [query.text or " " for query in queries if "dense" in query.arms]
        vectors = iter(await self._projector.query_vectors(texts) if texts else ())
        context = SearchContext(
            state=self._state,
            view=self._view,
            expired=self._expiry.ids,
            propose=self._proposed,
            reranker=self._reranker,
        )
        return [
            await recall(
                query,
                next(vectors) if "dense" in query.arms else None,
                k=k,
                now=self._clock(),
                context=context,
                explain=explain,
            )
            for query in queries
        ]

    async def most_similar(self, texts: Sequence[str], *, k: int) -> list[list[Candidate]]:
        """Return the k items most like each text by cosine and keyword, best first, ties by id."""
        await self.refresh()
        if not texts or not len(self._view):
            return [[] for _ in texts]
        view, slices = self._view, Slices()
        vectors = await self._projector.query_vectors([text or " " for text in texts])
        found: list[list[Candidate]] = []
        for at in range(0, len(texts), _TEXTS_AT_ONCE):
            part = slice(at, at + _TEXTS_AT_ONCE)
            found += most_similar(texts[part], vectors[part], k=k, view=view)
            await slices.rest()
        return found

    alike = most_similar

    async def _proposed(self, vector: Vector, k: int, where: Filter) -> Filter:
        """Narrow the filter to the candidates of the networked index, if there is one."""
        if self._remote is None:
            return where
        only = None if where.empty else where
        ids = await self._remote.propose(vector, k=k, where=only, seq=self._state.seq)
        return where if ids is None else where.model_copy(update={"ids": ids or _NO_ID})

    async def nearest(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Scored]:
        """Return the k items of highest cosine with a unit vector (D,), ties by id."""
        await self.refresh()
        return Scoring(self._view, vector=vector).nearest(k=k, where=where)

    # -- values ------------------------------------------------------------------------

    def snapshot(self) -> MemorySnapshot:
        """Return the memory, as last read or written, as an immutable value; O(1)."""
        return snapshot_of(self._state, self._live())

    def fork(self) -> MemoryBank:
        """Return a private copy in memory; O(1), and its writes never reach this bank."""
        return self._continued(self._live())

    def at(self, snapshot: MemorySnapshot) -> MemoryBank:
        """Return a private bank in memory that starts from a snapshot.

        O(1) for a snapshot of this process with the same embedder.
        """
        live = snapshot.live
        if not isinstance(live, _Live):
            state, view = rebuilt(snapshot), IndexView(self._projector.arena)
            live = _Live(state, view, HashTrieSet(state.items), self._projector, NEVER_LOOKED)
        return self._continued(live)

    def _live(self) -> _Live:
        return _Live(self._state, self._view, self._pending, self._projector, self._expiry)

    def _continued(self, live: _Live) -> MemoryBank:
        bank = MemoryBank(
            embedder=self._projector, scope=self.scope, reranker=self._reranker, clock=self._clock
        )
        bank._state = bank._base = live.state
        if live.projector is self._projector:
            bank._view, bank._pending, bank._expiry = live.view, live.pending, live.expiry
        else:
            bank._pending = HashTrieSet(live.state.items)
        return bank

    @classmethod
    def restore(cls, snapshot: MemorySnapshot, *, embedder: Embedder) -> MemoryBank:
        """Make a bank in memory from a snapshot. Raises `SnapshotMismatch` for an altered one."""
        return cls(embedder=embedder).at(snapshot)

    def showing(
        self,
        state: BankState,
        *,
        at: datetime | None = None,
        differing: Iterable[str] | None = None,
    ) -> MemoryBank:
        """Return a read-only bank over a past or filtered state, searchable on its own.

        Its clock stands still at the moment `at`, if one is given. Where only the items
        `differing` are other than in this bank, it takes over the index of the others.
        """
        clock = self._clock if at is None else lambda: at
        bank = MemoryBank(
            embedder=self._projector,
            scope=self.scope,
            reranker=self._reranker,
            clock=clock,
            read_only=True,
        )
        bank._state = bank._base = state
        if differing is None:
            bank._pending = HashTrieSet(state.items)
        else:
            bank._view = self._view
            bank._pending = HashTrieSet({*self._pending, *self._expiry.ids, *differing})
        return bank
