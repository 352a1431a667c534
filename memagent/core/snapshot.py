"""The entries of the journal, digests and snapshots of a memory, and records about memories.

Entry kinds: `SessionStored` (raw turns, before all that is made of them), `TurnsAdded`
(further turns of a session), `Commit` (ops and all that follows from them), `GraphDelta`
(what a design's own calls add to the event graph), `StatsDelta`, `TrialStarted`,
`TrialEnded` (`core.trials`), `Restored`, `Erased`, `Redacted`. Each carries the *effects*
it had, so replay is a fold of plain assignments and needs no model, no clock and no rule
that may change later. A `JournalRow` is an entry with its place in the journal.

The digest is a SHA-256 over the roots of items, graph, statistics and id counter, and
of the trials where there are any. Each root is an additive multiset hash (Bellare and
Micciancio's AdHash with a 4,096-bit modulus: elements are expanded by SHAKE-256 and
added), so it is kept per edit in constant time and cannot depend on insertion order. The
digest leaves out sessions, scope, journal sequence, wall clock, usage, op ids and
embedding state. A `MemorySnapshot` is named by it.

The other records tell of a memory: its history, the difference of two snapshots, reports
of remembering, the state of an agent, changes kept aside, the traces of a source, the
receipt of an erasure, and figures of the event graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

from pydantic import Field

from memagent.core.exchange import ModelResponse, Usage
from memagent.core.ops import MemoryOp, ParseStatus, Rejected, Repair
from memagent.core.records import (
    Event,
    EventEdge,
    Fact,
    Id,
    ItemStats,
    MemoryItem,
    Moment,
    Record,
    Session,
    SourceRef,
    Text,
    Trust,
    Turn,
    is_empty,
    is_none,
    written,
)
from memagent.core.trials import RAW, Trial, TrialEnded, TrialStarted

_HASH_BYTES = 512
_MODULUS_MASK = (1 << (8 * _HASH_BYTES)) - 1
_NOT_CONTENT = {"op_id", "embedding_missing"}
# Left out of the hash of an item that never expires. Older releases had no `expires_at`;
# so such an item keeps the digest that they gave it.
_UNDATED = _NOT_CONTENT | {"expires_at"}
StatsChanges = tuple[tuple[str, ItemStats | None], ...]
"""Item id to its statistics afterwards; None clears them."""
TrialChanges = tuple[tuple[str, Trial | None], ...]
"""Trial id to the trial afterwards; None takes it out."""


class ItemChange(Record):
    """One item's new state.

    `archive` None pushes the present version onto the item's past; otherwise the past
    is set exactly.
    """

    id: Id
    after: MemoryItem | None
    """The item after the change; None takes it out altogether (only when an ADD is
    undone).
    """
    archive: tuple[MemoryItem, ...] | None = None
    """Older versions, oldest first."""


class AppliedOp(Record):
    """An accepted op with the item version that it made (None for NOOP)."""

    op_id: Id
    op: MemoryOp
    item_id: Text | None = None
    version: int | None = None


class GraphDelta(Record):
    """Assignments to the event graph: nodes and edges as they are afterwards.

    Only an undo takes some out.
    """

    kind: Literal["graph"] = written("graph")
    nodes: tuple[Event, ...] = ()
    edges: tuple[EventEdge, ...] = ()
    removed_nodes: tuple[Id, ...] = ()
    removed_edges: tuple[tuple[str, str, str], ...] = ()
    """(source, target, key) of edges taken out."""
    session_id: Text | None = None
    rejected: tuple[Text, ...] = ()
    """Edges or nodes proposed and refused, with reasons."""

    @property
    def empty(self) -> bool:
        """Whether it changes nothing."""
        return not (self.nodes or self.edges or self.removed_nodes or self.removed_edges)


class SessionStored(Record):
    """Raw turns, written before any model is asked."""

    kind: Literal["session"] = written("session")
    session: Session


class TurnsAdded(Record):
    """Further turns of a stored session, written before any model is asked."""

    kind: Literal["turns"] = written("turns")
    session_id: Id
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)]


class Commit(Record):
    """The ops of one chunk or direct edit with their effects, written in one append."""

    kind: Literal["commit"] = written("commit")
    id: Id
    ops: tuple[AppliedOp, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    changes: tuple[ItemChange, ...] = ()
    graph: GraphDelta = GraphDelta()
    ordinals: tuple[tuple[str, int], ...] = ()
    """Id counter after the commit, for the source keys that changed; 0 clears one (undo
    only).
    """
    source: SourceRef = SourceRef()
    undoes: Text | None = None
    """Id of the commit or trial whose effects this one takes back."""
    cleared: Annotated[int | None, Field(ge=0, exclude_if=is_none)] = None
    """How many items this commit deleted by emptying the memory at once, before its changes."""
    reviewed: Annotated[tuple[Text, ...], Field(exclude_if=is_empty)] = ()
    """Ids of the quarantined ops that this commit accepts or refuses."""
    stats: Annotated[StatsChanges, Field(exclude_if=is_empty)] = ()
    """Statistics afterwards, where a lesson counted or an undo took counts back."""
    trials: Annotated[TrialChanges, Field(exclude_if=is_empty)] = ()
    """Trials afterwards, where a lesson was taken or a report was undone."""


class StatsDelta(Record):
    """Item statistics as they are afterwards; None clears one."""

    kind: Literal["stats"] = written("stats")
    updates: StatsChanges = ()


class Restored(Record):
    """The memory was set back (or forward) to a snapshot.

    It carries the difference, so replay needs no older state.
    """

    kind: Literal["restored"] = written("restored")
    digest: Text
    changes: tuple[ItemChange, ...] = ()
    graph: GraphDelta = GraphDelta()
    ordinals: tuple[tuple[str, int], ...] = ()
    stats: StatsChanges = ()
    trials: Annotated[TrialChanges, Field(exclude_if=is_empty)] = ()
    done: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Chunks that count as remembered afterwards, for the sessions where that changed."""
    sessions: tuple[Session, ...] = ()
    """Sessions the snapshot has and this memory lacked (an import)."""


