"""The event graph of one memory as a document: nodes, edges, the turns they rest on.

Files and pages are written from it. Topics are nodes here like any other, although
the journal holds none. Nodes come in the order of their kinds and stories, edges by
their ends, so equal memories give equal documents. Every turn that a node or an edge
names and the memory has is in `turns`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from memagent.core.answers import AsOf
from memagent.core.records import Id, Moment, NodeKind, Record, Relation, Scope, Text, TimeSpan

GraphFormat = Literal["html", "json", "graphml"]
"""The forms of a written graph: one page, node-link JSON, or GraphML."""


class NodeState(StrEnum):
    """The state of a node: whether it still tells what the memory holds."""

    OPEN = "open"
    CLOSED = "closed"
    """A tombstone: deleted, expired, or an old version of something rewritten."""
    OUTDATED = "outdated"
    """An event whose memory was deleted or rewritten since; the journal says nothing about
    it.
    """


class GraphNode(Record):
    """A memory item, an event, a person or thing, or a topic."""

    id: Id
    kind: NodeKind
    text: Text = ""
    """What is remembered, in full; an entity's name; a topic's most telling words."""
    state: NodeState = NodeState.OPEN
    people: tuple[Text, ...] = ()
    aliases: tuple[Text, ...] = ()
    """Other tellings of the same event."""
    valid: TimeSpan | None = None
    said_at: Moment | None = None
    time_text: Text | None = None
    session_id: Text | None = None
    order: int = 0
    source_turn_ids: tuple[Id, ...] = ()


class GraphEdge(Record):
    """A directed, typed edge; closed when an end is no longer open, or its own time is over."""

    source: Id
    target: Id
    relation: Relation
    label: Text = ""
    state: NodeState = NodeState.OPEN
    evidence_turn_ids: tuple[Id, ...] = ()
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    count: Annotated[int, Field(ge=1)] = 1
    valid: TimeSpan | None = None


class GraphTurn(Record):
    """A turn of dialogue as evidence."""

    id: Id
    speaker: Text
    text: Text
    """What was said, an image's caption included."""
    session_id: Text
    said_at: Moment | None = None


class GraphDocument(Record):
    """One memory's event graph at one journal sequence."""

    scope: Scope = Scope()
    digest: Text = ""
    seq: int = 0
    as_of: AsOf = AsOf()
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()
    turns: tuple[GraphTurn, ...] = ()

    def without_hidden(self) -> GraphDocument:
        """Return the document with open nodes and edges only, and the turns they rest on."""
        nodes = tuple(node for node in self.nodes if node.state is NodeState.OPEN)
        edges = tuple(edge for edge in self.edges if edge.state is NodeState.OPEN)
        named = {turn_id for node in nodes for turn_id in node.source_turn_ids}
        named.update(turn_id for edge in edges for turn_id in edge.evidence_turn_ids)
        turns = tuple(turn for turn in self.turns if turn.id in named)
        return self.model_copy(update={"nodes": nodes, "edges": edges, "turns": turns})
