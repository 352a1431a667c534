"""The effects of a batch of ops: changed items, and the edges that need no model.

Pure. `plan_commit` re-checks every op against the state it will be applied to, because
another writer may have moved on since the ops were validated; what no longer fits is
rejected with a reason. Edges written in the same commit: MENTIONS (item to the people
and names in it), SUPERSEDES (an updated item to its old version; an added item to one
deleted by the same turn), SAME_AS (a restatement to the item that already said it),
BEFORE (to the nearest earlier and later item of the same subject).

The words of the keyword arm stand here too: a Unicode tokeniser with stemming, and the
BM25 formula. Tokens are case-folded, NFKC-normalised runs of letters and digits. Runs
in scripts written without spaces (Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar) become
overlapping pairs of characters, so they can be found without a dictionary. Latin words
are stemmed by Snowball's English rules; other scripts are left as they are. BM25 is
Lucene's variant (Robertson and Zaragoza 2009, idf never negative). It is scored here
and not by a library because a library's index is built once, while a memory changes by
one item and is forked a thousand times; the tests hold it equal to `bm25s` on the same
tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any

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
    lowest_trust,
)
from memagent.core.snapshot import AppliedOp, Commit, GraphDelta, ItemChange
from memagent.state.adjacency import event_version, item_node, version_node_id
from memagent.state.fold import NO_MARKS, BankState, Mark, folded, place_in_time
from memagent.state.orders import SortedSet

K1 = 1.2
"""Term-frequency saturation."""
B = 0.75
"""Length normalisation."""

# Longest line whose terms are remembered.
_REMEMBERED_CHARS = 1_000
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?", re.UNICODE)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+"
)
POSSESSIVE = re.compile(r"['’]s?$")
_STOP = frozenset(
    "a an and are as at be been but by did do does for from had has have he her hers him his i "
    "if in into is it its me my of on or our ours she so that the their theirs them then there "
    "these they this those to us was we were what when where which who whom why will with would "
    "you your yours how am being can could just not".split()
)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import Stemmer  # PyStemmer: Snowball's compiled stemmers

    return Stemmer.Stemmer("english")


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word)) if word.isascii() and not word.isdigit() else word


def tokenize(text: str, *, keep_stop_words: bool = False) -> list[str]:
    """Return the index terms of a text in order, repeats kept; [] without any.

    It goes line by line and remembers the lines seen lately: the turns that an item is
    indexed with come again with every item near them.
    """
    terms: list[str] = []
    for line in text.split("\n"):
        read = _known_terms if len(line) <= _REMEMBERED_CHARS else _terms_of
        terms += read(line, keep_stop_words)
    return terms


def _terms_of(text: str, keep_stop_words: bool) -> tuple[str, ...]:
    folded = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    terms: list[str] = []
    word: str
    for word in WORD.findall(folded):
        if not word.isascii() and (runs := _UNSPACED.findall(word)):
            for run in runs:
                terms.extend(run[i : i + 2] for i in range(max(1, len(run) - 1)))
            if not (word := _UNSPACED.sub("", word)):
                continue
        if "'" in word or "’" in word:
            word = POSSESSIVE.sub("", word).replace("'", "").replace("’", "")
        if keep_stop_words or word not in _STOP:
            terms.append(_stem(word))
    return tuple(terms)


_known_terms = lru_cache(maxsize=8_192)(_terms_of)


def stems(text: str) -> frozenset[str]:
    """Return the distinct index terms of a text, stop words included."""
    return frozenset(tokenize(text, keep_stop_words=True))


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query.

    Stop words count only when the query has nothing else.
    """
    return list(dict.fromkeys(tokenize(text) or tokenize(text, keep_stop_words=True)))


_NAME = re.compile(r"(?<![\w'’.-])[A-Z][\w’'-]*[a-z][\w-]*(?:\s+[A-Z][\w-]*[a-z][\w-]*){0,2}")
_SENTENCE_END = frozenset('.!?:;"“”\n')
_NOT_NAMES = frozenset(
    "i i'm i've i'd i'll monday tuesday wednesday thursday friday saturday sunday january"
    " february march april may june july august september october november december yes no ok"
    " okay thanks thank hey hi hello wow oh well sure".split()
)
_MAX_MENTIONS = 8
_LOOK_AROUND = 16


