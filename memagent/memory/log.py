"""The log of one scope's memory: its state, replayed from the journal and written through it.

Every read first replays what other writers appended; where words that were read have
been erased since, reading begins again. A write is one journal append, then the fold.
Rules: one log belongs to one event loop (`WrongLoop`); its writes are serial; an
optimistic sequence number guards against other writers, and ops are checked again
against the state that they are really applied to. A `View` hears of every state.

The `View` is the index of that state, which follows before the next search. It holds a
state, an index of it (a value), and the items that the index has yet to catch up with. It
follows a `Log` and never writes. Forks share the projector, whose vectors only grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import random
from typing import Final, NamedTuple

from rpds import HashTrieSet

from memagent.core.answers import AsOf, Filter, Query
from memagent.core.crash_points import reach
from memagent.core.errors import StoreError, StoreReadOnly, VersionConflict, WrongLoop
from memagent.core.long_work import LARGE, Slices, aside, is_large, let_go, rare_collections
from memagent.core.records import Scope, system_clock
from memagent.core.snapshot import Entry, GraphStats, JournalRow, Redacted
from memagent.protocols import Clock, Journal, Reranker, Vector
from memagent.search.fusion import Candidate
from memagent.search.index import IndexView
from memagent.search.pipeline import (
    Level,
    NetworkedIndex,
    Projected,
    Projection,
    Projector,
    SavedProjections,
    SearchContext,
    most_similar,
    recall,
)
from memagent.search.segments import NO_ROW
from memagent.state.fold import EMPTY_STATE, BankState, apply, changed_items
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


Rewriting = tuple[Mapping[int, Entry], BankState, Iterable[str] | None]
"""Entries by sequence, the state that all rows lead to then, and the items by which it
differs from the present one, None for any.
"""


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
        "_indexing", "_pending", "_unembedded", "counted", "expired", "index", "past", "projector",
        "sources", "state",
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
        # the last figures of the graph, and their state; until then too
        self.counted: tuple[BankState, GraphStats] | None = None
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
        if saved is None:
            return None
        return await asyncio.to_thread(saved.load, scope, self.projector.embedder)

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

    def emptied(self) -> None:
        """Drop the index of a memory whose items are deleted all at once."""
        if self.sources.networked is not None:
            self.sources.networked.changed(self.state.items)
        self._index_anew(())

    def forget(self, state: BankState, differing: Iterable[str] | None = None) -> None:
        """Drop what was derived from the entries before an erasure.

        Where only the items `differing` are other than before, the rest of the index stays.
        """
        for past in self.past.values():
            let_go(*past.projection()[:2])
        self.past.clear()
        self.counted = None
        if self.sources.networked is not None:
            self.sources.networked.erased()
        if differing is not None:
            self.changed(state, differing)
            return
        # The old projector may hold a deleted checkpoint. Where only some words go, or the
        # journal is read anew, most texts come again: their vectors are taken over.
        former = self.projector.arena if len(state.items) or not state.seq else None
        self.projector = Projector(self.projector.embedder, former=former)
        self.state = state
        self._index_anew(state.items)

    def _index_anew(self, ids: Iterable[str]) -> None:
        """Begin an index that has yet to follow some items; the old one is freed in slices."""
        if len(self.index) >= LARGE_PAST:
            let_go(self.index)
        self.index, self._pending = IndexView(self.projector.arena), HashTrieSet(ids)
        self.expired = NEVER_LOOKED  # what had expired before holds the old state

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
        row = partial(self.projector.index_row, state, self.expired)
        return Level(state.seq, state.items, row, head)

    # -- searching ---------------------------------------------------------------------

    async def search(
        self, queries: Sequence[Query], *, k: int, now: datetime, explain: bool
    ) -> list[list[Candidate]]:
        """Return at most k candidates for each query, best first, ties by id.

        The queries are embedded in one batch. Without `explain` only the reasons are lacking.
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


# Most passes over the journal in one `sync`; a further one follows an erasure of words.
_PASSES: Final = 8
# Further entries that every task replays for itself.
_FIRST_ROWS: Final = 8
# Entries from which on the garbage collector rests while they are replayed.
_REST: Final = 256
# Recent states of a large memory that are kept, for a look at the past and for undo.
_KEPT: Final = 16
_ATTEMPTS: Final = 100
# Longest first pause of a writer that came second; five further defeats double it.
_PAUSE_S: Final = 0.002


