"""The event graph as one HTML page that works without a network.

Style, script and data are inside. The page draws on a canvas: places are worked out
here, so opening it costs no simulation. A strict content policy names the digests of
our one style and one script; stored text is data in a JSON block whose `<`, `>` and `&`
are escaped, and the script shows it as text nodes only.

Nodes have places by force and along time, without anything random. By force
(Fruchterman and Reingold): linked nodes attract, all repel, steps shrink. Up to
`_EXACT` nodes every pair repels; beyond, a node is repelled by the centres of a grid's
cells, and neighbours within a cell are pushed apart. Nodes start on a spiral, in the
order in which a walk from the best connected one reaches them, so near nodes start
near.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from html import escape
from statistics import fmean
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memagent.core.answers import GraphDocument, GraphEdge, GraphNode
from memagent.core.records import Event, NodeKind, Relation
from memagent.pages.charts import asset, digest_of
from memagent.pages.journal_words import title_of

Points = NDArray[np.floating]
"""Places (N, 2) in pixels at scale 1; also plain rows of numbers (N,)."""
_EXACT = 400
_STEPS = 220
_GRID = 14
# Length of an edge at rest, in pixels.
_GAP = 64.0
# Pull towards the middle: keeps what is linked to nothing within a disc that grows with the
# number of nodes.
_GRAVITY = 0.3
_GOLDEN = np.pi * (3.0 - np.sqrt(5.0))
COLUMN, ROW, ROWS = 30.0, 26.0, 22
"""Of the time line: least distance of nodes in a row and of rows in pixels, most rows a lane."""


def force_layout(count: int, links: Sequence[tuple[int, int, float]]) -> Points:
    """Return places (count, 2) around the origin for nodes linked as (node, node, pull).

    Nodes without a link stand in rows below.
    """
    tied = sorted({end for a, b, _ in links if a != b for end in (a, b)})
    at = {node: number for number, node in enumerate(tied)}
    places = np.zeros((count, 2))
    alone = [node for node in range(count) if node not in at]
    low = 0.0
    if tied:
        places[tied] = _settled(len(tied), [(at[a], at[b], pull) for a, b, pull in links if a != b])
        low = float(places[:, 1].max()) + _GAP
    across = max(1, int(np.ceil(np.sqrt(2.0 * len(alone)))))
    for number, node in enumerate(alone):
        row, column = divmod(number, across)
        places[node] = ((column - (across - 1) / 2.0) * _GAP * 0.7, low + row * _GAP * 0.7)
    return np.round(places, 1)


def _settled(count: int, links: Sequence[tuple[int, int, float]]) -> Points:
    """Return places of nodes that all have links."""
    turn = np.arange(count)
    radius = _GAP * 0.8 * np.sqrt(turn + 0.5)
    places = np.zeros((count, 2))
    places[_reached(count, links)] = np.stack(
        [radius * np.cos(turn * _GOLDEN), radius * np.sin(turn * _GOLDEN)], axis=1
    )
    mass: Points = 0.6 + 0.4 * np.sqrt(
        np.bincount([end for a, b, _ in links for end in (a, b)], minlength=count)
    )  # (N,)
    pairs = np.array([(a, b) for a, b, _ in links], dtype=np.intp)  # (E, 2)
    pulls = np.array([pull for _, _, pull in links])  # (E,)
    steps = _STEPS if count <= _EXACT else _STEPS // 3
    for step in range(steps):
        pushed = (
            _pushed_from(places, places, mass, near=4.0)
            if count <= _EXACT
            else _repelled_by_cells(places, mass)
        )
        moves = pushed * (_GAP**2 * mass)[:, None] - places * _GRAVITY
        apart = places[pairs[:, 1]] - places[pairs[:, 0]]  # (E, 2)
        drawn = apart * (np.linalg.norm(apart, axis=1) * pulls / _GAP)[:, None]
        moves += _summed(drawn, pairs[:, 0], count) - _summed(drawn, pairs[:, 1], count)
        length = np.linalg.norm(moves, axis=1, keepdims=True)
        most = _GAP * 2.0 * (1.0 - step / steps) + 1.0
        places = places + moves / np.maximum(length, 1e-9) * np.minimum(length, most)
    return _pushed_apart(places - places.mean(axis=0))


def time_layout(
    moments: Sequence[float | None], lanes: Sequence[int], links: Sequence[tuple[int, int, float]]
) -> tuple[Points, tuple[float, float, float, float] | None]:
    """Return places by time, one band a lane, and (first moment, last moment, x, x).

    The latter is None without any moment. Moments are epoch seconds; a node without one
    stands at the mean of its neighbours, or at the beginning.
    """
    known = [moment for moment in moments if moment is not None]
    count = len(moments)
    if not known:
        return np.zeros((count, 2)), None
    first, last = min(known), max(known)
    near: list[list[float]] = [[] for _ in range(count)]
    for a, b, _ in links:
        for node, other in ((a, b), (b, a)):
            if (moment := moments[other]) is not None:
                near[node].append(moment)
    at = [
        moment if moment is not None else fmean(near[node] or [first])
        for node, moment in enumerate(moments)
    ]
    width = 900.0
    places, height = _packed(at, lanes, first, width / (last - first) if last > first else 0.0)
    if last > first and height > width:  # at least as wide as high, as screens are
        width = height
        places, height = _packed(at, lanes, first, width / (last - first))
    places -= np.array([width / 2.0, height / 2.0])
    return np.round(places, 1), (
        first,
        last,
        -width / 2.0,
        width / 2.0 if last > first else -width / 2.0,
    )


def _packed(
    at: Sequence[float], lanes: Sequence[int], first: float, scale: float
) -> tuple[Points, float]:
    """Return places (N, 2) in bands, and the height of all bands.

    Each node stands in the first row that is free at its time.
    """
    places = np.zeros((len(at), 2))
    top = 0.0
    for lane in sorted(set(lanes)):
        rows: dict[int, float] = {}
        for node in sorted(
            (n for n in range(len(at)) if lanes[n] == lane), key=lambda n: (at[n], n)
        ):
            x = (at[node] - first) * scale
            free = next((row for row, end in sorted(rows.items()) if end + COLUMN <= x), None)
            if free is None and len(rows) < ROWS:
                free = len(rows)
            elif free is None:
                free = min(rows, key=lambda row: (rows[row], row))
                x = rows[free] + COLUMN
            rows[free] = x
            places[node] = (x, top + free * ROW)
        top += max(len(rows), 1) * ROW + 2.4 * ROW
    return places, top - 2.4 * ROW


def _reached(count: int, links: Sequence[tuple[int, int, float]]) -> list[int]:
    """Return nodes in order of breadth-first walks, each from the best connected node left."""
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b, _ in links:
        near[a].append(b)
        near[b].append(a)
    order: dict[int, None] = {}
    for start in sorted(range(count), key=lambda node: (-len(near[node]), node)):
        ring = dict.fromkeys({start} - order.keys())
        while ring:
            order |= ring
            ring = dict.fromkeys(
                other for node in ring for other in sorted(near[node]) if other not in order
            )
    return list(order)


def _repelled_by_cells(places: Points, mass: Points) -> Points:
    low, high = places.min(axis=0), places.max(axis=0)
    where = ((places - low) / np.maximum(high - low, 1e-9) * _GRID).astype(np.intp)
    cells = where.clip(0, _GRID - 1) @ np.array([_GRID, 1], dtype=np.intp)
    _, member, counts = np.unique(cells, return_inverse=True, return_counts=True)
    centres = _summed(places, member, len(counts)) / counts[:, None]  # (C, 2)
    weight = np.bincount(member, mass)
    narrow = [
        rows.astype(np.float32) for rows in (places, centres, weight)
    ]  # exact enough beside the softening, and half the work
    moves = _pushed_from(narrow[0], narrow[1], narrow[2], near=_GAP**2)
    return moves + _local(places, member, reach=_GAP) / _GAP


def _pushed_from(places: Points, centres: Points, mass: Points, *, near: float) -> Points:
    """Return pushes (N, 2) away from centres (C, 2) of a mass (C,).

    They fall off with distance; `near` (square pixels) softens what is close.
    """
    square = (
        (places**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2.0 * places @ centres.T
    )  # (N, C)
    force = mass / (np.maximum(square, 0.0) + near)
    return places * force.sum(axis=1)[:, None] - force @ centres


def _local(places: Points, cells: NDArray[np.intp], *, reach: float) -> Points:
    """Return pushes (N, 2) away from the nearest few on either side in the same cell.

    Each pair pushes by at most 1.
    """
    order = np.lexsort((places[:, 0], cells))
    moves = np.zeros_like(places)
    for shift in range(1, 7):
        left, right = order[:-shift], order[shift:]
        apart = places[right] - places[left]
        length = np.linalg.norm(apart, axis=1)
        near = (cells[left] == cells[right]) & (length < reach)
        push = (
            apart
            * (np.where(near, (reach - length) / reach, 0.0) / np.maximum(length, 1e-6))[:, None]
        )
        moves += _summed(push, right, len(places)) - _summed(push, left, len(places))
    return moves


def _summed(rows: Points, at: NDArray[np.intp], count: int) -> Points:
    """Add up rows (R, 2) by index (R,) into (count, 2)."""
    return np.stack([np.bincount(at, rows[:, axis], count) for axis in (0, 1)], axis=1).astype(
        np.float64
    )


def _pushed_apart(places: Points) -> Points:
    """Ease overlaps, within bands of a row's height and then within columns."""
    least = _GAP * 0.42
    for _ in range(30):
        for axis in (0, 1):
            turned = places if axis else places[:, ::-1]
            bands = np.floor((turned[:, 1] - turned[:, 1].min()) / least).astype(np.intp)
            push = _local(turned, bands, reach=least) * least * 0.5
            places = places + (push if axis else push[:, ::-1])
    return places


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
    moments = [moment.timestamp() if moment else None for moment in map(moment_of, document.nodes)]
    line, axis = time_layout(moments, lanes, links)
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


def moment_of(node: GraphNode | Event) -> datetime | None:
    """Return the time at which a node happened, or else was told."""
    span = node.valid
    return (span.start or span.end if span is not None else None) or node.said_at


def _iso(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at is not None else None
