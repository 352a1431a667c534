"""The traces of one source: what it touched, and how to take that back.

A memory rests on a source if one of its versions cites a turn of the source. Taking back
is one commit, so it can be undone like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memagent.core.errors import InputError
from memagent.core.ops import Delete, OpBatch, Update
from memagent.core.records import Event, ItemStatus, MemoryItem, NodeKind, SourceRef, Turn
from memagent.core.reports import SourceFilter, Touched
from memagent.core.snapshot import AppliedOp, Commit, ItemChange
from memagent.memory.bank import MemoryBank
from memagent.state.adjacency import item_node
from memagent.state.effects import plan_commit
from memagent.state.fold import BankState

_ACTOR = "forensics"


async def touched_by(bank: MemoryBank, source: SourceFilter) -> list[Touched]:
    """Return every memory that rests on a source, deleted ones included, in order of id.

    Raises `InputError` for a filter that names nothing.
    """
    return _touched(await bank.sync(), source)


async def exclude(bank: MemoryBank, source: SourceFilter) -> Commit | None:
    """Delete every memory that rests on a source, in one commit; None when there is none.

    Events that rest on nothing else are closed. The turns stay; `erase_session` takes
    out those too.
    """

    def entry(state: BankState) -> Commit | None:
        items = [touched.item for touched in _touched(state, source)]
        return _taking_back(state, source, [item for item in items if item.active], ())

    return await _appended(bank, entry)


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

    return await _appended(bank, entry)


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
    keys, found = state.orders.by_source(state, state.graph), set[str]()
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
    batch = OpBatch(accepted=tuple(Delete(id=item.id, reason=_ACTOR) for item in gone))
    commit_id = f"c{state.seq + 1}"
    ref = SourceRef(actor=_ACTOR)
    commit = plan_commit(state, batch, source=ref, commit_id=commit_id)
    changes, ops, nodes = list(commit.changes), list(commit.ops), list(commit.graph.nodes)
    for item, clean in changed:
        op_id = f"{commit_id}.{len(ops)}"
        update = {"version": item.version + 1, "status": ItemStatus.ACTIVE, "op_id": op_id}
        after = clean.model_copy(update=update)
        op = Update(id=item.id, text=after.text, valid=after.valid, reason=_ACTOR)
        ops.append(AppliedOp(op_id=op_id, op=op, item_id=item.id, version=after.version))
        changes.append(ItemChange(id=item.id, after=after))
        nodes.append(item_node(after))
    nodes += _closed_events(state, source)
    if not changes and not nodes:
        return None
    graph = commit.graph.model_copy(update={"nodes": tuple(nodes)})
    return commit.model_copy(update={"changes": tuple(changes), "ops": tuple(ops), "graph": graph})


def _closed_events(state: BankState, source: SourceFilter) -> list[Event]:
    """Return the open events that rest on nothing but the source, closed."""
    turns = turns_of(state, source)
    return [
        node.model_copy(update={"closed": True})
        for name in _resting_on(state, turns)
        if (node := state.graph.node(name)) is not None
        and node.kind is NodeKind.EVENT
        and not node.closed
        and turns.keys() >= set(node.source_turn_ids)
    ]


async def _appended(bank: MemoryBank, entry: Callable[[BankState], Commit | None]) -> Commit | None:
    row = await bank.append(entry)
    return row.entry if row is not None and isinstance(row.entry, Commit) else None
