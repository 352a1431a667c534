"""Reports of remembering a session, joined to model responses by their ids."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from memagent.core.exchange import ModelResponse, Usage
from memagent.core.ops import MemoryOp, ParseStatus, Rejected, Repair
from memagent.core.records import Fact, Id, MemoryItem, Moment, Record, SourceRef, Text, Trust
from memagent.core.snapshot import AppliedOp

OnError = Literal["raise", "keep"]
"""After a model failure: raise it once the turns are stored, or keep it in the report."""


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
    """What the guard would have refused, where it only watches."""
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
    """Sessions that wait for the background."""
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
    """A file that was searched for erased words and vectors, byte by byte."""

    name: Text
    size_bytes: int
    found_before: int | None = None
    """None: the erasure comes first. Older releases counted the words before it."""
    found_after: int
    """How many of the words and vectors it held after the erasure."""


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
