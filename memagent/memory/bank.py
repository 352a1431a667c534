"""The memory bank: one scope's memory, written through a journal and read through projections.

A bank keeps a `BankState` (a value), an `IndexView` (a value) and the items the view
has yet to catch up with. A write is one journal append, then the fold; the view follows
before the next search. Every read first replays what other writers appended. A fork
shares everything and journals to itself, so a thousand rollouts may start from one
bank. Rules: one bank belongs to one event loop (`WrongLoop`); writes of one bank are
serial; an optimistic sequence number guards against other writers, and ops are
re-checked against the state they are really applied to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from random import random
from typing import Self

from rpds import HashTrieSet
from rpds import List as PersistentList

from memagent.core.answers import Filter, Hit, Query
from memagent.core.crash_points import reach
from memagent.core.errors import (
    InputError,
    MemoryNotFound,
    StoreError,
    StoreReadOnly,
    VersionConflict,
    WrongLoop,
)
from memagent.core.ops import OpBatch
from memagent.core.records import ItemStats, MemoryItem, Relation, Scope, Session, SourceRef, Turn
from memagent.core.snapshot import (
    Commit,
    Entry,
    GraphDelta,
    JournalRow,
    MemorySnapshot,
    SessionStored,
    StatsDelta,
)
from memagent.events.rules import checked_delta
from memagent.protocols import Clock, Embedder, IndexRow, Journal, Reranker, Vector, VectorIndex
from memagent.search.fusion import Candidate
from memagent.search.index import IndexView, Scored
from memagent.search.pipeline import Ground, alike, recall
from memagent.search.projection import Projector
from memagent.search.segments import NO_ROW
from memagent.state.adjacency import Path
from memagent.state.effects import plan_commit
from memagent.state.fold import (
    EMPTY_STATE,
    NEVER_LOOKED,
    BankState,
    Expiry,
    apply,
    changed_items,
    rebuilt,
    snapshot_of,
)
from memagent.vectors.projection import IndexProjection, Level

_ATTEMPTS = 100
_PAUSE_S = 0.002
"""Longest first pause of a writer that came second; it doubles with each further defeat,
up to 32 times.
"""
_NOTHING: HashTrieSet[str] = HashTrieSet()
_NO_ID = frozenset({""})
"""A filter on ids that no item passes."""


def system_clock() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)


class _Live:
    """What a snapshot of this process carries so that a bank can continue from it at once."""

    __slots__ = ("expiry", "pending", "projector", "state", "view")

    def __init__(
        self,
        state: BankState,
        view: IndexView,
        pending: HashTrieSet[str],
        projector: Projector,
        expiry: Expiry,
    ) -> None:
        self.state, self.view, self.pending, self.projector, self.expiry = (
            state,
            view,
            pending,
            projector,
            expiry,
        )


class MemoryBank:
    """One scope's memory.

    Make one with `open_bank` of `memagent.build`, `fork`, or `restore`.
    """

    __slots__ = (
        "_base",
        "_clock",
        "_expiry",
        "_journal",
        "_lock",
        "_log",
        "_loop",
        "_pending",
        "_projector",
        "_remote",
        "_reranker",
        "_state",
        "_view",
        "read_only",
        "scope",
    )

    def __init__(
        self,
        *,
        embedder: Embedder | Projector,
        scope: Scope | None = None,
        journal: Journal | None = None,
        index: VectorIndex | None = None,
        reranker: Reranker | None = None,
        clock: Clock = system_clock,
        read_only: bool = False,
    ) -> None:
        """A bank over a journal (replayed at first use), or a private one in memory
        when `journal` is None.

        `index` is a networked vector index that proposes candidates for the head of the
        journal; while it is away the bank searches by itself. Forks and read-only banks
        never touch it. `reranker` has the last word in searches whose recipe asks for
        one, forks' too.
        """
        self.scope = scope or Scope()
        self.read_only = read_only
        self._projector = embedder if isinstance(embedder, Projector) else Projector(embedder)
        self._journal = journal
        self._remote = IndexProjection(index) if index is not None and not read_only else None
        self._reranker = reranker
        self._clock = clock
        self._base = EMPTY_STATE
        self._state = EMPTY_STATE
        self._view = IndexView(self._projector.arena)
        self._pending = _NOTHING
        self._expiry = NEVER_LOOKED
        self._log: PersistentList[JournalRow] = PersistentList()
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- reading -----------------------------------------------------------------------

    @property
    def state(self) -> BankState:
        """The state as last read or written; `await sync()` first to see what other
        writers appended.
        """
        return self._state

    @property
    def base(self) -> BankState:
        """The state this bank's own log begins from: empty, unless it is a fork."""
        return self._base

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
        """Why search is by keyword only at present, or None."""
        return str(self._projector.failure) if self._projector.failure else None

    def now(self) -> datetime:
        """The bank's clock; in a view of the past, that moment."""
        return self._clock()

    @property
    def expired(self) -> frozenset[str]:
        """Ids of items whose time to live is over by now; they are in the state, and
        neither found nor shown.
        """
        return self._expiry.at(self._state.expiring, self._clock()).ids

    async def sync(self) -> BankState:
        """Replay what was appended since the last look.

        Raises `WrongLoop` from a foreign event loop.
        """
        self._own_loop()
        if self._journal is not None and await self._journal.head(self.scope) > self._state.seq:
            async for row in self._journal.since(self.scope, self._state.seq):
                self._advance(row)
        return self._state

    async def get(self, item_id: str) -> MemoryItem:
        """The present version of an item.

        Raises `MemoryNotFound` for unknown, deleted and expired ones.
        """
        item = (await self.sync()).items.get(item_id)
        if item is None or not item.active or item.expired(self._clock()):
            raise MemoryNotFound(f"no memory {item_id!r} for user {self.scope.user_id!r}")
        return item

    def turn(self, turn_id: str) -> Turn | None:
        """A stored turn, or None."""
        return self._state.turn(turn_id)

    def turn_with_session(self, turn_id: str) -> tuple[Turn, Session] | None:
        """A stored turn with its session, or None."""
        place = self._state.turns.get(turn_id)
        if place is None:
            return None
        session = self._state.sessions[place[0]]
        return session.turns[place[1]], session

    def rows(self, *, after: int = 0) -> AsyncIterator[JournalRow]:
        """Journal rows after a sequence, oldest first; a fork has those written since it was made."""
        if self._journal is not None:
            return self._journal.since(self.scope, after)
        return self._own_rows(after)

    async def _own_rows(self, after: int) -> AsyncIterator[JournalRow]:
        for row in reversed(list(self._log)):
            if row.seq > after:
                yield row

    async def state_at(self, seq: int) -> BankState:
        """The state right after journal entry `seq`.

        Raises `StoreError` for a time before a fork began.
        """
        await self.sync()
        if seq < self._base.seq:
            raise StoreError(
                f"this fork began at sequence {self._base.seq}; it cannot show sequence {seq}"
            )
        if seq >= self._state.seq:
            return self._state
        state = self._base
        async for row in self.rows(after=self._base.seq):
            if row.seq > seq:
                break
            state = apply(state, row)
        return state

    # -- searching ---------------------------------------------------------------------

    async def search(self, query: Query, *, k: int) -> list[Hit]:
        """At most k items by the query's recipe, best first, ties by id; [] when nothing matches."""
        return (await self.search_many([query], k=k))[0]

    async def search_many(self, queries: Sequence[Query], *, k: int) -> list[list[Hit]]:
        """`search` for several queries with one embedding batch; for the past, search a
        bank from `timetravel.as_of`.
        """
        return [
            [one.hit() for one in found]
            for found in await self._recalled(queries, k=k, explain=True)
        ]

    async def ranked(self, query: Query, *, k: int) -> list[Scored]:
        """The items and scores of `search` without the reasons, in less time."""
        (found,) = await self._recalled([query], k=k, explain=False)
        return [(one.item, one.score) for one in found]

    async def _recalled(
        self, queries: Sequence[Query], *, k: int, explain: bool
    ) -> list[list[Candidate]]:
        await self.refresh()
        if not queries or not len(self._view):
            return [[] for _ in queries]
        texts = [query.text or " " for query in queries if "dense" in query.arms]
        vectors = iter(await self._projector.query_vectors(texts) if texts else ())
        now = self._clock()
        ground = Ground(
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
                now=now,
                ground=ground,
                explain=explain,
            )
            for query in queries
        ]

    async def alike(self, texts: Sequence[str], *, k: int) -> list[list[Candidate]]:
        """For each text the k items whose own texts are most like it, by cosine and by
        keyword, best first, ties by id.
        """
        await self.refresh()
        if not texts or not len(self._view):
            return [[] for _ in texts]
        vectors = await self._projector.query_vectors([text or " " for text in texts])
        return [
            alike(text, vector, k=k, view=self._view)
            for text, vector in zip(texts, vectors, strict=True)
        ]

    async def _proposed(self, vector: Vector, k: int, where: Filter) -> Filter:
        """The filter, narrowed to the candidates of the networked index where there is one."""
        if self._remote is None:
            return where
        only = None if where.empty else where
        ids = await self._remote.propose(vector, k=k, where=only, seq=self._state.seq)
        return where if ids is None else where.model_copy(update={"ids": ids or _NO_ID})

    async def nearest(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Scored]:
        """The k items of highest cosine with a unit vector (D,), best first, ties by id."""
        await self.refresh()
        return self._view.nearest(vector, k=k, where=where)

    def walk(
        self,
        seeds: Sequence[str],
        *,
        hops: int,
        relations: frozenset[Relation] | None = None,
        limit: int | None = None,
    ) -> list[tuple[str, Path]]:
        """Graph nodes within `hops` of the seeds, nearest first, each with the path that led to it."""
        return self._state.graph.walk(seeds, hops=hops, relations=relations, limit=limit)

    async def refresh(self) -> None:
        """Bring the search view up to date (embeds what is new)."""
        await self.sync()
        self._look_at_expiry()
        while len(self._pending):
            state, pending = self._state, self._pending
            if self._remote is not None:
                self._remote.changed(pending)
            reach("refresh.begun")
            view = await self._projector.catch_up(
                self._view, state, pending, expired=self._expiry.ids
            )
            reach("refresh.caught_up")
            if self._pending is pending:
                self._view, self._pending = view, _NOTHING
        if self._remote is not None:
            await self._remote.catch_up(self._present)

    async def settle(self) -> None:
        """Bring the networked index, where there is one, level with this memory now.

        Raises `StoreUnavailable` when it is away.
        """
        await self.refresh()
        if self._remote is not None:
            await self._remote.catch_up(self._present, insist=True)

    def _look_at_expiry(self) -> None:
        """Have the view catch up with the items that the clock has taken out, or brought back."""
        before, self._expiry = self._expiry, self._expiry.at(self._state.expiring, self._clock())
        for item_id in before.ids ^ self._expiry.ids:
            self._pending = self._pending.insert(item_id)

    def _present(self) -> Level:
        """What a networked index is to hold."""
        state, projector, expired = self._state, self._projector, self._expiry.ids

        def row(item_id: str) -> IndexRow | None:
            item = state.items.get(item_id)
            if item is None or not item.active or item_id in expired:
                return None
            at = projector.row_of(state, item)
            return IndexRow(item, projector.arena.matrix[at]) if at != NO_ROW else None

        async def head() -> int:
            return state.seq if self._journal is None else await self._journal.head(self.scope)

        return Level(state.seq, state.items, row, head)

    # -- writing -----------------------------------------------------------------------

    async def store_session(self, session: Session) -> bool:
        """Journal a session's raw turns; False when the same session is stored already.

        Raises `InputError` on a clash of ids.
        """

        def entry(state: BankState) -> Entry | None:
            known = state.sessions.get(session.id)
            if known == session:
                return None
            if known is not None:
                raise InputError(
                    f"session {session.id!r} is stored already with other content; give the new one another id "
                    f"(it has {len(session.turns)} turns, the stored one {len(known.turns)})"
                )
            for turn in session.turns:
                if turn.id in state.turns:
                    raise InputError(
                        f"turn id {turn.id!r} of session {session.id!r} is taken by session {state.turns[turn.id][0]!r}; "
                        "turn ids must be unique"
                    )
            return SessionStored(session=session)

        return await self.append(entry) is not None

    async def commit(self, batch: OpBatch, *, source: SourceRef) -> Commit:
        """Carry out a batch in one journal append; ops that no longer fit come back in `rejected`."""
        row = await self.append(
            lambda state: plan_commit(state, batch, source=source, commit_id=f"c{state.seq + 1}")
        )
        assert row is not None and isinstance(row.entry, Commit)
        return row.entry

    async def index(self, delta: GraphDelta) -> GraphDelta:
        """Journal what a design adds to the event graph; edges that break a rule are
        left out, with the reason in `rejected`.
        """
        row = await self.append(lambda state: _unless_empty(checked_delta(state.graph, delta)))
        return row.entry if row is not None and isinstance(row.entry, GraphDelta) else GraphDelta()

    async def learn(self, updates: Sequence[tuple[str, ItemStats]]) -> None:
        """Journal item statistics; the only way they change."""
        known = tuple(
            (item_id, stats) for item_id, stats in updates if item_id in self._state.items
        )
        if known:
            await self.append(lambda _: StatsDelta(updates=known))

    async def append(self, make: Callable[[BankState], Entry | None]) -> JournalRow | None:
        """Append the entry `make` gives for the present state; asked again when another writer was first.

        None writes nothing.
        """
        if self.read_only:
            raise StoreReadOnly(
                f"the memory of user {self.scope.user_id!r} is open for reading only"
            )
        self._own_loop()
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            for attempt in range(1, _ATTEMPTS + 1):
                state = await self.sync()
                entry = make(state)
                if entry is None:
                    return None
                reach("bank.planned")
                try:
                    row = await self._write(entry, state.seq)
                except VersionConflict:
                    if attempt == _ATTEMPTS:
                        raise
                    await asyncio.sleep(
                        random() * _PAUSE_S * 2 ** min(attempt - 1, 5)
                    )  # let the others through
                    continue
                reach("bank.appended")
                self._advance(row)
                return row
        return None

    async def replay(self, rows: Sequence[JournalRow]) -> None:
        """Append rows of an export with their dates, all or nothing.

        Raises `VersionConflict` when another writer was first.
        """
        if self.read_only:
            raise StoreReadOnly(
                f"the memory of user {self.scope.user_id!r} is open for reading only"
            )
        state = await self.sync()
        entries, dates = [row.entry for row in rows], [row.recorded_at for row in rows]
        if self._journal is not None:
            written = await self._journal.append_many(
                self.scope, entries, expect=state.seq, recorded_at=dates
            )
        else:
            written = [
                row.model_copy(update={"seq": state.seq + i}) for i, row in enumerate(rows, 1)
            ]
            for row in written:
                self._log = self._log.push_front(row)
        for row in written:
            self._advance(row)

    async def _write(self, entry: Entry, seq: int) -> JournalRow:
        if self._journal is not None:
            return await self._journal.append(self.scope, entry, expect=seq)
        row = JournalRow(seq=seq + 1, recorded_at=self._clock(), entry=entry)
        self._log = self._log.push_front(row)
        return row

    def _advance(self, row: JournalRow) -> None:
        if row.seq <= self._state.seq:
            return
        before = self._state
        self._state = apply(before, row)
        if row.entry.kind == "erased":
            self._view, self._pending = IndexView(self._projector.arena), _NOTHING
            if self._remote is not None:
                self._remote.erased()
        else:
            for item_id in changed_items(row.entry):
                self._pending = self._pending.insert(item_id)

    # -- values ------------------------------------------------------------------------

    def snapshot(self) -> MemorySnapshot:
        """The memory as an immutable value; O(1).

        Shows what this bank last read or wrote.
        """
        return snapshot_of(self._state, self._live())

    def fork(self) -> MemoryBank:
        """A private copy in memory that shares everything; O(1), writes never reach this bank."""
        return self._continued(self._live())

    def at(self, snapshot: MemorySnapshot) -> MemoryBank:
        """A private bank in memory that starts from a snapshot; O(1) for a snapshot of
        this process with the same embedder.
        """
        live = snapshot.live
        if isinstance(live, _Live):
            return self._continued(live)
        state = rebuilt(snapshot)
        return self._continued(
            _Live(
                state,
                IndexView(self._projector.arena),
                HashTrieSet(state.items),
                self._projector,
                NEVER_LOOKED,
            )
        )

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
    def restore(cls, snapshot: MemorySnapshot, *, embedder: Embedder) -> Self:
        """A bank in memory with a snapshot's content.

        Raises `SnapshotMismatch` when its content does not fit its digest.
        """
        bank = cls(embedder=embedder)
        other = bank.at(snapshot)
        bank._state, bank._base, bank._view, bank._pending = (
            other._state,
            other._base,
            other._view,
            other._pending,
        )
        return bank

    def showing(self, state: BankState, *, at: datetime | None = None) -> MemoryBank:
        """A read-only bank over a past or filtered state, searchable on its own; its
        clock stands still at a moment, if one is given.
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
        bank._pending = HashTrieSet(state.items)
        return bank

    def _own_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongLoop(
                f"the memory of user {self.scope.user_id!r} belongs to another event loop; open one agent a loop, "
                "or use the synchronous Agent"
            )


def _unless_empty(delta: GraphDelta) -> GraphDelta | None:
    return None if delta.empty and not delta.rejected else delta
