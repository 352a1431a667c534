"""The memory bank: one scope's memory, a log and the search view that follows it.

The log writes through a journal, and the view follows before the next search. A fork
shares everything and writes to a log of its own, so a thousand rollouts may start from
one bank.

`text_vectors` keeps vectors of event texts in the arena that a bank shares with its forks.
A text is embedded once. When the embedder fails nothing is made up: texts that were
never embedded are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar, cast

import numpy as np
from rpds import HashTrieSet

from memagent.core.answers import Hit, Query
from memagent.core.errors import EmbeddingError, MemoryNotFound, boundary, check_id
from memagent.core.long_work import LARGE
from memagent.core.ops import OpBatch
from memagent.core.records import (
    ItemStats,
    MemoryItem,
    Scope,
    Session,
    SourceRef,
    Turn,
    system_clock,
)
from memagent.core.snapshot import (
    Commit,
    Entry,
    GraphDelta,
    JournalRow,
    MemorySnapshot,
    StatsDelta,
)
from memagent.memory.incoming import session_entry
from memagent.memory.log import Log, Sources, View, ViewContent
from memagent.protocols import Clock, Embedder, Journal, Matrix, Reranker, Vector
from memagent.search.fusion import Candidate, hits_of
from memagent.search.index import IndexView
from memagent.search.pipeline import NetworkedIndex, Projection, Projector, SavedProjections
from memagent.search.segments import NO_ROW
from memagent.state.effects import plan_commit
from memagent.state.fold import BankState
from memagent.state.versions import ExpiredIds, rebuilt, snapshot_of

E = TypeVar("E", bound=Entry | None)


class MemoryBank:
    """One scope's memory; make one with `Store.bank`, `fork` or `restore`."""

    __slots__ = ("__weakref__", "log", "view")

    def __init__(  # noqa: PLR0913 (the collaborators of a memory)
        self,
        *,
        embedder: Embedder,
        scope: Scope | None = None,
        journal: Journal | None = None,
        index: NetworkedIndex | None = None,
        reranker: Reranker | None = None,
        clock: Clock = system_clock,
        read_only: bool = False,
        checkpoints: SavedProjections | None = None,
    ) -> None:
        """Make a bank over a journal, or a private one in memory without one.

        A journal is replayed at first use, from the memory's checkpoint on where
        `checkpoints` has one. `index` is a networked vector index that proposes
        candidates for the head of the journal; while it is away the bank searches by
        itself. Forks and read-only banks never touch it. `reranker` has the last word in
        searches whose recipe asks for one, those of forks too.
        """
        networked = None if read_only else index
        sources = Sources(networked=networked, reranker=reranker, saved=checkpoints)
        self.view = View(Projector(embedder), sources)
        self.log = Log(scope or Scope(), journal, self.view, clock=clock, read_only=read_only)
        if checkpoints is not None:
            checkpoints.watch(self)

    # -- reading -----------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """The owner of the memory."""
        return self.log.scope

    @property
    def state(self) -> BankState:
        """The state as last read or written; `await sync()` first for others' writes."""
        return self.log.state

    @property
    def embedder(self) -> Embedder:
        """The embedder of this bank and its forks."""
        return self.view.projector.embedder

    @property
    def degraded(self) -> str | None:
        """The reason for searching by keyword only at present, or None."""
        failure = self.view.projector.failure
        return str(failure) if failure else None

    @property
    def expired(self) -> ExpiredIds:
        """Ids of expired items, which are in the state but neither found nor shown."""
        return ExpiredIds(self.log.state, self.log.clock())

    def now(self) -> datetime:
        """Return the present moment; in a view of the past, that moment."""
        return self.log.clock()

    async def sync(self) -> BankState:
        """Replay the entries appended since. Raises `WrongLoop` from a foreign event loop."""
        return await self.log.sync()

    async def get(self, item_id: str) -> MemoryItem:
        """Return an item, neither deleted nor expired. Raises `MemoryNotFound`, `InputError`."""
        check_id("memory", item_id)
        item = (await self.log.sync()).items.get(item_id)
        if item is None or not item.active or item.expired(self.now()):
            raise MemoryNotFound(f"no memory {item_id!r} for user {self.scope.user_id!r}")
        return item

    def turn_with_session(self, turn_id: str) -> tuple[Turn, Session] | None:
        """Return a stored turn with its session, or None."""
        state = self.log.state
        turn = state.turn(turn_id)
        return None if turn is None else (turn, state.sessions[state.turns[turn_id][0]])

    def rows(self, *, after: int = 0) -> AsyncIterator[JournalRow]:
        """Return the journal rows after a sequence, oldest first.

        A fork has the rows written since it began.
        """
        return self.log.rows(after=after)

    # -- writing -----------------------------------------------------------------------

    async def append(
        self, make: Callable[[BankState], Entry | None], *, large: bool = False
    ) -> JournalRow | None:
        """Append the entry that `make` gives for the present state; see `Log.append`."""
        return await self.log.append(make, large=large)

    async def record(self, make: Callable[[BankState], E], *, large: bool = False) -> E:
        """Append the entry that `make` gives for the present state, and return it."""
        row = await self.log.append(make, large=large)
        return cast("E", row.entry if row is not None else None)

    async def store_session(self, session: Session) -> bool:
        """Journal a session's raw turns; False when the same session is stored already.

        Of a stored session that begins with the same turns, only the further ones are
        journalled. Raises `InputError` on a clash of ids.
        """
        return await self.log.append(partial(session_entry, session=session)) is not None

    async def commit(self, batch: OpBatch, *, source: SourceRef) -> Commit:
        """Carry out a batch in one journal append; `rejected` has the ops that no longer fit."""
        make = partial(plan_commit, batch=batch, source=source)
        return await self.record(make, large=len(batch.accepted) >= LARGE)

    async def index(self, delta: GraphDelta) -> GraphDelta:
        """Journal a design's additions to the event graph.

        Edges that break a rule are left out, with the reason in `rejected`.
        """
        return await self.record(partial(_checked, delta)) or GraphDelta()

    async def learn(self, updates: Sequence[tuple[str, ItemStats]]) -> None:
        """Journal item statistics; the only way they change."""
        known = tuple((item_id, stats) for item_id, stats in updates if item_id in self.state.items)
        if known:
            await self.log.append(lambda _: StatsDelta(updates=known))

    # -- searching ---------------------------------------------------------------------

    async def refresh(self) -> None:
        """Bring the search view up to date (embeds what is new)."""
        await self.log.sync()
        await self.follow(self.log.clock())

    async def follow(self, now: datetime) -> None:
        """Bring the search view level, at a moment, with the state as last read or written."""
        state = self.log.state
        await self.view.follow(now, self.log.head)
        saved = self.view.sources.saved
        if saved is not None:
            saved.grown(self, seq=state.seq, items=len(state.items))

    async def settle(self) -> None:
        """Bring the networked index, if there is one, level with this memory.

        Raises `StoreUnavailable` when it is away.
        """
        await self.refresh()
        networked = self.view.sources.networked
        if networked is not None:
            await networked.catch_up(lambda: self.view.level(self.log.head), insist=True)

    async def search(self, query: Query, *, k: int) -> list[Hit]:
        """Return at most k hits by the query's recipe, best first, ties by id."""
        return hits_of((await self.candidates([query], k=k))[0])

    async def search_many(
        self, queries: Sequence[Query], *, k: int, explain: bool = True
    ) -> list[list[Hit]]:
        """Search for several queries with one embedding batch.

        Without `explain` the hits and scores are the same, but `why` is empty, which
        takes less time. To search the past, use a bank from `timetravel.as_of`.
        """
        found = await self.candidates(queries, k=k, explain=explain)
        return [hits_of(candidates, explain=explain) for candidates in found]

    async def candidates(
        self, queries: Sequence[Query], *, k: int, explain: bool = True
    ) -> list[list[Candidate]]:
        """Return the items that `search_many` makes hits of."""
        await self.log.sync()
        now = self.log.clock()
        await self.follow(now)
        return await self.view.search(queries, k=k, now=now, explain=explain)

    async def most_similar(self, texts: Sequence[str], *, k: int) -> list[list[Candidate]]:
        """Return the k items most like each text by cosine and keyword, best first, ties by id."""
        await self.refresh()
        return await self.view.most_similar(texts, k=k)

    # -- values ------------------------------------------------------------------------

    def projection(self) -> Projection:
        """Return state and index, and the items that the index lags behind with."""
        return self.view.projection

    def snapshot(self) -> MemorySnapshot:
        """Return the memory, as last read or written, as an immutable value; O(1)."""
        return snapshot_of(self.state, self.view.content)

    def fork(self) -> MemoryBank:
        """Return a private copy in memory; O(1), and its writes never reach this bank."""
        return self._beginning(self.view.content)

    def at(self, snapshot: MemorySnapshot) -> MemoryBank:
        """Return a private bank in memory that starts from a snapshot.

        O(1) for a snapshot of this process with the same embedder.
        """
        start = snapshot.live
        if not isinstance(start, ViewContent):
            state, projector = rebuilt(snapshot), self.view.projector
            pending = HashTrieSet(state.items)
            start = ViewContent(state, IndexView(projector.arena), pending, projector)
        return self._beginning(start)

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
        projector, index = self.view.projector, self.view.index
        pending = state.items if differing is None else {*self.view.lagging, *differing}
        if differing is None:
            index = IndexView(projector.arena)
        start = ViewContent(state, index, HashTrieSet(pending), projector)
        clock = self.log.clock if at is None else lambda: at
        return self._beginning(start, clock=clock, read_only=True)

    @classmethod
    def restore(cls, snapshot: MemorySnapshot, *, embedder: Embedder) -> MemoryBank:
        """Make a bank in memory from a snapshot. Raises `SnapshotMismatch` for an altered one."""
        return cls(embedder=embedder).at(snapshot)

    def _beginning(
        self, start: ViewContent, *, clock: Clock | None = None, read_only: bool = False
    ) -> MemoryBank:
        """Return a private bank that goes on from what a view has seen."""
        bank = MemoryBank.__new__(MemoryBank)
        bank.view = View(self.view.projector, self.view.sources.private, start)
        bank.log = Log(
            self.scope,
            None,
            bank.view,
            clock=clock or self.log.clock,
            read_only=read_only,
            base=start.state,
        )
        return bank