class Erased(Record):
    """Everything before this entry was erased: older payloads are gone from the store."""

    kind: Literal["erased"] = written("erased")
    reason: Text = ""


class Redacted(Record):
    """Some words were erased from earlier entries, which were rewritten.

    An earlier entry that has nothing left was replaced by an empty `Redacted`.
    """

    kind: Literal["redacted"] = written("redacted")
    rewritten: tuple[tuple[int, str], ...] = ()
    """(sequence, digest of the new payload as hex) of every entry rewritten."""
    reason: Text = ""


Entry = Annotated[
    SessionStored
    | TurnsAdded
    | Commit
    | GraphDelta
    | StatsDelta
    | TrialStarted
    | TrialEnded
    | Restored
    | Erased
    | Redacted,
    Field(discriminator="kind"),
]


class HistoryEntry(Record):
    """One change of one item, with where it came from."""

    seq: int
    recorded_at: Moment
    commit_id: Text
    """Commit id, or `restored` when a whole snapshot was put back."""
    op: MemoryOp | None = None
    """The op that made it; None for undo, restore and import."""
    item: MemoryItem | None = None
    """The item afterwards; None when the change took it out altogether."""
    source: SourceRef = SourceRef()
    undoes: Text | None = None


class SnapshotDiff(Record):
    """The changes from one snapshot to another."""

    added: tuple[MemoryItem, ...] = ()
    removed: tuple[MemoryItem, ...] = ()
    """Items active before and not active, or not there, after."""
    changed: tuple[tuple[MemoryItem, MemoryItem], ...] = ()
    """(before, after) of items active in both."""
    edges_added: tuple[EventEdge, ...] = ()
    edges_removed: tuple[EventEdge, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the two memories hold the same."""
        return not (
            self.added or self.removed or self.changed or self.edges_added or self.edges_removed
        )


class JournalRow(Record):
    """An entry with its place in the scope's log."""

    seq: Annotated[int, Field(ge=1)]
    recorded_at: Moment
    entry: Entry


def element_hash(domain: str, key: str, body: bytes) -> int:
    """Return the 4,096-bit hash of one element of a domain's map."""
    head = f"memagent/1/{domain}/{len(key)}/{key}/".encode("utf-8", "replace")
    return int.from_bytes(hashlib.shake_256(head + body).digest(_HASH_BYTES), "big")


def add_hash(root: int, element: int) -> int:
    """Return the root after an element came in."""
    return (root + element) & _MODULUS_MASK


def sub_hash(root: int, element: int) -> int:
    """Return the root after an element went out."""
    return (root - element) & _MODULUS_MASK


def item_hash(item: MemoryItem, archive: Iterable[MemoryItem]) -> int:
    """Hash an item with its past; versions that differ in any content differ here."""
    body = b"\x1e".join(
        # as `model_dump_json`, without a string in between
        version.__pydantic_serializer__.to_json(
            version, exclude=_UNDATED if version.expires_at is None else _NOT_CONTENT
        )
        for version in (*archive, item)
    )
    return element_hash("item", item.id, body)


def node_hash(node: Event) -> int:
    """Hash one node of the event graph."""
    return element_hash("node", node.id, node.__pydantic_serializer__.to_json(node))


def edge_hash(edge: EventEdge) -> int:
    """Hash one edge of the event graph."""
    return element_hash(
        "edge", f"{edge.source}\x1f{edge.target}\x1f{edge.key}", edge.model_dump_json().encode()
    )


def stats_hash(item_id: str, stats: ItemStats) -> int:
    """Hash one item's statistics."""
    return element_hash("stats", item_id, stats.model_dump_json().encode())


def trial_hash(trial_id: str, trial: Trial) -> int:
    """Hash one trial, its raw text left out."""
    return element_hash("trial", trial_id, trial.model_dump_json(exclude=set(RAW)).encode())


def ordinal_hash(source_key: str, count: int) -> int:
    """Hash one entry of the id counter."""
    return element_hash("ordinal", source_key, str(count).encode())


def digest_of(
    *, items: int = 0, graph: int = 0, stats: int = 0, ordinals: int = 0, trials: int = 0
) -> str:
    """Return the domain-separated SHA-256 over the multiset hashes, as 64 hex digits.

    The root of the trials is left out while it is 0, as in memories that never saw one.
    """
    outer = hashlib.sha256(b"memagent/snapshot/1")
    for name, root in (
        ("items", items),
        ("graph", graph),
        ("stats", stats),
        ("ordinals", ordinals),
        *((("trials", trials),) if trials else ()),
    ):
        outer.update(
            hashlib.sha256(name.encode() + b"\x00" + root.to_bytes(_HASH_BYTES, "big")).digest()
        )
    return outer.hexdigest()


class GraphContent(Protocol):
    """The nodes and edges of an event graph, whatever holds them."""

    def all_nodes(self) -> Iterator[Event]:
        """Yield every node, in no particular order."""
        ...

    def all_edges(self) -> Iterator[EventEdge]:
        """Yield every edge, in no particular order."""
        ...


@dataclass(frozen=True, slots=True)
class PlainGraph:
    """Graph content held in two tuples."""

    nodes: tuple[Event, ...] = ()
    edges: tuple[EventEdge, ...] = ()

    def all_nodes(self) -> Iterator[Event]:
        """Yield every node."""
        return iter(self.nodes)

    def all_edges(self) -> Iterator[EventEdge]:
        """Yield every edge."""
        return iter(self.edges)


@dataclass(frozen=True, slots=True, eq=False)
class MemorySnapshot:
    """An immutable, content-addressed value of one memory.

    Equal digests mean equal content.

    The mappings are shared with the bank it came from (persistent maps), so taking one
    costs nothing. `live` is an opaque handle that lets a bank of the same process
    search it at once; it is None for snapshots read from a file.
    """

    digest: str
    items: Mapping[str, MemoryItem] = field(default_factory=dict[str, MemoryItem])
    archive: Mapping[str, tuple[MemoryItem, ...]] = field(
        default_factory=dict[str, tuple[MemoryItem, ...]]
    )
    sessions: Mapping[str, Session] = field(default_factory=dict[str, Session])
    graph: GraphContent = field(default_factory=PlainGraph)
    stats: Mapping[str, ItemStats] = field(default_factory=dict[str, ItemStats])
    ordinals: Mapping[str, int] = field(default_factory=dict[str, int])
    trials: Mapping[str, Trial] = field(default_factory=dict[str, Trial])
    done: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    """Session id to indexes of the chunks already remembered (not part of the digest)."""
    seq: int = 0
    """Journal sequence it was taken at (not part of the digest)."""
    live: object = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySnapshot) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return (
            f"MemorySnapshot(digest={self.digest[:12]!r}, items={len(self.items)}, seq={self.seq})"
        )


