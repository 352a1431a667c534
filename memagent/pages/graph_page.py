"""The event graph as one HTML page that works without a network.

Style, script and data are inside. The page draws on a canvas: places come ready from
`layout`, so opening it costs no simulation. A strict content policy names the digests of
our one style and one script; stored text is data in a JSON block whose `<`, `>` and `&`
are escaped, and the script shows it as text nodes only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from html import escape
from string import Template
from typing import Any

from memagent.core.answers import GraphDocument, GraphEdge, GraphNode
from memagent.core.records import NodeKind, Relation
from memagent.pages.document import asset, digest_of, title_of
from memagent.pages.layout import force_layout, time_layout

SCRIPTS = ("graph_data.js", "graph_canvas.js", "graph_panel.js", "graph_page.js")
"""The scripts that draw a graph, in the order of loading; the page needs its data before."""
_STYLES = ("graph_page.css", "graph.css")
_LANES = (NodeKind.TOPIC, NodeKind.EVENT, NodeKind.ITEM, NodeKind.ENTITY)
_PULLS = {
    Relation.MENTIONS: 0.4,
    Relation.CONTAINS: 0.8,
    Relation.PART_OF: 1.6,
    Relation.BEFORE: 0.3,
    Relation.AFTER: 0.3,
}


def graph_page(document: GraphDocument) -> str:
    """Return the page as text."""
    style, script = _parts()
    policy = (
        f"default-src 'none'; style-src {digest_of(style)}; script-src {digest_of(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(asset("graph.html")).substitute(
        policy=policy,
        title=escape(f"Event graph of {document.scope.user_id}"),
        style=style,
        data=safe_json(page_data(document)),
        script=script,
    )


def safe_json(value: object) -> str:
    """Return JSON that stays data inside a script element, whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


@lru_cache(maxsize=1)
def _parts() -> tuple[str, str]:
    style = "".join(asset(name) for name in _STYLES)
    return style, '"use strict";\n' + "".join(asset(name) for name in (*SCRIPTS, "graph_alone.js"))


def page_data(document: GraphDocument) -> dict[str, Any]:
    """Return what the script reads; edges name nodes and turns by their places in the lists."""
    at = {node.id: number for number, node in enumerate(document.nodes)}
    turns = {turn.id: number for number, turn in enumerate(document.turns)}
    degree = Counter(end for edge in document.edges for end in (edge.source, edge.target))
    links = [(at[e.source], at[e.target], _pull(e, degree[e.target])) for e in document.edges]
    network = force_layout(len(document.nodes), links)
    lanes = [_LANES.index(node.kind) for node in document.nodes]
    line, axis = time_layout([_moment(node) for node in document.nodes], lanes, links)
    return {
        "scope": document.scope.user_id,
        "digest": document.digest,
        "asOf": [
            f"{name} {value}"
            for name, value in document.as_of.model_dump(mode="json").items()
            if value is not None
        ],
        "axis": axis,
        "nodes": [
            _node(node, turns, [*map(float, network[number]), *map(float, line[number])])
            for number, node in enumerate(document.nodes)
        ],
        "edges": [_edge(edge, at, turns) for edge in document.edges],
        "turns": [
            [turn.id, turn.speaker, _iso(turn.said_at), turn.text, turn.session_id]
            for turn in document.turns
        ],
    }


def _pull(edge: GraphEdge, degree: int) -> float:
    """Return how strongly an edge draws its ends together, little to what all mention."""
    pull = _PULLS.get(edge.relation, 1.0)
    return pull * min(1.0, 6.0 / degree) if edge.relation is Relation.MENTIONS else pull


def _node(node: GraphNode, turns: dict[str, int], places: list[float]) -> dict[str, Any]:
    span = node.valid
    return {
        "id": node.id,
        "kind": node.kind.value,
        "text": node.text,
        "title": title_of(node.text) if node.kind is NodeKind.EVENT else "",
        "state": node.state.value,
        "people": node.people,
        "aliases": node.aliases,
        "span": [_iso(span.start), _iso(span.end), span.granularity.value]
        if span is not None
        else None,
        "phrase": node.time_text or (span.text if span is not None else None),
        "said": _iso(node.said_at),
        "session": node.session_id,
        "turns": _known(node.source_turn_ids, turns),
        "at": places,
    }


def _edge(edge: GraphEdge, at: dict[str, int], turns: dict[str, int]) -> list[Any]:
    return [
        at[edge.source],
        at[edge.target],
        edge.relation.value,
        edge.label,
        edge.state.value,
        round(edge.confidence, 3),
        edge.count,
        _known(edge.evidence_turn_ids, turns),
    ]


def _known(turn_ids: Iterable[str], turns: dict[str, int]) -> list[int]:
    return [turns[turn_id] for turn_id in turn_ids if turn_id in turns]


def _moment(node: GraphNode) -> float | None:
    span = node.valid
    moment = (span.start or span.end if span is not None else None) or node.said_at
    return moment.timestamp() if moment is not None else None


def _iso(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at is not None else None
