"""Direct verbs on a memory, in the words users of memory libraries know.

Every write is a commit like the agent's own: journalled, with provenance, undoable.
`delete` leaves a restorable tombstone; `reset` erases.

A `Listing` is read from any place on. Its orders are the state's own, so a page costs its
own length (and the items that its filter skips), whatever the size of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from memagent.core import Later
from memagent.core.answers import AsOf, Filter, GraphFormat, Hit, Query, SearchEvidence
from memagent.core.errors import (
    ConfigError,
    InputError,
    MemoryNotFound,
    StoreError,
    VersionConflict,
    check_keywords,
    check_type,
    input_errors,
)
from memagent.core.long_work import aside
from memagent.core.ops import Delete, MemoryOp, OpBatch, Rejected, RejectReason, Update
from memagent.core.recipes import BALANCED, Recipe, recipe_of
from memagent.core.records import MemoryItem, Session, SourceRef, TimeSpan
from memagent.core.snapshot import (
    Commit,
    Erased,
    ErasureReceipt,
    GraphStats,
    HistoryEntry,
    MemorySnapshot,
    Quarantined,
    SnapshotDiff,
    SourceFilter,
    Touched,
)
from memagent.memory.bank import MemoryBank
from memagent.memory.incoming import When, as_point
from memagent.memory.options import (
    AddArguments,
    SearchArguments,
    SearchHits,
    SearchOptions,
    checked_text,
    new_item,
)
from memagent.state.adjacency import pairs
from memagent.state.fold import BankState, age_key, change_key
from memagent.state.orders import SortedSet
from memagent.state.validation import matches
from memagent.state.versions import clearing
from memagent.tracing import operation_span, put_search, verb

Order = Literal["old", "new", "changed"]
"""Oldest said first, latest said first, or last changed first; ties by turn, then id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The items of a list and their order."""

    where: Filter | None = None
    include_deleted: bool = False
    """Whether deleted and expired items are in it."""
    order: Order = "old"
    after: str | None = None
    """Id of an item, in the list or not, behind which it begins."""

    def of(self, state: BankState, now: datetime) -> Iterator[MemoryItem]:
        """Return the items of a state one by one. Raises `MemoryNotFound` for `after`."""
        last = None if self.after is None else state.items.get(self.after)
        if self.after is not None and last is None:
            raise MemoryNotFound(f"there is no memory {self.after!r} to list on from")
        changed, backwards = self.order == "changed", self.order == "new"
        key_of: Callable[[BankState, MemoryItem], Any] = change_key if changed else age_key
        keys = state.orders.by("change" if changed else "age", state)
        if self.where is not None and self.where.ids:
            chosen = filter(None, map(state.items.get, self.where.ids))
            keys = SortedSet(key_of(state, item) for item in chosen)
        if last is None:
            rest = reversed(keys) if backwards else iter(keys)
        else:
            place = key_of(state, last)
            rest = keys.before(place) if backwards else keys.after(place)
        where = None if self.where is None or self.where.empty else self.where
        items = (state.items[key[-1]] for key in rest)
        return (
            item
            for item in items
            if (self.include_deleted or (item.active and not item.expired(now)))
            and (where is None or matches(item, where))
        )


if TYPE_CHECKING:
    from memagent.memory import timetravel
    from memagent.memory.care import erasure, undo as care
    from memagent.memory.graph_export import GraphExport
    from memagent.memory.transfer import ExportReport
else:
    timetravel = Later("memagent.memory.timetravel")
    care = Later("memagent.memory.care.undo")
    erasure = Later("memagent.memory.care.erasure")

# Items from which on a list is made in a thread, unless it is a page of an order that is known.
_LARGE: Final = 256


class CareVerbs:
    """The verbs of review, forensics and erasure over a bank."""

    bank: MemoryBank

    async def quarantine(self) -> list[Quarantined]:
        """Return the changes that were kept aside for review, oldest first.

        A change is kept aside when what it rests on is trusted too little for what it
        would change.
        """
        return await care.quarantined(self.bank)

    async def accept(self, quarantined_id: str) -> Commit:
        """Carry out a change that was kept aside; the memory keeps its trust.

        Raises `MemoryNotFound`, `InputError`, and `VersionConflict` when the memory
        changed meanwhile.
        """
        return await care.accept(self.bank, quarantined_id)

    async def refuse(self, quarantined_id: str) -> Commit:
        """Settle a change that was kept aside without carrying it out.

        Raises `MemoryNotFound`.
        """
        return await care.refuse(self.bank, quarantined_id)

    async def touched_by(self, source: SourceFilter) -> list[Touched]:
        """Return every memory that rests on a session, turn, speaker, tool or trust.

        Raises `InputError` for a filter that names nothing.
        """
        return await care.touched_by(self.bank, source)

    async def exclude(self, source: SourceFilter) -> Commit | None:
        """Delete every memory that rests on a source, in one commit that can be undone.

        None when there is none. Raises as `touched_by`.
        """
        return await care.exclude(self.bank, source)

    async def roll_back(self, source: SourceFilter) -> Commit | None:
        """Set every memory that rests on a source back to before the source touched it.

        One commit that can be undone; None when there is nothing to do. Raises as
        `touched_by`.
        """
        return await care.roll_back(self.bank, source)

    async def erase(self, item_id: str, *, keep_turns: bool = False) -> ErasureReceipt:
        """Erase one memory beyond recovery, with the words of the turns it rests on.

        `keep_turns` leaves those turns. Raises `MemoryNotFound`, `StoreError`.
        """
        return await erasure.erase_item(self.bank, item_id, keep_turns=keep_turns)

    async def erase_session(self, session_id: str) -> ErasureReceipt:
        """Erase a session beyond recovery, with every memory that rests on it.

        Raises `MemoryNotFound`, `StoreError`.
        """
        return await erasure.erase_session(self.bank, session_id)


class Memory(CareVerbs):
    """The verbs of one memory.

    Cheap to make: it holds a bank and the recipe of searches that name none.
    """

    def __init__(
        self, bank: MemoryBank, *, recipe: Recipe = BALANCED, capture_content: bool = False
    ) -> None:
        self.bank = bank
        self.recipe = recipe
        self.capture_content = capture_content
        """Whether OpenTelemetry spans may tell texts."""

    @verb("create_memory")
    async def add(self, text: str, **options: Unpack[AddArguments]) -> MemoryItem:
        """Remember a text as it is, for good or until it expires.

        The keywords are those of `AddArguments`. Raises `InputError` for text or
        metadata that cannot be stored, and for an expiry that has passed already.
        """
        with input_errors():
            op = new_item(text, options, now=self.bank.log.clock())
        return await _written(self.bank, op)

    @verb("create_memory")
    async def add_many(
        self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None
    ) -> list[MemoryItem]:
        """Remember many texts in one durable write; all or none. Raises `InputError`."""
        with input_errors():
            check_type("texts", texts, Iterable, "a list of texts")
            if isinstance(texts, str):
                raise InputError("texts is one text; give a list of them, or use `add`")
            options, now = AddArguments(kind=kind, subject=subject), self.bank.log.clock()
            ops = tuple(new_item(text, options, now=now) for text in texts)
        commit = await self.bank.commit(OpBatch(accepted=ops), source=SourceRef(actor="user"))
        return [change.after for change in commit.changes if change.after is not None]

    async def search(self, text: str, **options: Unpack[SearchArguments]) -> SearchHits:
        """Return at most k hits for a text, best first; [] when nothing matches or it is empty.

        The keywords are those of `SearchArguments`; `hits.evidence` tells whether the hits
        answer. Raises `ConfigError`.
        """
        with operation_span("search_memory", capture=self.capture_content) as span:
            bank, query, chosen = await _resolved(self, text, options)
            found = [] if query is None else await bank.search(query, k=chosen.k)
            hits = SearchHits(found, judge=None if query is None else _judge(text, found, bank))
            if chosen.abstain_below is not None:
                hits = hits.unless_below(chosen.abstain_below)
            if span.recording and query is not None:
                put_search(span, query, hits, k=chosen.k)
            return hits

    async def get(self, item_id: str) -> MemoryItem:
        """Return an item. Raises `MemoryNotFound`."""
        return await self.bank.get(item_id)

    async def get_all(
        self,
        *,
        where: Filter | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
        after: str | None = None,
    ) -> list[MemoryItem]:
        """Return the items that pass the filter, oldest said first, ties by turn, then by id.

        `include_deleted` shows the expired ones too, and those deleted one by one. `after`
        is the id of the last item of the page before: a page takes the time of its own
        length. Raises `MemoryNotFound` for an `after` that the memory does not hold.
        """
        check_type("limit", limit, int | None, "a whole number")
        check_type("where", where, Filter | None, "a Filter")
        if limit is not None and limit < 0:
            raise ConfigError(f"limit is {limit}; ask for at least 0 items")
        pages = Listing(where=where, include_deleted=include_deleted, after=after)
        state, now = await self.bank.sync(), self.bank.now()
        page = limit is not None and state.orders.derived and (where is None or where.empty)
        if page or len(state.items) < _LARGE:
            return list(islice(pages.of(state, now), limit))
        return await aside(lambda: list(islice(pages.of(state, now), limit)))

    async def sessions(self) -> list[Session]:
        """Return the stored sessions with their raw turns, oldest first."""
        state = await self.bank.sync()
        return sorted(
            (session for _, session in pairs(state.sessions)),
            key=lambda session: (session.at.timestamp() if session.at else 0.0, session.id),
        )

    @verb("update_memory")
    async def update(
        self, item_id: str, text: str, *, version: int | None = None, valid: TimeSpan | None = None
    ) -> MemoryItem:
        """Write a new version; `version` guards against lost updates.

        The item keeps its expiry, and without `valid` its time.

        Raises `MemoryNotFound`, `VersionConflict`, `InputError`.
        """
        with input_errors():
            old = await self.get(item_id)
            op = Update(
                id=item_id, text=checked_text(text), version=version, valid=valid or old.valid
            )
        return await _written(self.bank, op)

    @verb("delete_memory")
    async def delete(self, item_id: str, *, version: int | None = None) -> None:
        """Take an item out; `restore(item_id)` brings it back.

        Raises `MemoryNotFound`, `VersionConflict`.
        """
        with input_errors():
            op = Delete(id=item_id, version=version)
        await _written(self.bank, op)

    @verb("delete_memory")
    async def delete_all(self, *, user_id: str) -> int:
        """Delete every item and event of this memory in one commit that can be undone.

        What was told stays, as do trials. Lists show nothing of what went; `history`,
        `restore` and `erase` find it by its id. `user_id` must name the memory's user.
        Returns the number of items. Takes O(1).
        """
        _own(self.bank, user_id)
        commit = await self.bank.record(clearing)
        return 0 if commit is None else commit.cleared or 0

    @verb("delete_memory_store")
    async def reset(self, *, user_id: str) -> None:
        """Erase this memory with its history and turns, beyond recovery.

        `user_id` must name the memory's user. Raises `StoreUnavailable` when a networked
        index could not be emptied; the rest is erased then, and the index is emptied
        before its next use.
        """
        _own(self.bank, user_id)
        await self.bank.append(lambda _: Erased(reason="reset"))
        await self.bank.settle()

    async def history(self, item_id: str) -> tuple[HistoryEntry, ...]:
        """Return every change of an item, oldest first. Raises `MemoryNotFound`."""
        return await timetravel.history(self.bank, item_id)

    @verb("update_memory")
    async def undo(self, commit_id: str | None = None) -> Commit:
        """Take back a commit, by default the last.

        Raises `MemoryNotFound`, `StoreError`.
        """
        return await care.undo(self.bank, commit_id)

    async def as_of(self, when: AsOf | When) -> Memory:
        """Return a read-only view of the memory at a point in time.

        A moment or ISO date means what had been said by then. Raises `InputError`.
        """
        return _of(self, await timetravel.as_of(self.bank, as_point(when)))

    async def graph_stats(self) -> GraphStats:
        """Return figures of the event graph as it stands."""
        from memagent.events.visibility import graph_stats

        state, view = await self.bank.sync(), self.bank.view
        stats = await aside(graph_stats, state, view.counted)
        if view.state is state:
            view.counted = state, stats
        return stats

    async def snapshot(self) -> MemorySnapshot:
        """Return the memory as an immutable value."""
        await self.bank.sync()
        return self.bank.snapshot()

    async def fork(self) -> Memory:
        """Return a private copy in memory; its writes never reach this one."""
        await self.bank.sync()
        return _of(self, self.bank.fork())

    @verb("update_memory")
    async def restore(self, what: MemorySnapshot | str) -> None:
        """Put the memory back to a snapshot, or bring back one deleted item by its id."""
        if isinstance(what, str):
            await timetravel.undelete(self.bank, what)
        else:
            await timetravel.restore_snapshot(self.bank, what)

    async def diff(
        self, before: MemorySnapshot, after: MemorySnapshot | None = None
    ) -> SnapshotDiff:
        """Return the changes between two snapshots; `after` defaults to now."""
        after = after if after is not None else await self.snapshot()
        return await aside(timetravel.diff, before, after)

    async def export(self, path: str | Path) -> ExportReport:
        """Write everything, history included, to one portable file."""
        from memagent.memory.transfer import export_bank

        return await export_bank(self.bank, _file(path))

    async def export_graph(
        self,
        path: str | Path | None = None,
        format: GraphFormat = "html",
        *,
        as_of: AsOf | None = None,
        include_hidden: bool = True,
    ) -> GraphExport:
        """Export the event graph as a self-contained page, node-link JSON or GraphML.

        The export holds the turns that the graph rests on, and is also written to `path`
        if one is given. Without `include_hidden`, deleted and rewritten events are left
        out. Raises `ConfigError`, `InputError`.
        """
        from memagent.memory.graph_export import export_graph

        place = _file(path) if path is not None else None
        return await export_graph(
            self.bank, place, format=format, as_of=as_of, include_hidden=include_hidden
        )

    async def import_(self, path: str | Path) -> ExportReport:
        """Read an export into this memory, which must be empty.

        Raises `SnapshotMismatch`, `InputError`.
        """
        from memagent.memory.transfer import import_bank

        return await import_bank(self.bank, _file(path))


def _file(path: str | Path) -> Path:
    check_type("path", path, str | PathLike, "the path of a file")
    return Path(path)


def _of(memory: Memory, bank: MemoryBank) -> Memory:
    return Memory(bank, recipe=memory.recipe, capture_content=memory.capture_content)


def _own(bank: MemoryBank, user_id: str) -> None:
    if user_id != bank.scope.user_id:
        raise ConfigError(
            f"this memory belongs to user {bank.scope.user_id!r}, not to {user_id!r}; "
            "nothing was deleted"
        )


async def _written(bank: MemoryBank, op: MemoryOp) -> MemoryItem:
    """Carry out one op and return its item; raise what was refused."""
    commit = await bank.commit(OpBatch(accepted=(op,)), source=SourceRef(actor="user"))
    if commit.rejected:
        raise _as_error(commit.rejected[0], bank)
    item = commit.changes[0].after
    assert item is not None
    return item


async def ranked(
    memory: Memory, text: str, **options: Unpack[SearchArguments]
) -> list[tuple[MemoryItem, float]]:
    """Return the items and scores of `Memory.search`, without the reasons and in less time.

    Raises `ConfigError`.
    """
    with operation_span("search_memory", capture=memory.capture_content) as span:
        bank, query, chosen = await _resolved(memory, text, options)
        found = await bank.candidates([query] if query else [], k=chosen.k, explain=False)
        scored = [(each.item, each.score) for candidates in found for each in candidates]
        if span.recording and query is not None:
            put_search(span, query, [item for item, _ in scored], k=chosen.k)
        return scored


async def _resolved(
    memory: Memory, text: str, given: SearchArguments
) -> tuple[MemoryBank, Query | None, SearchOptions]:
    """Return the bank to search, the query (none for an empty text) and the options."""
    if not given.keys() <= SearchArguments.__annotations__.keys():
        check_keywords("search()", given, SearchArguments.__annotations__)
    options = SearchOptions(**given)
    if not isinstance(options.k, int) or options.k < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"k is {options.k!r}; ask for at least 1 item")
    if options.abstain_below is not None:
        check_type("abstain_below", options.abstain_below, int | float, "a probability, 0 to 1")
        if not 0.0 <= options.abstain_below <= 1.0:
            raise ConfigError(
                f"abstain_below is {options.abstain_below}; give a probability, 0 to 1"
            )
    if options.max_tokens is not None:
        check_type("max_tokens", options.max_tokens, int, "a whole number")
        if options.max_tokens < 1:
            raise ConfigError(f"max_tokens is {options.max_tokens}; allow at least 1 token")
    recipe = memory.recipe if options.recipe is None else recipe_of(options.recipe)
    if options.max_tokens is not None:
        recipe = recipe.model_copy(update={"max_tokens": options.max_tokens})
    bank = memory.bank
    if options.as_of is not None and not (when := as_point(options.as_of)).now:
        bank = await timetravel.as_of(bank, when)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"the query is of type {type(text).__name__}; give a text")
    query = Query(text=text, where=options.filter(), recipe=recipe) if text.strip() else None
    return bank, query, options


def _judge(text: str, hits: Sequence[Hit], bank: MemoryBank) -> Callable[[], SearchEvidence]:
    """Return what judges the hits by the memory as it is now, when it is asked to."""
    state, view, now = bank.log.state, bank.view.index, bank.log.clock()

    def judged() -> SearchEvidence:
        from memagent.memory.judging.certainty import read_search

        return SearchEvidence.of(read_search(text, hits, state, view, asked_at=now).sure)

    return judged


def _as_error(rejected: Rejected, bank: MemoryBank) -> StoreError | InputError:
    user = bank.scope.user_id
    if rejected.reason is RejectReason.UNKNOWN_ID:
        return MemoryNotFound(f"{rejected.detail} (user {user!r})")
    if rejected.reason is RejectReason.STALE_VERSION and isinstance(rejected.op, Update | Delete):
        item = bank.state.items.get(rejected.op.id)
        return VersionConflict(
            rejected.detail, expected=rejected.op.version or 0, actual=item.version if item else 0
        )
    return InputError(rejected.detail or rejected.reason.value)