def names_in(text: str) -> list[str]:
    """Return the capitalised names inside sentences, in order, at most eight.

    A sentence's first word never counts.
    """
    names: dict[str, None] = {}
    for match in _NAME.finditer(text):
        name = match.group().removesuffix("'s").removesuffix("’s")
        before = text[max(0, match.start() - 4) : match.start()].rstrip(" \t\r")
        if before and before[-1] not in _SENTENCE_END and folded(name) not in _NOT_NAMES:
            names[name] = None
    return list(names)[:_MAX_MENTIONS]


def entity_id(name: str) -> str:
    """Return the node id of a named entity; case and white space do not count."""
    return content_id("ent", folded(name))


def plan_commit(state: BankState, batch: OpBatch, *, source: SourceRef) -> Commit:
    """Plan the commit that carries out a batch on this state.

    Never raises for what ops say; unfit ops come back rejected.
    """
    commit_id = f"c{state.seq + 1}"
    draft = _Draft(state=state, source=source, rejected=list(batch.rejected))
    for index, op in enumerate(batch.accepted):
        op_id, refusal = f"{commit_id}.{index}", None
        match op:
            case Add():
                refusal = _add(draft, op, op_id)
            case Noop():
                if op.id is not None and op.fact is not None and draft.item(op.id) is not None:
                    draft.restated.append(op)
                draft.applied.append(AppliedOp(op_id=op_id, op=op, item_id=op.id))
            case Update() | Delete():
                refusal = _change(draft, op, op_id)
                if refusal is None and isinstance(op, Delete):
                    draft.deleted.append(op)
        if refusal is not None:
            draft.rejected.append(Rejected(op=op, reason=refusal[0], detail=refusal[1]))
    return Commit(
        id=commit_id,
        ops=tuple(draft.applied),
        rejected=tuple(draft.rejected),
        changes=tuple(draft.changes),
        graph=_Links(draft).delta(),
        ordinals=tuple(draft.ordinals.items()),
        source=source,
    )


@dataclass(slots=True)
class _Draft:
    """A commit in the making: the decisions so far in this batch."""

    state: BankState
    source: SourceRef
    rejected: list[Rejected]
    items: dict[str, MemoryItem] = field(default_factory=dict[str, MemoryItem])
    ordinals: dict[str, int] = field(default_factory=dict[str, int])
    applied: list[AppliedOp] = field(default_factory=list[AppliedOp])
    changes: list[ItemChange] = field(default_factory=list[ItemChange])
    restated: list[Noop] = field(default_factory=list[Noop])
    deleted: list[Delete] = field(default_factory=list[Delete])
    events: dict[str, tuple[Event, Event]] = field(default_factory=dict[str, tuple[Event, Event]])
    """Changed events: (before, after)."""

    def item(self, item_id: str) -> MemoryItem | None:
        return self.items.get(item_id) or self.state.items.get(item_id)

    def event(self, node_id: str) -> Event | None:
        if node_id in self.events:
            return self.events[node_id][1]
        node = self.state.graph.node(node_id)
        return node if node and node.kind is NodeKind.EVENT and not node.closed else None

    def said_at(self, turn_ids: Iterable[str]) -> datetime | None:
        return max(filter(None, map(self.state.said_at, turn_ids)), default=None)

    def put(self, item: MemoryItem, op: MemoryOp) -> None:
        self.items[item.id] = item
        self.changes.append(ItemChange(id=item.id, after=item))
        self.applied.append(
            AppliedOp(op_id=item.op_id, op=op, item_id=item.id, version=item.version)
        )


_Refusal = tuple[RejectReason, str]


def _add(draft: _Draft, op: Add, op_id: str) -> _Refusal | None:
    fact = op.fact
    key = "\x1f".join(fact.source_turn_ids)
    ordinal = draft.ordinals.get(key, draft.state.ordinals.get(key, 0))
    item_id = op.id or content_id("mem", *fact.source_turn_ids, str(ordinal))
    if draft.item(item_id) is not None:
        return RejectReason.DUPLICATE_TARGET, f"{item_id} exists already"
    if op.id is None:
        draft.ordinals[key] = ordinal + 1
    session = draft.state.turns.get(fact.source_turn_ids[-1]) if fact.source_turn_ids else None
    item = MemoryItem(
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
    )
    draft.put(item, op)
    return None


