"""History, undo, restore, `as_of` and diff, as functions over a bank.

Undo and restore append entries like any write, so they can be undone in turn and
nothing is lost. Undoing the last commit gives the digest from before it, exactly;
undoing an older one is refused when a later commit changed the same items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from memagent.core.answers import AsOf
from memagent.core.errors import MemoryNotFound, StoreError
from memagent.core.ops import Update
from memagent.core.records import ItemStatus, MemoryItem, NodeKind, SourceRef
from memagent.core.snapshot import (
    AppliedOp,
    Commit,
    Entry,
    GraphDelta,
    HistoryEntry,
    ItemChange,
    JournalRow,
    MemorySnapshot,
    Restored,
    SnapshotDiff,
)
from memagent.core.trials import TrialEnded
from memagent.memory.bank import MemoryBank
from memagent.state.adjacency import graph_delta_between, item_node
from memagent.state.fold import BankState, apply
from memagent.state.undoing import inverse
from memagent.state.versions import began

# -- history ---------------------------------------------------------------------------


async def history(bank: MemoryBank, item_id: str) -> tuple[HistoryEntry, ...]:
    """Return every change of an item, oldest first.

    Raises `MemoryNotFound` when the journal never held it.
    """
    state = await bank.sync()
    touched = state.touched.get(item_id)
    if not touched:
        raise MemoryNotFound(f"no memory {item_id!r} for user {bank.scope.user_id!r}")
    rows = [await _row(bank, seq) for seq in touched]
    return tuple(
        _history_entry(row, row.entry, item_id)
        for row in rows
        if row is not None and isinstance(row.entry, Commit | Restored)
    )


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


async def _row(bank: MemoryBank, seq: int) -> JournalRow | None:
    async for row in bank.rows(after=seq - 1):
        return row if row.seq == seq else None
    return None


# -- undo ------------------------------------------------------------------------------


async def undo(bank: MemoryBank, commit_id: str | None = None) -> Commit:
    """Take back a commit or a trial's report, by default the last one not yet undone.

    A report has the trial's id; it stands while a lesson of its trial does. Raises
    `MemoryNotFound`, or `StoreError` when later ones build on it.
    """
    await bank.sync()
    target = await _commit_to_undo(bank, commit_id)
    before = await bank.state_at(target.seq - 1)
    commit = target.entry
    assert isinstance(commit, Commit | TrialEnded)
    row = await bank.append(lambda state: inverse(state, before, commit))
    assert row is not None and isinstance(row.entry, Commit)
    return row.entry


async def adds_items(bank: MemoryBank, commit_id: str | None = None) -> bool:
    """Tell whether the commit that `undo` would take back brought an item into memory.

    Raises as `undo` does.
    """
    await bank.sync()
    target = await _commit_to_undo(bank, commit_id)
    if not isinstance(target.entry, Commit):
        return False
    before = (await bank.state_at(target.seq - 1)).items
    return any(
        change.after is not None
        and change.after.active
        and ((old := before.get(change.id)) is None or not old.active)
        for change in target.entry.changes
    )


async def _candidates(bank: MemoryBank) -> tuple[dict[str, JournalRow], set[str]]:
    """Return the rows that changed memory, by name, and the names of those undone."""
    undone: set[str] = set()
    candidates: dict[str, JournalRow] = {}
    async for row in bank.rows():
        entry = row.entry
        if isinstance(entry, TrialEnded):
            undone.discard(entry.trial.id)
            candidates[entry.trial.id] = row
        elif isinstance(entry, Commit):
            if entry.undoes is not None:
                undone.add(entry.undoes)
            if entry.changes or entry.stats or not entry.graph.empty:
                candidates[entry.id] = row
    return candidates, undone


async def _commit_to_undo(bank: MemoryBank, commit_id: str | None) -> JournalRow:
    candidates, undone = await _candidates(bank)
    if commit_id is None:
        commit_id = _last(candidates, undone)
        if commit_id is None:
            raise MemoryNotFound(f"nothing to undo for user {bank.scope.user_id!r}")
    if commit_id in undone:
        raise StoreError(f"commit {commit_id} was undone already; undo its undo to bring it back")
    if commit_id not in candidates:
        raise MemoryNotFound(
            f"no commit {commit_id!r} that changed memory for user {bank.scope.user_id!r}"
        )
    for name, row in candidates.items():
        lesson = isinstance(row.entry, Commit) and row.entry.source.session_id == commit_id
        if lesson and name not in undone:
            raise StoreError(f"cannot undo {commit_id}: its lesson {name} stands; undo that first")
    return candidates[commit_id]


def _last(candidates: Mapping[str, JournalRow], undone: set[str]) -> str | None:
    """Return the name of the last entry that is neither undone nor an undo."""
    newest = sorted(candidates.items(), key=lambda named: -named[1].seq)
    return next(
        (
            name
            for name, row in newest
            if name not in undone
            and not (isinstance(row.entry, Commit) and row.entry.undoes is not None)
        ),
        None,
    )


# -- restore ---------------------------------------------------------------------------


async def undelete(bank: MemoryBank, item_id: str) -> Commit:
    """Bring a deleted item back as a new version of its last text.

    Raises `MemoryNotFound` when there is no such tombstone.
    """

    def entry(state: BankState) -> Entry:
        item = state.items.get(item_id)
        if item is None or item.active:
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
            changes=(ItemChange(id=item_id, after=after),),
            graph=GraphDelta(nodes=(item_node(after),)),
            source=SourceRef(actor="user"),
        )

    row = await bank.append(entry)
    assert row is not None and isinstance(row.entry, Commit)
    return row.entry


async def restore_snapshot(bank: MemoryBank, snapshot: MemorySnapshot) -> None:
    """Make the memory equal to a snapshot, digest included, in one journal entry."""
    target = bank.at(snapshot).state
    await bank.append(lambda state: restoring_entry(state, target))


def restoring_entry(state: BankState, target: BankState) -> Restored:
    """Return the entry that turns one state into another."""
    gone = [
        ItemChange(id=item_id, after=None, archive=())
        for item_id in sorted(state.items)
        if item_id not in target.items
    ]
    changed = [
        ItemChange(id=item.id, after=item, archive=target.archive.get(item.id, ()))
        for item in sorted(target.items.values(), key=lambda item: item.id)
        if state.items.get(item.id) != item
        or state.archive.get(item.id, ()) != target.archive.get(item.id, ())
    ]
    return Restored(
        digest=target.digest(),
        changes=(*gone, *changed),
        graph=graph_delta_between(state.graph, target.graph),
        ordinals=tuple(
            (key, target.ordinals.get(key, 0))
            for key in _differing(state.ordinals, target.ordinals)
        ),
        stats=tuple((key, target.stats.get(key)) for key in _differing(state.stats, target.stats)),
        trials=tuple(
            (key, target.trials.get(key)) for key in _differing(state.trials, target.trials)
        ),
        done=tuple(
            (key, tuple(sorted(target.done.get(key, ()))))
            for key in _differing(state.done, target.done)
        ),
        sessions=tuple(
            session
            for key, session in target.sessions.items()
            if key not in state.sessions or len(session.turns) > len(state.sessions[key].turns)
        ),
    )


def _differing(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    return sorted(key for key in {*a, *b} if a.get(key) != b.get(key))


# -- as of -----------------------------------------------------------------------------


async def as_of(bank: MemoryBank, when: AsOf) -> MemoryBank:
    """Return a read-only bank at a point on each given axis of time.

    `recorded` replays the journal. `said` keeps, of every item, the last version said
    by then; undated ones always count. `valid` keeps the version that held at that
    moment: it begins when it began to hold, or else was said, and ends with the next
    version. Items that had expired by the moment (the first given of recorded, said,
    valid) are hidden.
    """
    state, recorded_at = await _recorded_state(bank, when.recorded)
    for moment, begins in ((when.said, _said), (when.valid, began)):
        if moment is not None:
            state = _filtered(state, moment, begins)
    return bank.showing(state, at=recorded_at or when.said or when.valid)


async def _recorded_state(
    bank: MemoryBank, recorded: datetime | int | None
) -> tuple[BankState, datetime | None]:
    """Return the state that the journal held then, and the moment.

    For a sequence number the moment is when its entry was recorded.
    """
    state = await bank.sync()
    if recorded is None:
        return state, None
    if isinstance(recorded, int):
        row = await _row(bank, recorded) if 0 < recorded <= state.seq else None
        return await bank.state_at(recorded), row.recorded_at if row is not None else None
    base = bank.base
    async for row in bank.rows(after=base.seq):
        if row.recorded_at > recorded:
            break
        base = apply(base, row)
    return base, recorded


def _said(item: MemoryItem) -> datetime | None:
    return item.said_at


def _filtered(
    state: BankState, moment: datetime, begins: Callable[[MemoryItem], datetime | None]
) -> BankState:
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
    return replace(apply(state, row), seq=seq)


# -- diff ------------------------------------------------------------------------------


def diff(before: MemorySnapshot, after: MemorySnapshot) -> SnapshotDiff:
    """Return the changes between two snapshots, items in order of id."""
    old = {item.id: item for item in before.items.values() if item.active}
    new = {item.id: item for item in after.items.values() if item.active}
    old_edges = {(e.source, e.target, e.key): e for e in before.graph.all_edges()}
    new_edges = {(e.source, e.target, e.key): e for e in after.graph.all_edges()}
    return SnapshotDiff(
        added=tuple(new[key] for key in sorted(new.keys() - old.keys())),
        removed=tuple(old[key] for key in sorted(old.keys() - new.keys())),
        changed=tuple(
            (old[key], new[key]) for key in sorted(old.keys() & new.keys()) if old[key] != new[key]
        ),
        edges_added=tuple(new_edges[key] for key in sorted(new_edges.keys() - old_edges.keys())),
        edges_removed=tuple(old_edges[key] for key in sorted(old_edges.keys() - new_edges.keys())),
    )
