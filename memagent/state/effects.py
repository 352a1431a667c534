"""What follows from ops: the effects of a batch on items, and the edges of the event
graph that need no model.

Pure. `plan_commit` re-checks every op against the state it will be applied to, because
another writer may have moved on since the ops were validated; what no longer fits is
rejected with a reason. Edges written in the same commit: MENTIONS (item to the people
and names in it), SUPERSEDES (an updated item to its old version; an added item to one
deleted by the same turn), SAME_AS (a restatement to the item that already said it),
BEFORE (to the nearest earlier and later item of the same subject).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from memagent.core.ops import Add, Delete, MemoryOp, Noop, OpBatch, Rejected, RejectReason, Update
from memagent.core.records import (
    Event,
    EventEdge,
    ItemStatus,
    MemoryItem,
    NodeKind,
    Relation,
    SourceRef,
    content_id,
)
from memagent.core.snapshot import AppliedOp, Commit, GraphDelta, ItemChange
from memagent.state.adjacency import GraphState
from memagent.state.fold import BankState, Mark, folded, mark_of, timeline_key

_NAME = re.compile(r"(?<![\w'’.-])[A-Z][\w’'-]*[a-z][\w-]*(?:\s+[A-Z][\w-]*[a-z][\w-]*){0,2}")
_SENTENCE_END = frozenset('.!?:;"“”\n')
_NOT_NAMES = frozenset(
    "i i'm i've i'd i'll monday tuesday wednesday thursday friday saturday sunday january february march april may june july august "
    "september october november december yes no ok okay thanks thank hey hi hello wow oh well sure".split()
)
_MAX_MENTIONS = 8
_LOOK_AROUND = 16


def names_in(text: str) -> list[str]:
    """Capitalised names inside sentences, in order, at most eight; a sentence's first
    word never counts.
    """
    found: list[str] = []
    for match in _NAME.finditer(text):
        name = match.group().removesuffix("'s").removesuffix("’s")
        before = text[max(0, match.start() - 4) : match.start()].rstrip(" \t\r")
        if folded(name) in _NOT_NAMES or not before or before[-1] in _SENTENCE_END:
            continue
        if name not in found:
            found.append(name)
    return found[:_MAX_MENTIONS]


def entity_id(name: str) -> str:
    """Node id of a named entity; case and white space do not count."""
    return content_id("ent", folded(name))


def version_node_id(item_id: str, version: int) -> str:
    """Node id of an item's old version."""
    return f"{item_id}@{version}"


@dataclass(slots=True)
class _Draft:
    """A commit in the making: what has been decided so far in this batch."""

    state: BankState
    source: SourceRef
    commit_id: str
    items: dict[str, MemoryItem] = field(default_factory=dict[str, MemoryItem])
    ordinals: dict[str, int] = field(default_factory=dict[str, int])
    applied: list[AppliedOp] = field(default_factory=list[AppliedOp])
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    changes: list[ItemChange] = field(default_factory=list[ItemChange])
    restated: list[tuple[str, Noop]] = field(default_factory=list[tuple[str, Noop]])
    events: dict[str, tuple[Event, Event]] = field(default_factory=dict[str, tuple[Event, Event]])
    """Changed events: (before, after)."""

    def item(self, item_id: str) -> MemoryItem | None:
        return self.items.get(item_id) or self.state.items.get(item_id)

    def event(self, node_id: str) -> Event | None:
        if node_id in self.events:
            return self.events[node_id][1]
        node = self.state.graph.node(node_id)
        return (
            node if node is not None and node.kind is NodeKind.EVENT and not node.closed else None
        )

    def said_at(self, turn_ids: Iterable[str]) -> datetime | None:
        dates: list[datetime] = []
        for turn_id in turn_ids:
            turn = self.state.turn(turn_id)
            if turn is not None:
                session = self.state.sessions[self.state.turns[turn_id][0]]
                if (date := session.date_of(turn)) is not None:
                    dates.append(date)
        return max(dates, default=None)

    def put(self, item: MemoryItem, op: MemoryOp) -> None:
        self.items[item.id] = item
        self.changes.append(ItemChange(id=item.id, after=item))
        self.applied.append(
            AppliedOp(op_id=item.op_id, op=op, item_id=item.id, version=item.version)
        )


