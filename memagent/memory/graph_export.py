"""The event graph of a bank as a document, and that document as a file: HTML page, JSON or GraphML.

Topics are made from the events' vectors as a walk makes them and named by the words
that set them apart; the journal holds none. Items carry their full text, where the
graph has its beginning. Nothing is written to the memory.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

import numpy as np
from pydantic import Field

from memagent.core.answers import (
    AsOf,
    Filter,
    GraphDocument,
    GraphEdge,
    GraphFormat,
    GraphNode,
    GraphTurn,
    NodeState,
)
from memagent.core.errors import ConfigError, InputError
from memagent.core.long_work import aside
from memagent.core.records import Event, EventEdge, NodeKind, Record, Relation, Text, content_id
from memagent.events.graph_files import graph_to_graphml, graph_to_json
from memagent.events.merge import in_order, story_key
from memagent.events.visibility import OutOfSight, events_in_sight, outdated, topics_of
from memagent.memory import timetravel
from memagent.memory.bank import MemoryBank, text_vectors
from memagent.pages.graph_page import graph_page
from memagent.protocols import Vector
from memagent.state.adjacency import version_node_id
from memagent.state.effects import entity_id, names_in, tokenize
from memagent.state.fold import BankState

_KINDS = (NodeKind.TOPIC, NodeKind.EVENT, NodeKind.ITEM, NodeKind.ENTITY)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_SHORTEST_WORD = 3
_TITLE_WORDS = 3
# Words that name no topic, beside the function words.
_CHATTER = frozenset(
    "about absolutely actually after again ago all also always amazing any anyway around away "
    "awesome back before best better big bit both btw bye came chat chatted chatting check come "
    "coming congrats congratulations cool day days deal definitely did done down each early "
    "easy else enough even ever every everyone everything exactly excited exciting fantastic "
    "feel feels few fine first for found four fun gave get gets getting give glad goes going "
    "gone gonna good gosh got great guess guys had haha half happy have having hear hello here "
    "hey hi home hope hoping idea incredible keep kept kind knew know last late later least "
    "left let like little lol long look looks lot lots love loved lovely made make many maybe "
    "mean means might mine minute month months more morning most much must myself need needs "
    "never new next nice night nobody none nope nothing now off ok okay omg once one only other "
    "out over own people perhaps please pretty put quite read ready real really right said same "
    "say says see seem seen several she should since some someone something soon sorry sounds "
    "still such super sure take taken tell than thank thanks that thing things think this "
    "thought three time times today told tomorrow tonight too took totally tried true try turn "
    "twice two until upon very wait wanna want wants way week weekend weeks well went while "
    "whole wish with without woah wonder wonderful woohoo work worked wow yay yeah year years "
    "yep yes yesterday yet".split()
)
_WRITERS = {"html": graph_page, "json": graph_to_json, "graphml": graph_to_graphml}


class GraphExport(Record):
    """An event graph as a file, and its figures."""

    path: Text | None
    format: GraphFormat
    nodes: int
    edges: int
    turns: int
    digest: Text
    text: Text = Field(repr=False)
    """The whole file."""


async def export_graph(
    bank: MemoryBank,
    path: Path | None = None,
    *,
    format: GraphFormat = "html",
    as_of: AsOf | None = None,
    include_hidden: bool = True,
) -> GraphExport:
    """Export the event graph as a page, JSON or GraphML.

    A file at `path` is replaced only when all is written. Without `include_hidden`,
    deleted and rewritten nodes are left out. Raises `ConfigError` for another format,
    `InputError` when the file cannot be written.
    """
    if format not in _WRITERS:
        raise ConfigError(
            f"format {format!r}: a graph is written as {', '.join(map(repr, _WRITERS))}"
        )
    document = await graph_document(bank, as_of=as_of)
    return await aside(_exported, document, path, format, include_hidden)


def _exported(
    document: GraphDocument, path: Path | None, format: GraphFormat, include_hidden: bool
) -> GraphExport:
    if not include_hidden:
        document = document.without_hidden()
    text = _WRITERS[format](document)
    if path is not None:
        _write(path, text)
    return GraphExport(
        path=str(path) if path is not None else None,
        format=format,
        nodes=len(document.nodes),
        edges=len(document.edges),
        turns=len(document.turns),
        digest=document.digest,
        text=text,
    )


async def graph_document(
    bank: MemoryBank, *, as_of: AsOf | None = None, most: int | None = None, around: str = ""
) -> GraphDocument:
    """Return the bank's event graph as a document, hidden nodes and topics included.

    `as_of` is the point in time to show, by default now. With `most`, only so many nodes
    in sight come, the best connected ones; with `around` those next to that node.
    """
    when = as_of or AsOf()
    view = bank if when.now else await timetravel.as_of(bank, when)
    state = await view.sync()
    seen = await aside(events_in_sight, state, expired=view.expired)
    events = [event for event in seen.values() if event.summary.strip()]
    vectors = await text_vectors(view, [event.summary for event in events])
    events = [event for event in events if event.summary in vectors]
    topics = await aside(_topics, events, vectors)
    return await aside(_document, view, state, when, topics, most=most, around=around)


def _document(
    view: MemoryBank,
    state: BankState,
    when: AsOf,
    topics_of_events: tuple[list[GraphNode], list[GraphEdge]],
    *,
    most: int | None,
    around: str,
) -> GraphDocument:
    """Make the document of a state."""
    topics, contains = topics_of_events
    moment = when.valid or when.said or view.now()
    events, links = state.graph.all_nodes(), state.graph.all_edges()
    if most is not None:
        chosen = _weightiest(view, state, contains, most=most, around=around)
        topics = [topic for topic in topics if topic.id in chosen]
        contains = [edge for edge in contains if {edge.source, edge.target} <= chosen]
        events = (event for event in events if event.id in chosen)
        links = (edge for edge in links if edge.source in chosen and edge.target in chosen)
    ordered = sorted(events, key=lambda node: (_KINDS.index(node.kind), *story_key(node)))
    nodes = [*topics, *(_node(state, event, expired=view.expired) for event in ordered)]
    closed = {node.id: node.state for node in nodes if node.state is not NodeState.OPEN}
    kept = sorted(links, key=lambda edge: (edge.source, edge.target, edge.key))
    edges = [*contains, *(_edge(edge, closed, moment) for edge in kept)]
    if when.said is not None or when.valid is not None:
        nodes, edges = _of_then(state, nodes, edges, said=when.said)
    named = {turn_id for node in nodes for turn_id in node.source_turn_ids}
    named.update(turn_id for edge in edges for turn_id in edge.evidence_turn_ids)
    return GraphDocument(
        scope=view.scope,
        digest=state.digest(),
        seq=state.seq,
        as_of=when,
        nodes=tuple(nodes),
        edges=tuple(edges),
        turns=_turns(state, named),
    )


def _weightiest(
    view: MemoryBank, state: BankState, contains: Sequence[GraphEdge], *, most: int, around: str
) -> set[str]:
    """Return the ids of at most `most` nodes in sight with the most neighbours, ties by id."""
    weight = {node.id: state.graph.degree(node.id) for node in state.graph.all_nodes()}
    weight.update(Counter(edge.source for edge in contains))
    if around:
        near = {other for other, _, _ in state.graph.edges_of(around)}
        near.update(edge.source for edge in contains if edge.target == around)
        near.update(edge.target for edge in contains if edge.source == around)
        weight = {node_id: weight[node_id] for node_id in near if node_id in weight}
    hidden = OutOfSight(state, Filter(), view.expired)
    ranked = (
        node_id
        for node_id in sorted(weight, key=lambda node_id: (-weight[node_id], node_id))
        if node_id != around
        and node_id not in hidden
        and ((node := state.graph.node(node_id)) is None or not node.closed)
    )
    return {*islice(ranked, most), *([around] if around else [])}


def _node(state: BankState, event: Event, *, expired: Container[str]) -> GraphNode:
    item = state.items.get(event.id)
    versions = state.versions(event.id.rpartition("@")[0]) if item is None else ()
    named = (old for old in versions if version_node_id(old.id, old.version) == event.id)
    full = item or next(named, None)
    gone = item is not None and (not item.active or item.id in expired)
    hidden = NodeState.CLOSED if event.closed or gone else NodeState.OPEN
    if (
        hidden is NodeState.OPEN
        and event.kind is NodeKind.EVENT
        and outdated(state, event, expired=expired)
    ):
        hidden = NodeState.OUTDATED
    return GraphNode(
        id=event.id,
        kind=event.kind,
        text=full.text if full is not None else event.summary,
        state=hidden,
        people=event.people,
        aliases=event.aliases,
        valid=event.valid,
        said_at=event.said_at,
        time_text=event.time_text,
        session_id=event.session_id,
        order=event.order,
        source_turn_ids=event.source_turn_ids,
    )


def _edge(edge: EventEdge, closed: dict[str, NodeState], moment: datetime) -> GraphEdge:
    over = edge.valid is not None and edge.valid.end is not None and edge.valid.end <= moment
    ends = [closed[end] for end in (edge.source, edge.target) if end in closed]
    return GraphEdge(
        source=edge.source,
        target=edge.target,
        relation=edge.relation,
        label=edge.label,
        state=NodeState.CLOSED if over else min(ends, default=NodeState.OPEN),
        evidence_turn_ids=edge.evidence_turn_ids,
        confidence=edge.confidence,
        count=edge.count,
        valid=edge.valid,
    )


def _of_then(
    state: BankState,
    nodes: Sequence[GraphNode],
    edges: Sequence[GraphEdge],
    *,
    said: datetime | None,
) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Return the nodes and edges of a view of the past without later ones.

    Later are turns told after that time, edges and names that rest on those alone, and
    tombstones of versions that are not yet old.
    """

    def by_then(turn_ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            turn_id
            for turn_id in turn_ids
            if said is None or (at := state.said_at(turn_id)) is None or at <= said
        )

    def old(node: GraphNode) -> bool:
        item_id, mark, version = node.id.rpartition("@")
        item = state.items.get(item_id) if mark and version.isdecimal() else None
        return item is None or int(version) < item.version

    def named(edge: GraphEdge) -> bool:
        item = state.items.get(edge.source) if edge.relation is Relation.MENTIONS else None
        return item is None or edge.target in {
            entity_id(name) for name in (item.subject, item.speaker, *names_in(item.text)) if name
        }

    there = [
        node.model_copy(update={"source_turn_ids": by_then(node.source_turn_ids)})
        for node in nodes
        if old(node)
    ]
    known = {node.id for node in there}
    kept = [
        edge.model_copy(update={"evidence_turn_ids": by_then(edge.evidence_turn_ids)})
        for edge in edges
        if {edge.source, edge.target} <= known
        and (by_then(edge.evidence_turn_ids) or not edge.evidence_turn_ids)
        and named(edge)
    ]
    tied = {end for edge in kept for end in (edge.source, edge.target)}
    return [node for node in there if node.kind is not NodeKind.ENTITY or node.id in tied], kept