EMPTY = MemorySnapshot(digest=digest_of())
"""The snapshot of a memory in which nothing was ever written."""


OnError = Literal["raise", "keep"]
"""Whether a model failure, once the turns are stored, is raised or kept in the report."""


class ChunkReport(Record):
    """One pass of the ingest graph over one chunk."""

    chunk_id: Text
    session_id: Id
    index: int
    facts: tuple[Fact, ...] = ()
    shown_ids: tuple[str, ...] = ()
    """Items and events the manager saw."""
    applied: tuple[AppliedOp, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    parse: tuple[ParseStatus, ...] = ()
    """Parse status of each model call in order."""
    repairs: tuple[Repair, ...] = ()
    """What was mended to read the replies, call by call."""
    responses: tuple[ModelResponse, ...] = ()
    commit_id: Text | None = None
    usage: Usage = Usage()
    doubts: Annotated[tuple[Rejected, ...], Field(exclude=True)] = ()
    """Ops that were accepted, though a guard that enforces its rules would have refused them."""
    note: Annotated[Text, Field(exclude_if=lambda note: not note)] = ""
    """Why the rules remembered the chunk in the model's place; "" where they did not."""
    failure: Text | None = None
    """The model failure that kept the chunk from being processed.

    Its turns are stored, and the next `remember` retries it.
    """


class IngestReport(Record):
    """The result of `remember` for one session."""

    session_id: Id
    stored_turns: int
    skipped: bool = False
    """True when the session had been remembered before and nothing was left to do."""
    chunks: tuple[ChunkReport, ...] = ()
    usage: Usage = Usage()

    @property
    def op_counts(self) -> dict[str, int]:
        """The number of applied ops of each kind, and of those that were rejected."""
        applied = [done.op.op for chunk in self.chunks for done in chunk.applied]
        counts = {name: applied.count(name) for name in ("ADD", "UPDATE", "DELETE", "NOOP")}
        return counts | {"REJECTED": sum(len(chunk.rejected) for chunk in self.chunks)}

    @property
    def failed_chunks(self) -> tuple[ChunkReport, ...]:
        """Chunks that a failure kept from being processed."""
        return tuple(chunk for chunk in self.chunks if chunk.failure)


class AgentStatus(Record):
    """The state of an agent: what it works with, what it stored, what waits."""

    user_id: Text
    design: Text
    model: Text | None
    """Name of the language model, or of its class; None without one."""
    path: Text | None = None
    """File or server of the memory; None where it is kept in the process."""
    memories: int
    """Active memories."""
    sessions: int
    """Stored sessions."""
    unfinished: int
    """Stored sessions of which a part is not remembered yet; `resume()` goes on."""
    pending: int = 0
    """Sessions handed to the background that are not remembered yet."""
    failed: int = 0
    """Background writes that failed since the agent was opened."""
    last_error: Text | None = None
    """The last of these failures, in one line."""


class Quarantined(Record):
    """A change that was kept aside, because what it rests on is trusted too little."""

    id: Id
    seq: int
    """The journal's entry that keeps it."""
    recorded_at: Moment
    op: MemoryOp
    detail: Text
    """What was too low for what."""
    item: MemoryItem | None = None
    """The memory that it would change, as it is now."""
    source: SourceRef = SourceRef()
    """The session and the turns that were read."""


class SourceFilter(Record):
    """Names turns by where they came from; a turn is meant if every set field fits."""

    session_ids: frozenset[Text] = frozenset()
    turn_ids: frozenset[Text] = frozenset()
    speakers: frozenset[Text] = frozenset()
    """Who said it, or which tool or document it came from."""
    trusts: frozenset[Trust] = frozenset()


class Touched(Record):
    """A memory that rests on a source in at least one version."""

    item: MemoryItem
    versions: tuple[int, ...]
    """The versions that rest on it."""
    clean: int | None = None
    """The last version before the source touched it; None when there was none."""
    turn_ids: tuple[Text, ...] = ()
    """The turns of the source that it rests on."""


class Place(Record):
    """A file that an erasure searched, byte by byte, for the words and vectors it erased."""

    name: Text
    size_bytes: int
    found_before: int | None = None
    """None; only older releases searched files before an erasure too."""
    found_after: int
    """Number of those words and vectors that the file still held after the erasure."""


class ErasureReceipt(Record):
    """The words that an erasure took out, and the places searched for them afterwards.

    Names are given as digests, since they may tell something themselves.
    """

    what: Literal["memory", "session"]
    name_digest: Text
    """SHA-256 of the erased id."""
    items: int
    """Memories erased, with all their versions."""
    turns: int
    """Turns whose words were erased."""
    nodes: int
    """Nodes erased from the event graph."""
    rewritten: int
    """Entries of the journal that were rewritten."""
    needles: int = 0
    """Texts and vectors that were searched for."""
    places: tuple[Place, ...] = ()
    """Every file that was searched; none for a memory kept on a server or in the process."""
    left_in: tuple[Text, ...] = ()
    """Ids of memories of the same user that hold an erased text; they were not asked for and
    stay.
    """
    copies: int = 0
    """Stored forks of the memory from which the same was erased."""
    scrubbed: bool = True
    """Whether the old bytes are gone from the files of the journal."""
    unproven: Text | None = None
    """Why the files could not be searched afterwards; None when they were."""
    at: Moment

    @property
    def gone(self) -> bool:
        """Whether the places were searched afterwards and nothing was found in any of them."""
        found = any(place.found_after for place in self.places)
        return self.scrubbed and self.unproven is None and not found


class GraphStats(Record):
    """Figures of an event graph.

    Counts leave closed nodes (deleted and replaced ones) out unless they say so.
    """

    nodes: dict[str, int]
    """Open nodes by kind, most first."""
    closed_nodes: int
    edges: dict[str, int]
    """Edges by relation, most first, those of closed nodes included."""
    event_edges: dict[str, int]
    """Of these, edges between open events."""
    events_per_session: dict[Text, int]
    """Events by the session that told them first; sessions without events are left out."""
    sessions: int
    components: tuple[int, ...]
    """Sizes in events of the parts of the graph that edges between events hold together,
    largest first; 1 is an event by itself.
    """
    merged_events: int
    """Events that unite several tellings: of several sessions, or in several wordings."""

    @property
    def events(self) -> int:
        """Open events."""
        return sum(self.components)