def plan_commit(state: BankState, batch: OpBatch, *, source: SourceRef, commit_id: str) -> Commit:
    """The commit that carries out a batch on this state.

    Never raises for what ops say; unfit ops come back rejected.
    """
    draft = _Draft(state=state, source=source, commit_id=commit_id, rejected=list(batch.rejected))
    for index, op in enumerate(batch.accepted):
        reason = _carry_out(draft, op, op_id=f"{commit_id}.{index}")
        if reason is not None:
            draft.rejected.append(Rejected(op=op, reason=reason[0], detail=reason[1]))
    return Commit(
        id=commit_id,
        ops=tuple(draft.applied),
        rejected=tuple(draft.rejected),
        changes=tuple(draft.changes),
        graph=_edges_of(draft),
        ordinals=tuple(draft.ordinals.items()),
        source=source,
    )


def _carry_out(draft: _Draft, op: MemoryOp, *, op_id: str) -> tuple[RejectReason, str] | None:
    match op:
        case Add():
            return _add(draft, op, op_id)
        case Noop():
            if op.id is not None and op.fact is not None and draft.item(op.id) is not None:
                draft.restated.append((op_id, op))
            draft.applied.append(AppliedOp(op_id=op_id, op=op, item_id=op.id))
            return None
        case Update() | Delete():
            old = draft.item(op.id)
            if old is None and (event := draft.event(op.id)) is not None:
                return _change_event(draft, op, event, op_id)
            if old is None or not old.active:
                return RejectReason.UNKNOWN_ID, f"{op.id} is not in memory now"
            if op.id in draft.items:
                return RejectReason.DUPLICATE_TARGET, f"another op of this batch changes {op.id}"
            if op.version is not None and op.version != old.version:
                return (
                    RejectReason.STALE_VERSION,
                    f"{op.id} is at version {old.version}, the op saw {op.version}",
                )
            draft.put(
                _updated(draft, old, op, op_id)
                if isinstance(op, Update)
                else _deleted(draft, old, op, op_id),
                op,
            )
            return None


def event_version(graph: GraphState, node_id: str) -> int:
    """Version of an event: one more than the older versions it supersedes."""
    return 1 + sum(
        1
        for _, edge, leaving in graph.edges_of(node_id)
        if leaving and edge.relation is Relation.SUPERSEDES
    )


def event_as_item(graph: GraphState, event: Event) -> MemoryItem | None:
    """An event as the thing an op may target; None for nodes that are not open events
    or say nothing.
    """
    if event.kind is not NodeKind.EVENT or event.closed or not event.summary:
        return None
    return MemoryItem(
        id=event.id,
        version=event_version(graph, event.id),
        text=event.summary,
        kind="event",
        subject=event.people[0] if event.people else None,
        source_turn_ids=event.source_turn_ids,
        session_id=event.session_id,
        valid=event.valid,
        said_at=event.said_at,
    )


def _change_event(
    draft: _Draft, op: Update | Delete, event: Event, op_id: str
) -> tuple[RejectReason, str] | None:
    version = event_version(draft.state.graph, op.id)
    if op.id in draft.events:
        return RejectReason.DUPLICATE_TARGET, f"another op of this batch changes {op.id}"
    if op.version is not None and op.version != version:
        return (
            RejectReason.STALE_VERSION,
            f"{op.id} is at version {version}, the op saw {op.version}",
        )
    sources = tuple(dict.fromkeys((*event.source_turn_ids, *op.source_turn_ids)))
    changes: dict[str, object] = {"source_turn_ids": sources}
    if isinstance(op, Update):
        changes |= {
            "summary": op.text[:4_000],
            "valid": op.valid or event.valid,
            "said_at": draft.said_at(sources) or event.said_at,
        }
    else:
        changes |= {"closed": True}
    draft.events[op.id] = (event, event.model_copy(update=changes))
    draft.applied.append(AppliedOp(op_id=op_id, op=op, item_id=op.id))
    return None


def _add(draft: _Draft, op: Add, op_id: str) -> tuple[RejectReason, str] | None:
    fact = op.fact
    key = "\x1f".join(fact.source_turn_ids)
    ordinal = draft.ordinals.get(key, draft.state.ordinals.get(key, 0))
    item_id = op.id or content_id("mem", *fact.source_turn_ids, str(ordinal))
    if draft.item(item_id) is not None:
        return RejectReason.DUPLICATE_TARGET, f"{item_id} exists already"
    if op.id is None:
        draft.ordinals[key] = ordinal + 1
    session = draft.state.turns.get(fact.source_turn_ids[-1]) if fact.source_turn_ids else None
    draft.put(
        MemoryItem(
            id=item_id,
            text=fact.text,
            kind=fact.kind,
            subject=fact.subject,
            speaker=fact.speaker,
            source_turn_ids=fact.source_turn_ids,
            session_id=session[0] if session else draft.source.session_id,
            op_id=op_id,
            valid=fact.valid,
            said_at=fact.said_at or draft.said_at(fact.source_turn_ids),
            trust=fact.trust,
            tags=op.tags,
            metadata=dict(sorted(op.metadata.items())),
            expires_at=fact.expires_at,
        ),
        op,
    )
    return None


