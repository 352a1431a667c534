"""Undo: finding what to take back from the end of the log, and taking it back.

What is older than the entry asked for is not read, but for a trial's report: a lesson may
be older than the last report of its trial, so a trial is followed to its start. Undo
appends an entry like any write, so it can be undone in turn. Undoing the last commit
gives the digest from before it, exactly; undoing an older one is refused when a later
commit changed the same items.

Changes that were kept aside for review, because what they rest on is trusted too little.

The journal keeps every refused op beside the accepted ones, so nothing is stored twice:
the list is read from the journal, and a review is a commit that names what it settles.

The traces of one source: what it touched, and how to take that back.

A memory rests on a source if one of its versions cites a turn of the source. Taking back
is one commit, so it can be undone like any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final

from memagent.core.errors import InputError, MemoryNotFound, StoreError, VersionConflict, check_id
from memagent.core.long_work import aside, is_large
from memagent.core.ops import Delete, OpBatch, RejectReason, Update
from memagent.core.records import ItemStatus, MemoryItem, NodeKind, SourceRef, Turn
from memagent.core.snapshot import (
    AppliedOp,
    Commit,
    Entry,
    ItemChange,
    JournalRow,
    Quarantined,
    SourceFilter,
    Touched,
)
from memagent.core.trials import TrialEnded, TrialStarted
from memagent.memory.bank import MemoryBank
from memagent.state.adjacency import item_node
from memagent.state.effects import plan_commit
from memagent.state.fold import BankState
from memagent.state.versions import inverse

_FIRST_WINDOW: Final = 16
# Rows of the log that are read at once on the way back.
_MOST_WINDOW: Final = 1_024


async def undo(bank: MemoryBank, commit_id: str | None = None) -> Commit:
    """Take back a commit or a trial's report, by default the last one not yet undone.

    A report has the trial's id; it stands while a lesson of its trial does. Raises
    `MemoryNotFound`, `InputError`, or `StoreError` when later ones build on it.
    """
    if commit_id is not None:
        check_id("commit", commit_id)
    await bank.sync()
    target = await _commit_to_undo(bank, commit_id)
    before = await bank.log.state_at(target.seq - 1)
    commit = target.entry
    assert isinstance(commit, Commit | TrialEnded)
    large = is_large((commit,)) or (isinstance(commit, Commit) and commit.cleared is not None)
    return await bank.record(lambda state: inverse(state, before, commit), large=large)


async def adds_items(bank: MemoryBank, commit_id: str | None = None) -> bool:
    """Tell whether the commit that `undo` would take back brought an item into memory.

    Raises as `undo` does.
    """
    await bank.sync()
    target = await _commit_to_undo(bank, commit_id)
    if not isinstance(target.entry, Commit):
        return False
    before = (await bank.log.state_at(target.seq - 1)).items
    return any(
        change.after is not None
        and change.after.active
        and ((old := before.get(change.id)) is None or not old.active)
        for change in target.entry.changes
    )


async def _newest_first(bank: MemoryBank) -> AsyncIterator[JournalRow]:
    """Yield the rows of the log, the newest first, a window of them at a time."""
    end, size = bank.state.seq, _FIRST_WINDOW
    while end > bank.log.base.seq:
        start = max(bank.log.base.seq, end - size)
        window: list[JournalRow] = []
        async for row in bank.rows(after=start):
            if row.seq > end:
                break
            window.append(row)
        for row in reversed(window):
            yield row
            if row.entry.kind == "erased":
                return
        end, size = start, min(4 * size, _MOST_WINDOW)


def _undoable(entry: Entry) -> str | None:
    """Return the name of an entry that changed memory, None for any other."""
    if isinstance(entry, TrialEnded):
        return entry.trial.id
    if not isinstance(entry, Commit):
        return None
    changed = entry.changes or entry.stats or not entry.graph.empty or entry.cleared is not None
    return entry.id if changed else None


@dataclass(slots=True)
class _Search:
    """The way back through a log, as far as it was gone."""

    name: str | None
    """What to undo; None for the last entry that is neither undone nor an undo."""
    found: JournalRow | None = None
    undone: set[str] = field(default_factory=set[str])
    reported: set[str] = field(default_factory=set[str])

    def over(self, row: JournalRow) -> bool:
        """Look at the row before those seen so far; tell whether it is the last to look at.

        Raises `StoreError` for a lesson of the trial to undo that stands.
        """
        entry, name = row.entry, _undoable(row.entry)
        if name is not None and self.found is None and self._is_asked_for(entry, name):
            self.found, self.name = row, name
        elif name is not None and isinstance(entry, Commit):
            self._refuse_lesson(entry)
        if isinstance(entry, TrialEnded):
            self.reported.add(entry.trial.id)
        elif isinstance(entry, Commit) and entry.undoes is not None:
            self.undone |= {entry.undoes} - self.reported
        if self.found is None:
            return False
        begun = isinstance(entry, TrialStarted) and entry.trial.id == self.name
        return begun or isinstance(self.found.entry, Commit) or self.name in self.undone

    def _is_asked_for(self, entry: Entry, name: str) -> bool:
        if self.name is not None:
            return name == self.name
        undo = isinstance(entry, Commit) and entry.undoes is not None
        return not undo and name not in self.undone

    def _refuse_lesson(self, entry: Commit) -> None:
        of_it = self.name is not None and entry.source.session_id == self.name
        if of_it and entry.id not in self.undone:
            raise StoreError(
                f"cannot undo {self.name}: its lesson {entry.id} stands; undo that first"
            )


async def _commit_to_undo(bank: MemoryBank, commit_id: str | None) -> JournalRow:
    search = _Search(commit_id)
    async for row in _newest_first(bank):
        if search.over(row):
            break
    if search.name is None:
        raise MemoryNotFound(f"nothing to undo for user {bank.scope.user_id!r}")
    if search.name in search.undone:
        raise StoreError(f"commit {commit_id} was undone already; undo its undo to bring it back")
    if search.found is None:
        raise MemoryNotFound(
            f"no commit {commit_id!r} that changed memory for user {bank.scope.user_id!r}"
        )
    return search.found


_ACTOR = "review"


async def quarantined(bank: MemoryBank) -> list[Quarantined]:
    """Return the changes that wait for review, oldest first."""
    state = await bank.sync()
    waiting: dict[str, Quarantined] = {}
    async for row in bank.rows():
        entry = row.entry
        if not isinstance(entry, Commit):
            continue
        for name in entry.reviewed:
            waiting.pop(name, None)
        for number, refused in enumerate(entry.rejected):
            if refused.reason is RejectReason.LOW_TRUST and isinstance(refused.op, Update | Delete):
                name = f"{entry.id}.q{number}"
                waiting[name] = Quarantined(
                    id=name,
                    seq=row.seq,
                    recorded_at=row.recorded_at,
                    op=refused.op,
                    detail=refused.detail,
                    item=state.items.get(refused.op.id),
                    source=entry.source,
                )
    return list(waiting.values())


async def accept(bank: MemoryBank, name: str) -> Commit:
    """Carry out a quarantined change as a person's own decision.

    The memory keeps its trust: whoever accepts vouches for the words. Raises
    `MemoryNotFound`, `InputError` for a memory that is gone, and `VersionConflict` when
    the memory changed after the proposal.
    """
    waiting = await _find(bank, name)
    op = waiting.op
    assert isinstance(op, Update | Delete)

    def entry(state: BankState) -> Commit:
        touched = state.touched.get(op.id, ())
        item = state.items.get(op.id)
        if item is None or not item.active:
            raise InputError(f"{op.id} is not in memory any more; refuse the change")
        if touched and touched[-1] > waiting.seq:
            raise VersionConflict(
                f"{op.id} was changed after this was proposed; refuse it, or edit the memory",
                expected=waiting.seq,
                actual=touched[-1],
            )
        settled = op.model_copy(
            update={
                "source_turn_ids": (),
                "version": None,
                "reason": f"accepted in review ({name})",
            }
        )
        batch, source = OpBatch(accepted=(settled,)), SourceRef(actor=_ACTOR)
        commit = plan_commit(state, batch, source=source)
        if commit.rejected:
            raise InputError(commit.rejected[0].detail)
        return commit.model_copy(update={"reviewed": (name,)})

    return await bank.record(entry, large=True)


async def refuse(bank: MemoryBank, name: str) -> Commit:
    """Settle a quarantined change without carrying it out. Raises `MemoryNotFound`."""
    await _find(bank, name)

    def entry(state: BankState) -> Commit:
        source = SourceRef(actor=_ACTOR)
        return Commit(id=f"c{state.seq + 1}", source=source, reviewed=(name,))

    return await bank.record(entry, large=True)


async def _find(bank: MemoryBank, name: str) -> Quarantined:
    for waiting in await quarantined(bank):
        if waiting.id == name:
            return waiting
    raise MemoryNotFound(f"no change {name!r} waits for review for user {bank.scope.user_id!r}")


_SOURCES_ACTOR = "forensics"


async def touched_by(bank: MemoryBank, source: SourceFilter) -> list[Touched]:
    """Return every memory that rests on a source, deleted ones included, in order of id.

    Raises `InputError` for a filter that names nothing.
    """
    return await aside(_touched, await bank.sync(), source)


async def exclude(bank: MemoryBank, source: SourceFilter) -> Commit | None:
    """Delete every memory that rests on a source, in one commit; None when there is none.

    Events that rest on nothing else are closed. The turns stay; `erase_session` takes
    out those too.
    """

    def entry(state: BankState) -> Commit | None:
        items = [touched.item for touched in _touched(state, source)]
        return _taking_back(state, source, [item for item in items if item.active], ())

    return await bank.record(entry, large=True)


async def roll_back(bank: MemoryBank, source: SourceFilter) -> Commit | None:
    """Set every memory that rests on a source back to before the source touched it.

    A memory that the source made is deleted; one that it deleted comes back. One commit;
    None when there is nothing to do.
    """

    def entry(state: BankState) -> Commit | None:
        made: list[MemoryItem] = []
        changed: list[tuple[MemoryItem, MemoryItem]] = []
        for touched in _touched(state, source):
            clean = next(
                (old for old in state.versions(touched.item.id) if old.version == touched.clean),
                None,
            )
            if clean is not None:
                changed.append((touched.item, clean))
            elif touched.item.active:
                made.append(touched.item)
        return _taking_back(state, source, made, changed)

    return await bank.record(entry, large=True)


def turns_of(state: BankState, source: SourceFilter) -> dict[str, Turn]:
    """Return the stored turns that a filter names, by id. Raises `InputError` if it is empty."""
    if source == SourceFilter():
        raise InputError("name a session, a turn, a speaker or a trust")
    sessions = state.sessions.values()
    if source.turn_ids or source.session_ids:
        places = (state.turns.get(turn_id) for turn_id in source.turn_ids)
        named = {place[0] for place in places if place} if source.turn_ids else source.session_ids
        sessions = [session for name in sorted(named) if (session := state.sessions.get(name))]
    return {
        turn.id: turn
        for session in sessions
        if not source.session_ids or session.id in source.session_ids
        for turn in session.turns
        if (not source.turn_ids or turn.id in source.turn_ids)
        and (not source.speakers or turn.speaker in source.speakers)
        and (not source.trusts or turn.trust in source.trusts)
    }


def _touched(state: BankState, source: SourceFilter) -> list[Touched]:
    turns = turns_of(state, source)
    found: list[Touched] = []
    for name in _resting_on(state, turns):
        item = state.items.get(name)
        if item is None:  # an event
            continue
        versions = state.versions(item.id)
        dirty = [v for v in versions if not turns.keys().isdisjoint(v.source_turn_ids)]
        before = [v.version for v in versions if v.version < dirty[0].version and v.active]
        cited = (name for v in dirty for name in v.source_turn_ids if name in turns)
        found.append(
            Touched(
                item=item,
                versions=tuple(v.version for v in dirty),
                clean=before[-1] if before else None,
                turn_ids=tuple(dict.fromkeys(cited)),
            )
        )
    return found


def _resting_on(state: BankState, turn_ids: Iterable[str]) -> list[str]:
    """Return the sorted ids of the items and events that rest on any of some turns."""
    keys, found = state.orders.by("source", state), set[str]()
    for turn_id in turn_ids:
        for turn, name in keys.since((turn_id, "")):
            if turn != turn_id:
                break
            found.add(name)
    return sorted(found)


def _taking_back(
    state: BankState,
    source: SourceFilter,
    gone: Iterable[MemoryItem],
    changed: Iterable[tuple[MemoryItem, MemoryItem]],
) -> Commit | None:
    """Return the commit that deletes some items and sets others back to a version."""
    batch = OpBatch(accepted=tuple(Delete(id=item.id, reason=_SOURCES_ACTOR) for item in gone))
    ref = SourceRef(actor=_SOURCES_ACTOR)
    commit = plan_commit(state, batch, source=ref)
    changes, ops, nodes = list(commit.changes), list(commit.ops), list(commit.graph.nodes)
    for item, clean in changed:
        op_id = f"{commit.id}.{len(ops)}"
        update = {"version": item.version + 1, "status": ItemStatus.ACTIVE, "op_id": op_id}
        after = clean.model_copy(update=update)
        op = Update(id=item.id, text=after.text, valid=after.valid, reason=_SOURCES_ACTOR)
        ops.append(AppliedOp(op_id=op_id, op=op, item_id=item.id, version=after.version))
        changes.append(ItemChange(id=item.id, after=after))
        nodes.append(item_node(after))
    turns = turns_of(state, source)
    for name in _resting_on(state, turns):  # open events that rest on nothing else are closed
        node = state.graph.node(name)
        if node is None or node.kind is not NodeKind.EVENT or node.closed:
            continue
        if turns.keys() >= set(node.source_turn_ids):
            nodes.append(node.model_copy(update={"closed": True}))
    if not changes and not nodes:
        return None
    graph = commit.graph.model_copy(update={"nodes": tuple(nodes)})
    return commit.model_copy(update={"changes": tuple(changes), "ops": tuple(ops), "graph": graph})