def _change(draft: _Draft, op: Update | Delete, op_id: str) -> _Refusal | None:
    record = draft.item(op.id) or draft.event(op.id)
    if record is None or (isinstance(record, MemoryItem) and not record.active):
        return RejectReason.UNKNOWN_ID, f"{op.id} is not in memory now"
    if op.id in draft.items or op.id in draft.events:
        return RejectReason.DUPLICATE_TARGET, f"another op of this batch changes {op.id}"
    version = (
        record.version
        if isinstance(record, MemoryItem)
        else event_version(draft.state.graph, op.id)
    )
    if op.version is not None and op.version != version:
        detail = f"{op.id} is at version {version}, the op saw {op.version}"
        return RejectReason.STALE_VERSION, detail
    sources = tuple(dict.fromkeys((*record.source_turn_ids, *op.source_turn_ids)))
    if isinstance(record, MemoryItem):
        changes = _item_changes(draft, record, op)
        changes |= {"version": version + 1, "source_turn_ids": sources, "op_id": op_id}
        draft.put(record.model_copy(update=changes), op)
    else:
        changes = {"closed": True}
        if isinstance(op, Update):
            said_at = draft.said_at(sources) or record.said_at
            valid = op.valid or record.valid
            changes = {"summary": op.text[:4_000], "valid": valid, "said_at": said_at}
        after = record.model_copy(update={**changes, "source_turn_ids": sources})
        draft.events[op.id] = (record, after)
        draft.applied.append(AppliedOp(op_id=op_id, op=op, item_id=op.id))
    return None


def _item_changes(draft: _Draft, old: MemoryItem, op: Update | Delete) -> dict[str, object]:
    dates = filter(None, (old.said_at, draft.said_at(op.source_turn_ids)))
    said_at = max(dates, default=None)
    if isinstance(op, Delete):
        return {"said_at": said_at, "status": ItemStatus.DELETED}
    evidence = op.source_turn_ids or draft.source.turn_ids
    trusts = [turn.trust for turn_id in evidence if (turn := draft.state.turn(turn_id))]
    metadata = op.metadata if op.metadata is None else dict(sorted(op.metadata.items()))
    stated: dict[str, object] = {"kind": op.kind, "tags": op.tags, "metadata": metadata}
    return {name: value for name, value in stated.items() if value is not None} | {
        "text": op.text,
        "said_at": said_at,
        "valid": op.valid or (old.valid if old.kind == "event" else None),
        "trust": lowest_trust((old.trust, *trusts)),
        "embedding_missing": False,
    }


# -- edges that follow from ops --------------------------------------------------------