def _updated(draft: _Draft, old: MemoryItem, op: Update, op_id: str) -> MemoryItem:
    sources = op.source_turn_ids or draft.source.turn_ids
    dates = [date for date in (old.said_at, draft.said_at(op.source_turn_ids)) if date is not None]
    trusts = [turn.trust for turn_id in sources if (turn := draft.state.turn(turn_id)) is not None]
    return old.model_copy(
        update={
            "version": old.version + 1,
            "text": op.text,
            "source_turn_ids": tuple(dict.fromkeys((*old.source_turn_ids, *op.source_turn_ids))),
            "op_id": op_id,
            "valid": op.valid or (old.valid if old.kind == "event" else None),
            "said_at": max(dates, default=None),
            "trust": max([old.trust, *trusts], key=lambda trust: trust.rank),
            "embedding_missing": False,
        }
    )


def _deleted(draft: _Draft, old: MemoryItem, op: Delete, op_id: str) -> MemoryItem:
    dates = [date for date in (old.said_at, draft.said_at(op.source_turn_ids)) if date is not None]
    return old.model_copy(
        update={
            "version": old.version + 1,
            "source_turn_ids": tuple(dict.fromkeys((*old.source_turn_ids, *op.source_turn_ids))),
            "op_id": op_id,
            "said_at": max(dates, default=None),
            "status": ItemStatus.DELETED,
        }
    )


# -- edges that follow from ops --------------------------------------------------------


@dataclass(slots=True)
class _Edges:
    nodes: dict[str, Event] = field(default_factory=dict[str, Event])
    edges: dict[tuple[str, str, str], EventEdge] = field(
        default_factory=dict[tuple[str, str, str], EventEdge]
    )
    removed: dict[tuple[str, str, str], None] = field(
        default_factory=dict[tuple[str, str, str], None]
    )

    def link(
        self, source: str, target: str, relation: Relation, evidence: Sequence[str] = ()
    ) -> None:
        edge = EventEdge(
            source=source, target=target, relation=relation, evidence_turn_ids=tuple(evidence)
        )
        key = (source, target, edge.key)
        self.removed.pop(key, None)
        self.edges[key] = edge

    def unlink(self, edge: EventEdge) -> None:
        key = (edge.source, edge.target, edge.key)
        self.edges.pop(key, None)
        self.removed[key] = None


def item_node(item: MemoryItem, *, node_id: str | None = None, closed: bool = False) -> Event:
    """The graph node that stands for an item (or, closed, for an old version of it)."""
    return Event(
        id=node_id or item.id,
        kind=NodeKind.ITEM,
        summary=item.text[:240],
        people=tuple(dict.fromkeys(name for name in (item.subject, item.speaker) if name)),
        source_turn_ids=item.source_turn_ids,
        valid=item.valid,
        said_at=item.said_at,
        session_id=item.session_id,
        closed=closed or not item.active,
    )


def _edges_of(draft: _Draft) -> GraphDelta:
    work = _Edges()
    timelines: dict[str, list[Mark]] = {}
    for change in draft.changes:
        item = draft.items[change.id]
        old = draft.state.items.get(change.id)
        work.nodes[item.id] = item_node(item)
        if old is not None:
            _supersede_version(work, old, item)
            _forget_times(work, draft.state, old, timelines)
        if item.active:
            _mention(work, draft.state, item)
            _place_in_time(work, draft.state, item, timelines)
    for node_id, (before, after) in draft.events.items():
        work.nodes[node_id] = after
        if not after.closed:
            past_id = version_node_id(node_id, event_version(draft.state.graph, node_id))
            work.nodes[past_id] = before.model_copy(update={"id": past_id, "closed": True})
            work.link(node_id, past_id, Relation.SUPERSEDES, after.source_turn_ids)
    _supersede_deleted(work, draft)
    for op_id, noop in draft.restated:
        _restate(work, draft, op_id, noop)
    return GraphDelta(
        nodes=tuple(work.nodes.values()),
        edges=tuple(work.edges.values()),
        removed_edges=tuple(work.removed),
        session_id=draft.source.session_id,
    )


def _supersede_version(work: _Edges, old: MemoryItem, item: MemoryItem) -> None:
    if item.active:
        past_id = version_node_id(old.id, old.version)
        work.nodes[past_id] = item_node(old, node_id=past_id, closed=True)
        work.link(item.id, past_id, Relation.SUPERSEDES, item.source_turn_ids)