class _PrivateRows:
    """The rows of a log without a journal, oldest first; the first follows `base`."""

    __slots__ = ("_base", "_clock", "_rows")

    def __init__(self, base: int, clock: Clock) -> None:
        self._base, self._clock = base, clock
        self._rows: list[JournalRow] = []

    async def head(self, _: Scope) -> int:
        return self._base + len(self._rows)

    async def since(self, _: Scope, seq: int) -> AsyncIterator[JournalRow]:
        for row in self._rows[max(0, seq - self._base) :]:
            yield row

    async def append(self, _: Scope, entry: Entry, *, expect: int) -> JournalRow:
        self._rows.append(JournalRow(seq=expect + 1, recorded_at=self._clock(), entry=entry))
        return self._rows[-1]

    async def append_many(
        self, _: Scope, entries: Sequence[Entry], *, expect: int, recorded_at: Sequence[datetime]
    ) -> list[JournalRow]:
        rows = [
            JournalRow(seq=seq, recorded_at=date, entry=entry)
            for seq, (entry, date) in enumerate(zip(entries, recorded_at, strict=True), expect + 1)
        ]
        self._rows += rows
        return rows

    async def redact(
        self, scope: Scope, rewritten: Mapping[int, Entry], *, expect: int, reason: str
    ) -> JournalRow:
        self._rows = [
            row.model_copy(update={"entry": rewritten.get(row.seq, row.entry)})
            for row in self._rows
        ]
        names = tuple((seq, "") for seq in sorted(rewritten))
        return await self.append(scope, Redacted(rewritten=names, reason=reason), expect=expect)


