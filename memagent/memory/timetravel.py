"""History, restore, `as_of` and diff, as functions over a bank.

Restoring appends an entry like any write, so it can be undone in turn and nothing is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import cast

from memagent.core.answers import AsOf
from memagent.core.errors import InputError, MemoryNotFound, check_id
from memagent.core.long_work import aside
from memagent.core.ops import Delete, Update
from memagent.core.records import Event, ItemStatus, MemoryItem, NodeKind, SourceRef
from memagent.core.snapshot import (
    AppliedOp,
    Commit,
    GraphContent,
    GraphDelta,
    HistoryEntry,
    ItemChange,
    JournalRow,
    MemorySnapshot,
    Restored,
    SnapshotDiff,
    TurnsAdded,
)
from memagent.memory.bank import MemoryBank
from memagent.memory.log import LARGE_PAST, MOST_PAST, ViewContent, no_rows
from memagent.state.adjacency import (
    GraphState,
    edges_between,
    graph_delta_between,
    graph_of,
    item_node,
    unshared,
)
from memagent.state.fold import EMPTY_STATE, BankState, apply, changed_items, names_between
from memagent.state.versions import began

# -- history ---------------------------------------------------------------------------


async def history(bank: MemoryBank, item_id: str) -> tuple[HistoryEntry, ...]:
    """Return every change of an item, oldest first.

    Raises `MemoryNotFound` when the journal never held it, and `InputError`.
    """
    check_id("memory", item_id)
    state = await bank.sync()
    touched = state.touched.get(item_id)
    if not touched:
        raise MemoryNotFound(f"no memory {item_id!r} for user {bank.scope.user_id!r}")
    told: list[HistoryEntry] = []
    ends = (next((end for end in state.cleared if end > seq), seq) for seq in touched)
    for seq in sorted({*touched, *ends}):
        row = await _next_row(bank, seq)
        if row is None or row.seq != seq or not isinstance(row.entry, Commit | Restored):
            continue
        if seq in touched:
            told.append(_history_entry(row, row.entry, item_id))
        elif told and (last := told[-1].item) is not None and last.active:
            entry = _history_entry(row, row.entry, item_id)
            update = {"op": Delete(id=item_id), "item": _tombstone(last)}
            told.append(entry.model_copy(update=update))
    return tuple(told)


def _tombstone(item: MemoryItem) -> MemoryItem:
    """Return the version of an item that its deletion with all others made."""
    return item.model_copy(update={"version": item.version + 1, "status": ItemStatus.DELETED})


def _history_entry(row: JournalRow, entry: Commit | Restored, item_id: str) -> HistoryEntry:
    after = next((change.after for change in entry.changes if change.id == item_id), None)
    if isinstance(entry, Restored):
        return HistoryEntry(
            seq=row.seq, recorded_at=row.recorded_at, commit_id="restored", item=after
        )
    op = next(
        (
            applied.op
            for applied in entry.ops
            if applied.item_id == item_id and applied.version is not None
        ),
        None,
    )
    return HistoryEntry(
        seq=row.seq,
        recorded_at=row.recorded_at,
        commit_id=entry.id,
        op=op,
        item=after,
        source=entry.source,
        undoes=entry.undoes,
    )


# -- restore ---------------------------------------------------------------------------


async def undelete(bank: MemoryBank, item_id: str) -> Commit:
    """Bring a deleted item back as a new version of its last text.

    Raises `MemoryNotFound` when there is no such tombstone.
    """
    state = await bank.sync()
    last = max(state.touched.get(item_id, ()), default=0)
    clearing = next((seq for seq in state.cleared if seq > last), 0) if last else 0
    before = await bank.log.state_at(clearing - 1) if clearing else EMPTY_STATE

    def entry(state: BankState) -> Commit:
        item, past = state.items.get(item_id), None
        if item is None and (item := before.items.get(item_id)) is not None:
            past = before.versions(item_id)
            if item.active:
                item = _tombstone(item)
                past = (*past, item)
        elif item is not None and item.active:
            item = None
        if item is None:
            raise MemoryNotFound(f"no deleted memory {item_id!r} for user {bank.scope.user_id!r}")
        commit_id = f"c{state.seq + 1}"
        after = item.model_copy(
            update={
                "version": item.version + 1,
                "status": ItemStatus.ACTIVE,
                "op_id": f"{commit_id}.0",
            }
        )
        op = Update(id=item_id, version=item.version, text=item.text, reason="restored")
        return Commit(
            id=commit_id,
            ops=(AppliedOp(op_id=f"{commit_id}.0", op=op, item_id=item_id, version=after.version),),
            changes=(ItemChange(id=item_id, after=after, archive=past),),
            graph=_named_again(state.graph, before.graph, item_node(after)),
            source=SourceRef(actor="user"),
        )

    return await bank.record(entry)


def _named_again(now: GraphState, before: GraphState, node: Event) -> GraphDelta:
    """Return the delta that puts a node back, with whom and what it named before."""
    links = [(edge, before.node(other)) for other, edge, _ in before.edges_of(node.id)]
    named = [(edge, end) for edge, end in links if end and end.kind is NodeKind.ENTITY]
    missing = {end.id: end for _, end in named if now.node(end.id) is None}
    return GraphDelta(nodes=(*missing.values(), node), edges=tuple(edge for edge, _ in named))


async def restore_snapshot(bank: MemoryBank, snapshot: MemorySnapshot) -> None:
    """Make the memory equal to a snapshot, digest included, in one journal entry."""
    check_snapshot(snapshot)
    target = bank.at(snapshot).state
    await bank.append(lambda state: restoring_entry(state, target), large=True)


def restoring_entry(state: BankState, target: BankState) -> Restored:
    """Return the entry that turns one state into another."""
    among = names_between(state, target)
    names = {
        *unshared(state.items, target.items, among),
        *unshared(state.archive, target.archive, among),
    }
    changes = [
        ItemChange(id=item_id, after=item, archive=target.archive.get(item_id, ()))
        for item_id in sorted(names)
        if (item := target.items.get(item_id)) != state.items.get(item_id)
        or state.archive.get(item_id, ()) != target.archive.get(item_id, ())
    ]
    return Restored(
        digest=target.digest(),
        changes=tuple(changes),
        graph=graph_delta_between(state.graph, target.graph, among),
        ordinals=tuple(
            (key, target.ordinals.get(key, 0))
            for key in _differing(state.ordinals, target.ordinals, among)
        ),
        stats=tuple(
            (key, target.stats.get(key)) for key in _differing(state.stats, target.stats, among)
        ),
        trials=tuple(
            (key, target.trials.get(key)) for key in _differing(state.trials, target.trials, among)
        ),
        done=tuple(
            (key, tuple(sorted(target.done.get(key, ()))))
            for key in _differing(state.done, target.done, among)
        ),
        sessions=tuple(
            session
            for key in (target.sessions if among is None else sorted(among))
            if (session := target.sessions.get(key)) is not None
            and (key not in state.sessions or len(session.turns) > len(state.sessions[key].turns))
        ),
    )


def _differing(
    a: Mapping[str, object], b: Mapping[str, object], among: Collection[str] | None
) -> list[str]:
    return [key for key in unshared(a, b, among) if a.get(key) != b.get(key)]


# -- as of -----------------------------------------------------------------------------


async def as_of(bank: MemoryBank, when: AsOf) -> MemoryBank:
    """Return a read-only bank at a point on each given axis of time.

    `recorded` replays the journal. `said` keeps, of every item, the last version said
    by then; undated ones always count. `valid` keeps the version that held at that
    moment: it begins when it began to hold, or else was said, and ends with the next
    version. Items that had expired by the moment (the first given of recorded, said,
    valid) are hidden.
    """
    state = await bank.sync()
    seq, recorded_at = await _recorded(bank, when.recorded)
    kept, key = bank.view.past, (min(seq, state.seq), when)
    if key in kept:
        return cast("MemoryBank", kept[key])
    differing = await _changed_since(bank, seq)
    past = await bank.log.state_at(seq)
    for moment, begins in ((when.said, attrgetter("said_at")), (when.valid, began)):
        if moment is not None:
            past, others = await aside(_filtered, past, moment, begins)
            differing = None if differing is None else differing | others
    view = bank.showing(past, at=recorded_at or when.said or when.valid, differing=differing)
    if len(past.items) >= LARGE_PAST:
        while len(kept) >= MOST_PAST:
            del kept[next(iter(kept))]
        kept[key] = view
    return view


async def _recorded(
    bank: MemoryBank, recorded: datetime | int | None
) -> tuple[int, datetime | None]:
    """Return the last sequence of the journal then, and the moment.

    For a sequence number the moment is when its entry was recorded. Time never runs
    backwards within a log, so a moment is found by halves.
    """
    first, last = bank.log.base.seq, bank.state.seq
    if recorded is None:
        return last, None
    if isinstance(recorded, int):
        row = await _next_row(bank, recorded) if 0 < recorded <= last else None
        return recorded, row.recorded_at if row is not None and row.seq == recorded else None
    while first < last:
        middle = (first + last + 1) // 2
        row = await _next_row(bank, middle)
        if row is not None and row.recorded_at <= recorded:
            first = row.seq
        else:
            last = middle - 1
    return first, recorded


async def _next_row(bank: MemoryBank, seq: int) -> JournalRow | None:
    """Return the first row from a sequence on that was not erased."""
    async for row in bank.rows(after=seq - 1):
        return row
    return None


async def _changed_since(bank: MemoryBank, seq: int) -> frozenset[str] | None:
    """Return the items that are indexed otherwise now than at a sequence.

    None where most are: to index all anew then takes less time.
    """
    state = bank.state
    if state.seq - seq > state.seq // 2:
        return None
    changed: set[str] = set()
    async for row in bank.rows(after=seq) if seq < state.seq else no_rows():
        if row.entry.kind == "erased" or row.seq in state.cleared:
            return None
        changed.update(changed_items(row.entry))
        if isinstance(row.entry, TurnsAdded):  # seen by the turns before them
            changed.update(item.id for item in bank.view.index.of_session(row.entry.session_id))
    return frozenset(changed) if 2 * len(changed) <= len(state.items) else None


def _filtered(
    state: BankState, moment: datetime, begins: Callable[[MemoryItem], datetime | None]
) -> tuple[BankState, frozenset[str]]:
    """Return the state by a moment, and the ids of the items that differ there."""
    changes: list[ItemChange] = []
    nodes = {node.id: node for node in state.graph.all_nodes()}
    gone = {
        node.id
        for node in nodes.values()
        if node.kind is not NodeKind.ENTITY and node.said_at and node.said_at > moment
    }
    reopened: list[MemoryItem] = []
    for item_id in state.items:
        kept = [
            version
            for version in state.versions(item_id)
            if (start := begins(version)) is None or start <= moment
        ]
        after = kept[-1] if kept else None
        if after is None:
            gone.add(item_id)
        else:
            gone.discard(item_id)
        if after != state.items[item_id]:
            reopened += kept[-1:]
            changes.append(ItemChange(id=item_id, after=after, archive=tuple(kept[:-1])))
    delta = GraphDelta(
        nodes=tuple(item_node(item) for item in reopened if item.id in nodes),
        removed_nodes=tuple(sorted(gone & nodes.keys())),
    )
    seq = state.seq
    row = JournalRow(
        seq=max(seq, 1),
        recorded_at=moment,
        entry=Restored(digest="", changes=tuple(changes), graph=delta),
    )
    return replace(apply(state, row), seq=seq), frozenset(change.id for change in changes)


# -- diff ------------------------------------------------------------------------------


def check_snapshot(given: MemorySnapshot) -> None:
    """Raise `InputError` for anything but a snapshot."""
    if not isinstance(given, MemorySnapshot):  # pyright: ignore[reportUnnecessaryIsInstance]
        name = type(given).__name__
        raise InputError(f"a {name} is no snapshot; give one of `memory.snapshot()`")


def diff(before: MemorySnapshot, after: MemorySnapshot) -> SnapshotDiff:
    """Return the changes between two snapshots, items in order of id."""
    check_snapshot(before)
    check_snapshot(after)
    among = None
    if isinstance(before.live, ViewContent) and isinstance(after.live, ViewContent):
        among = names_between(before.live.state, after.live.state)
    names = unshared(before.items, after.items, among)
    old = {key: item for key in names if (item := before.items.get(key)) and item.active}
    new = {key: item for key in names if (item := after.items.get(key)) and item.active}
    edges = list(edges_between(_as_state(before.graph), _as_state(after.graph), among))
    return SnapshotDiff(
        added=tuple(item for key, item in new.items() if key not in old),
        removed=tuple(item for key, item in old.items() if key not in new),
        changed=tuple(
            (old[key], item) for key, item in new.items() if key in old and old[key] != item
        ),
        edges_added=tuple(now for was, now in edges if was is None and now is not None),
        edges_removed=tuple(was for was, now in edges if was is not None and now is None),
    )


def _as_state(graph: GraphContent) -> GraphState:
    """Return the graph of a snapshot, also of one that was read from a file."""
    if isinstance(graph, GraphState):
        return graph
    return graph_of(graph.all_nodes(), graph.all_edges())