def _turns(state: BankState, named: Iterable[str]) -> tuple[GraphTurn, ...]:
    places = [place for turn_id in in_order(named) if (place := state.turns.get(turn_id))]
    turns = [
        (session := state.sessions[session_id], session.turns[at]) for session_id, at in places
    ]
    return tuple(
        GraphTurn(
            id=turn.id,
            speaker=turn.speaker,
            text=turn.said,
            session_id=session.id,
            said_at=session.date_of(turn),
        )
        for session, turn in turns
    )


# -- topics ----------------------------------------------------------------------------


def _topics(
    events: list[Event], known: Mapping[str, Vector]
) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Return topics over events, biggest first, and their CONTAINS edges.

    There are none where nothing can be embedded.
    """
    if not events:
        return [], []
    labels = topics_of(np.stack([known[event.summary] for event in events]))
    groups: dict[int, list[Event]] = {}
    for event, label in zip(events, labels, strict=True):
        groups.setdefault(label, []).append(event)
    names = {term for event in events for name in event.people for term in tokenize(name)}
    said = {event.id: _words(event, names) for event in events}
    spread = Counter(term for words in said.values() for term in words)
    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    for group in sorted(groups.values(), key=lambda group: (-len(group), group[0].id)):
        topic_id = content_id("top", *(event.id for event in group))
        nodes.append(GraphNode(id=topic_id, kind=NodeKind.TOPIC, text=_title(group, said, spread)))
        edges += [
            GraphEdge(source=topic_id, target=event.id, relation=Relation.CONTAINS)
            for event in group
        ]
    return nodes, edges


def _title(
    group: Sequence[Event], said: Mapping[str, Mapping[str, str]], spread: Counter[str]
) -> str:
    """Return the words that most set a group of events apart, in their commonest form.

    `said` has the words of each event by their index terms, `spread` the events of each.
    """
    inside = Counter(term for event in group for term in said[event.id])
    forms: dict[str, Counter[str]] = {}
    for event in group:
        for term, form in said[event.id].items():
            forms.setdefault(term, Counter())[form] += 1
    total = len(said) + 1
    weight = {term: count * math.log(total / spread[term]) for term, count in inside.items()}
    best = sorted(weight, key=lambda term: (-weight[term], term))[:_TITLE_WORDS]
    words = [min(forms[term], key=lambda form: (-forms[term][form], form)) for term in best]
    return ", ".join(words) or group[0].summary[:40]


def _words(event: Event, names: Container[str]) -> dict[str, str]:
    """Return the words of an event as written, by their index terms.

    Names of people, function words and chatter are left out.
    """
    words = (_plain(word) for word in _WORD.findall(event.summary.casefold()))
    pairs = ((tokenize(word), word) for word in words if len(word) >= _SHORTEST_WORD)
    return {
        terms[0]: word
        for terms, word in pairs
        if len(terms) == 1 and terms[0] not in names and word not in _CHATTER
    }


def _plain(word: str) -> str:
    """Return a word without a genitive's ending; "" for a contraction such as `don't`."""
    base, mark, ending = word.replace("’", "'").partition("'")
    return base if not mark or ending == "s" else ""


# -- writing ---------------------------------------------------------------------------


def _write(path: Path, text: str) -> None:
    if not path.name:
        raise InputError(f"{str(path)!r} names no file to write the graph to")
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as exc:
        raise InputError(
            f"{path} cannot be written: {exc.strerror}; no graph was exported"
        ) from exc
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