def _checked(delta: GraphDelta, state: BankState) -> GraphDelta | None:
    from memagent.events.merge import checked_delta

    checked = checked_delta(state.graph, delta)
    return None if checked.empty and not checked.rejected else checked


async def text_vectors(bank: MemoryBank, texts: Iterable[str]) -> dict[str, Vector]:
    """Return unit vectors (D,) by text, without blank texts.

    New texts are missing too while the embedder fails.
    """
    texts, arena = _distinct(texts), bank.view.index.arena
    missing = [text for text in texts if arena.row(text) == NO_ROW]
    vectors = await _embedded(bank, missing) if missing else None
    if (
        vectors is not None
        and vectors.shape == (len(missing), arena.dim)
        and np.isfinite(vectors).all()
    ):
        arena.put(missing, vectors)
    rows = ((text, arena.row(text)) for text in texts)
    return {text: arena.matrix[row] for text, row in rows if row != NO_ROW}


async def query_vectors(bank: MemoryBank, texts: Iterable[str]) -> dict[str, Vector]:
    """Return unit vectors (D,) of texts that the arena does not keep.

    {} while the embedder fails.
    """
    texts = _distinct(texts)
    vectors = await _embedded(bank, texts) if texts else None
    return {} if vectors is None else dict(zip(texts, vectors, strict=True))


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text.strip()))


async def _embedded(bank: MemoryBank, texts: Sequence[str]) -> Matrix | None:
    try:
        with boundary(EmbeddingError, f"embedder {bank.embedder.id!r}"):
            return await bank.embedder.embed(texts)
    except EmbeddingError:
        return None