def _supersede_deleted(work: _Edges, draft: _Draft) -> None:
    """A turn that takes one item out and puts another in replaces the one by the other."""
    deleted = [(a.op, a.item_id) for a in draft.applied if isinstance(a.op, Delete) and a.item_id]
    for applied in draft.applied:
        if not isinstance(applied.op, Add) or applied.item_id is None:
            continue
        sources = set(applied.op.fact.source_turn_ids)
        for op, gone in deleted:
            if sources & set(op.source_turn_ids):
                work.link(
                    applied.item_id,
                    gone,
                    Relation.SUPERSEDES,
                    sorted(sources & set(op.source_turn_ids)),
                )


def _mention(work: _Edges, state: BankState, item: MemoryItem) -> None:
    names = dict.fromkeys(name for name in (item.subject, item.speaker) if name)
    names.update(dict.fromkeys(names_in(item.text)))
    wanted: dict[str, str] = {}
    for name in names:
        wanted.setdefault(entity_id(name), name)
    for _, edge, leaving in state.graph.edges_of(item.id):
        if leaving and edge.relation is Relation.MENTIONS and edge.target not in wanted:
            work.unlink(edge)
    for node_id, name in list(wanted.items())[:_MAX_MENTIONS]:
        if state.graph.node(node_id) is None and node_id not in work.nodes:
            work.nodes[node_id] = Event(id=node_id, kind=NodeKind.ENTITY, summary=name[:240])
        if state.graph.edge(item.id, node_id, "mentions") is None:
            work.link(item.id, node_id, Relation.MENTIONS, item.source_turn_ids)


def _timeline(state: BankState, key: str, timelines: dict[str, list[Mark]]) -> list[Mark]:
    if key not in timelines:
        timelines[key] = list(state.timelines.get(key, ()))
    return timelines[key]


def _neighbours(marks: list[Mark], mark: Mark) -> tuple[str | None, str | None]:
    """Nearest item that ends before the mark starts, and nearest that starts after it ends."""
    at = bisect_left(marks, mark)
    before = next(
        (m[2] for m in reversed(marks[max(0, at - _LOOK_AROUND) : at]) if m[1] <= mark[0]), None
    )
    after = next((m[2] for m in marks[at : at + _LOOK_AROUND] if m[0] >= mark[1]), None)
    return before, after


def _place_in_time(
    work: _Edges, state: BankState, item: MemoryItem, timelines: dict[str, list[Mark]]
) -> None:
    key, mark = timeline_key(item), mark_of(item)
    if key is None or mark is None:
        return
    marks = _timeline(state, key, timelines)
    before, after = _neighbours(marks, mark)
    if before is not None:
        work.link(before, item.id, Relation.BEFORE, item.source_turn_ids)
    if after is not None:
        work.link(item.id, after, Relation.BEFORE, item.source_turn_ids)
    marks.insert(bisect_left(marks, mark), mark)


def _forget_times(
    work: _Edges, state: BankState, old: MemoryItem, timelines: dict[str, list[Mark]]
) -> None:
    """Take an item's old version off its timeline and close the gap it leaves."""
    key, mark = timeline_key(old), mark_of(old)
    if key is None or mark is None or not old.active:
        return
    marks = _timeline(state, key, timelines)
    if mark in marks:
        marks.remove(mark)
    for _, edge, _ in state.graph.edges_of(old.id):
        if edge.relation is Relation.BEFORE:
            work.unlink(edge)
    before, after = _neighbours(marks, mark)
    if before is not None and after is not None:
        work.link(before, after, Relation.BEFORE)


def _restate(work: _Edges, draft: _Draft, op_id: str, noop: Noop) -> None:
    fact, item_id = noop.fact, noop.id
    if fact is None or item_id is None or not fact.source_turn_ids:
        return
    item = draft.item(item_id)
    if item is None or set(fact.source_turn_ids) <= set(item.source_turn_ids):
        return
    node_id = content_id("evt", item_id, *fact.source_turn_ids, fact.text)
    work.nodes[node_id] = Event(
        id=node_id,
        summary=fact.text[:240],
        people=tuple(name for name in (fact.subject, fact.speaker) if name),
        source_turn_ids=fact.source_turn_ids,
        valid=fact.valid,
        said_at=draft.said_at(fact.source_turn_ids),
        session_id=draft.source.session_id,
    )
    if draft.state.graph.node(item_id) is None and item_id not in work.nodes:
        work.nodes[item_id] = item_node(item)
    work.link(node_id, item_id, Relation.SAME_AS, fact.source_turn_ids)