class Log:
    """One scope's state, kept level with its journal; a private log without one."""

    __slots__ = (
        "_follower", "_kept", "_lock", "_loop", "_origin", "_reading", "_rows", "base", "clock",
        "journal", "read_only", "scope", "state",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        journal: Journal | None,
        follower: View,
        *,
        clock: Clock = system_clock,
        read_only: bool = False,
        base: BankState = EMPTY_STATE,
    ) -> None:
        """Make a log that begins from `base`: empty, unless it is a fork's."""
        self.scope, self.journal, self.clock, self.read_only = scope, journal, clock, read_only
        self.base = self._origin = self.state = base
        self._follower = follower
        self._rows = journal if journal is not None else _PrivateRows(base.seq, clock)
        self._kept: tuple[BankState, ...] = ()
        """States right before recent entries, where replaying all would take long."""
        self._lock: asyncio.Lock | None = None
        self._reading: asyncio.Lock | None = None
        """Held by the one task that replays many entries; the others wait for its work."""
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- reading -----------------------------------------------------------------------

    async def sync(self) -> BankState:
        """Replay the entries appended since the last call.

        Raises `WrongLoop` from a foreign event loop.
        """
        if self._loop is not asyncio.get_running_loop():
            self._own_loop()
        head = await self._rows.head(self.scope)
        if head <= self.state.seq:
            return self.state
        if head <= self.state.seq + _FIRST_ROWS:
            await self._replay(head)
            return self.state
        if self._reading is None:
            self._reading = asyncio.Lock()
        async with self._reading:
            await self._replay(head)
        return self.state

    async def head(self) -> int:
        """Return the sequence of the last entry, read here or not."""
        return await self._rows.head(self.scope)

    async def _replay(self, head: int) -> None:
        """Replay what the journal has up to `head` at least."""
        for attempt in range(_PASSES):
            if head <= self.state.seq:
                return
            if not self.state.seq and not attempt:
                content = await self._follower.load(self.scope)
                if content is not None and not self.state.seq:
                    self._origin = self.state = content.state
                    self._follower.start(content)
            await self._catch_up(head)
            head = await self._rows.head(self.scope)

    async def _catch_up(self, head: int) -> None:
        """Replay what is new; begin again where words that were read are erased by now."""
        start, slices = self.state.seq, Slices()
        with rare_collections() if head > start + _REST else nullcontext():
            async for row in self._rows.since(self.scope, start):
                if isinstance(row.entry, Redacted):
                    oldest = min((at for at, _ in row.entry.rewritten), default=row.seq)
                    if row.seq > head or oldest <= start:  # rows read before say what it erased
                        self._begin_again()
                        return
                await self._follow(row, keep=row.seq > head - _KEPT)
                await slices.rest()

    def rows(self, *, after: int = 0) -> AsyncIterator[JournalRow]:
        """Return the journal rows after a sequence, oldest first.

        A fork has the rows written since it began.
        """
        return self._rows.since(self.scope, after)

    async def state_at(self, seq: int) -> BankState:
        """Return the state right after journal entry `seq`.

        Raises `StoreError` for a time before a fork began.
        """
        await self.sync()
        if seq < self.base.seq:
            raise StoreError(
                f"this fork began at sequence {self.base.seq}; it cannot show sequence {seq}"
            )
        if seq >= self.state.seq:
            return self.state
        state = max(
            (kept for kept in (self.base, self._origin, *self._kept) if kept.seq <= seq),
            key=lambda kept: kept.seq,
        )
        slices = Slices()
        async for row in self.rows(after=state.seq) if state.seq < seq else no_rows():
            if row.seq > seq:
                break
            state = await aside(apply, state, row) if is_large((row.entry,)) else apply(state, row)
            await slices.rest()
        return state

    async def _follow(self, row: JournalRow, *, keep: bool = True) -> None:
        """Advance by a row, and keep the state before it; a large one is applied in a thread.

        A row that another reader applied meanwhile, or that belongs behind one that is
        not known, is passed over.
        """
        large = is_large((row.entry,))
        while True:
            state = self.state
            following = row.seq == state.seq + 1
            if not following and (row.seq <= state.seq or row.entry.kind != "erased"):
                return
            large &= following
            after = await aside(apply, state, row) if large else apply(state, row)
            if self.state is state:
                break
        dropped, following = state, after
        if keep and max(state.seq, len(state.items)) >= _REST:
            dropped, following, *_ = *self._kept, state, after
            if len(self._kept) < _KEPT:
                following = dropped
            self._kept = (*self._kept, state)[-_KEPT:]
        self.state = after
        if dropped.cleared != following.cleared:  # the last to have what was deleted at once
            let_go(dropped)
        if row.entry.kind == "erased":
            self._drop(state)
        if after.cleared != state.cleared:
            self._follower.emptied()
        self._follower.changed(after, changed_items(row.entry))

    def _begin_again(self) -> None:
        """Drop everything read so far, because words in it were erased."""
        before, self.state = self.state, self.base
        self._drop(before)

    def _drop(self, before: BankState, differing: Iterable[str] | None = None) -> None:
        """Drop earlier states and what was derived from them; they may say what is erased."""
        if differing is None and len(before.items) >= _REST:
            let_go(before)
        self._kept, self._origin = (), self.base
        self._follower.forget(self.state, differing)

    def _own_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongLoop(
                f"the memory of user {self.scope.user_id!r} belongs to another event loop; "
                "open one agent a loop, or use the synchronous Agent"
            )

    # -- writing -----------------------------------------------------------------------

    async def append(
        self, make: Callable[[BankState], Entry | None], *, large: bool = False
    ) -> JournalRow | None:
        """Append the entry that `make` gives for the present state; None writes nothing.

        `make` is called again when another writer was first; in a thread where it takes
        long (`large`).
        """
        async with self._writing():
            for attempt in range(1, _ATTEMPTS + 1):
                state = await self.sync()
                entry = await aside(make, state) if large else make(state)
                if entry is None:
                    return None
                reach("bank.planned")
                try:
                    row = await self._rows.append(self.scope, entry, expect=state.seq)
                except VersionConflict:
                    if attempt == _ATTEMPTS:
                        raise
                    # let the others through
                    await asyncio.sleep(random() * _PAUSE_S * 2 ** min(attempt - 1, 5))
                    continue
                reach("bank.appended")
                await self._follow(row)
                return row
        return None

    async def redact(
        self, make: Callable[[BankState], Awaitable[Rewriting]], *, reason: str
    ) -> JournalRow:
        """Rewrite earlier entries, as `make` says; it is asked again if another writer was first.

        Raises `StoreError` in a fork, which shares what came before it.
        """
        if self.base.seq and not self.read_only:
            raise StoreError("this is a fork; erase in the memory that it was made from")
        async with self._writing():
            for _ in range(_ATTEMPTS):
                state = await self.sync()
                new, after, differing = await make(state)
                with suppress(VersionConflict):
                    row = await self._rows.redact(self.scope, new, expect=state.seq, reason=reason)
                    self.state = apply(after, row)
                    self._drop(state, differing)
                    return row
        raise StoreError("other writers were first each time; try again")

    async def replay(self, rows: Sequence[JournalRow]) -> None:
        """Append rows of an export with their dates, all or nothing.

        Raises `VersionConflict` when another writer was first.
        """
        self._writing()
        state = await self.sync()
        written = await self._rows.append_many(
            self.scope,
            [row.entry for row in rows],
            expect=state.seq,
            recorded_at=[row.recorded_at for row in rows],
        )
        slices = Slices()
        for row in written:
            await self._follow(row)
            await slices.rest()

    def _writing(self) -> asyncio.Lock:
        """Return the lock of the writers. Raises `StoreReadOnly`."""
        if self.read_only:
            raise StoreReadOnly(
                f"the memory of user {self.scope.user_id!r} is open for reading only"
            )
        if self._loop is not asyncio.get_running_loop():
            self._own_loop()
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock


async def no_rows() -> AsyncIterator[JournalRow]:
    """Yield nothing."""
    return
    yield