class _Links:
    """The nodes and edges that follow from a draft."""

    def __init__(self, draft: _Draft) -> None:
        self._draft, self._state = draft, draft.state
        self._nodes: dict[str, Event] = {}
        self._edges: dict[tuple[str, str, str], EventEdge] = {}
        self._removed: dict[tuple[str, str, str], None] = {}
        self._timelines: dict[str, SortedSet[Mark]] = {}

    def delta(self) -> GraphDelta:
        """Return the change of the graph."""
        draft = self._draft
        for change in draft.changes:
            item, old = draft.items[change.id], self._state.items.get(change.id)
            self._nodes[item.id] = item_node(item)
            if old is not None:
                if item.active:
                    past_id = version_node_id(old.id, old.version)
                    past = item_node(old, node_id=past_id, closed=True)
                    self._supersede(item.id, past, item.source_turn_ids)
                self._forget_times(old)
            if item.active:
                self._mention(item)
                self._place_in_time(item)
        for node_id, (before, after) in draft.events.items():
            self._nodes[node_id] = after
            if not after.closed:
                past_id = version_node_id(node_id, event_version(self._state.graph, node_id))
                past = before.model_copy(update={"id": past_id, "closed": True})
                self._supersede(node_id, past, after.source_turn_ids)
        if draft.deleted:
            self._supersede_deleted()
        for noop in draft.restated:
            self._restate(noop)
        return GraphDelta(
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges.values()),
            removed_edges=tuple(self._removed),
            session_id=draft.source.session_id,
        )

    def _link(
        self, source: str, target: str, relation: Relation, evidence: Sequence[str] = ()
    ) -> None:
        edge = EventEdge(
            source=source, target=target, relation=relation, evidence_turn_ids=tuple(evidence)
        )
        key = (source, target, edge.key)
        self._removed.pop(key, None)
        self._edges[key] = edge

    def _unlink(self, edge: EventEdge) -> None:
        key = (edge.source, edge.target, edge.key)
        self._edges.pop(key, None)
        self._removed[key] = None

    def _supersede(self, node_id: str, past: Event, evidence: Sequence[str]) -> None:
        self._nodes[past.id] = past
        self._link(node_id, past.id, Relation.SUPERSEDES, evidence)

    def _supersede_deleted(self) -> None:
        """Link an added item to one that the same turn takes out."""
        for done in self._draft.applied:
            if isinstance(done.op, Add) and done.item_id is not None:
                sources = set(done.op.fact.source_turn_ids)
                for gone in self._draft.deleted:
                    if shared := sorted(sources.intersection(gone.source_turn_ids)):
                        self._link(done.item_id, gone.id, Relation.SUPERSEDES, shared)

    def _mention(self, item: MemoryItem) -> None:
        mentioned: dict[str, str] = {}
        for name in filter(None, (item.subject, item.speaker, *names_in(item.text))):
            mentioned.setdefault(entity_id(name), name)
        graph = self._state.graph
        for _, edge, leaving in graph.edges_of(item.id):
            if leaving and edge.relation is Relation.MENTIONS and edge.target not in mentioned:
                self._unlink(edge)
        for node_id, name in list(mentioned.items())[:_MAX_MENTIONS]:
            if graph.node(node_id) is None and node_id not in self._nodes:
                self._nodes[node_id] = Event(id=node_id, kind=NodeKind.ENTITY, summary=name[:240])
            if graph.edge(item.id, node_id, "mentions") is None:
                self._link(item.id, node_id, Relation.MENTIONS, item.source_turn_ids)

    def _place_in_time(self, item: MemoryItem) -> None:
        place = place_in_time(item)
        if place is None:
            return
        key, mark = place
        marks = self._timeline(key)
        before, after = _neighbours(marks, mark)
        if before is not None:
            self._link(before, item.id, Relation.BEFORE, item.source_turn_ids)
        if after is not None:
            self._link(item.id, after, Relation.BEFORE, item.source_turn_ids)
        self._timelines[key] = marks.insert(mark)

    def _forget_times(self, old: MemoryItem) -> None:
        """Take an item's old version off its timeline and close the gap it leaves."""
        place = place_in_time(old)
        if place is None or not old.active:
            return
        key, mark = place
        marks = self._timelines[key] = self._timeline(key).remove(mark)
        for _, edge, _ in self._state.graph.edges_of(old.id):
            if edge.relation is Relation.BEFORE:
                self._unlink(edge)
        before, after = _neighbours(marks, mark)
        if before is not None and after is not None:
            self._link(before, after, Relation.BEFORE)

    def _timeline(self, key: str) -> SortedSet[Mark]:
        known = self._timelines.get(key)
        return self._state.timelines.get(key, NO_MARKS) if known is None else known

    def _restate(self, noop: Noop) -> None:
        fact, item = noop.fact, self._draft.item(noop.id or "")
        if fact is None or item is None or set(fact.source_turn_ids) <= set(item.source_turn_ids):
            return
        node_id = content_id("evt", item.id, *fact.source_turn_ids, fact.text)
        self._nodes[node_id] = Event(
            id=node_id,
            summary=fact.text[:240],
            people=tuple(filter(None, (fact.subject, fact.speaker))),
            source_turn_ids=fact.source_turn_ids,
            valid=fact.valid,
            said_at=self._draft.said_at(fact.source_turn_ids),
            session_id=self._draft.source.session_id,
        )
        if self._state.graph.node(item.id) is None and item.id not in self._nodes:
            self._nodes[item.id] = item_node(item)
        self._link(node_id, item.id, Relation.SAME_AS, fact.source_turn_ids)


def _neighbours(marks: SortedSet[Mark], mark: Mark) -> tuple[str | None, str | None]:
    """Return the nearest item that ends before the mark starts, and the nearest after it."""
    earlier = islice(marks.before(mark), _LOOK_AROUND)
    later = islice(marks.since(mark), _LOOK_AROUND)
    return (
        next((item_id for _, end, item_id in earlier if end <= mark[0]), None),
        next((item_id for start, _, item_id in later if start >= mark[1]), None),
    )
