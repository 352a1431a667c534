"""Places for the nodes of a graph, without anything random: by force, and along time.

By force (Fruchterman and Reingold): linked nodes attract, all repel, steps shrink. Up
to `_EXACT` nodes every pair repels; beyond, a node is repelled by the centres of a
grid's cells, and neighbours within a cell are pushed apart. Nodes start on a spiral, in
the order in which a walk from the best connected one reaches them, so near nodes start
near.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.floating]
"""Places (N, 2) in pixels at scale 1; also plain rows of numbers (N,)."""
_EXACT = 400
_STEPS = 220
_GRID = 14
_GAP = 64.0
"""Length of an edge at rest, in pixels."""
_GRAVITY = 0.3
"""Pull towards the middle: keeps what is linked to nothing within a disc that grows with
the number of nodes.
"""
_GOLDEN = np.pi * (3.0 - np.sqrt(5.0))
_SHAPE = 1.0
"""The least width of the time line to its height."""
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
    places = _spiral(_reached(count, links))
    mass: Points = 0.6 + 0.4 * np.sqrt(
        np.bincount([end for a, b, _ in links for end in (a, b)], minlength=count)
    )  # (N,)
    pairs = np.array([(a, b) for a, b, _ in links], dtype=np.intp)  # (E, 2)
    pulls = np.array([pull for _, _, pull in links])  # (E,)
    steps = _STEPS if count <= _EXACT else _STEPS // 3
    repel = _repelled if count <= _EXACT else _repelled_by_cells
    for step in range(steps):
        moves = repel(places, mass) * (_GAP**2 * mass)[:, None] - places * _GRAVITY
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
    if last > first and height * _SHAPE > width:  # wide as screens are
        width = height * _SHAPE
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
    order: list[int] = []
    seen: set[int] = set()
    for start in sorted(range(count), key=lambda node: (-len(near[node]), node)):
        if start in seen:
            continue
        seen.add(start)
        ring = [start]
        while ring:
            order += ring
            following = dict.fromkeys(
                other for node in ring for other in sorted(near[node]) if other not in seen
            )
            seen.update(following)
            ring = list(following)
    return order


def _spiral(order: Sequence[int]) -> Points:
    places = np.zeros((len(order), 2))
    turn = np.arange(len(order))
    radius = _GAP * 0.8 * np.sqrt(turn + 0.5)
    places[list(order)] = np.stack(
        [radius * np.cos(turn * _GOLDEN), radius * np.sin(turn * _GOLDEN)], axis=1
    )
    return places


def _repelled(places: Points, mass: Points) -> Points:
    return _pushed_from(places, places, mass, near=4.0)


def _repelled_by_cells(places: Points, mass: Points) -> Points:
    _, member, counts = np.unique(_cells(places, _GRID), return_inverse=True, return_counts=True)
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


def _cells(places: Points, side: int) -> NDArray[np.intp]:
    low, high = places.min(axis=0), places.max(axis=0)
    where = ((places - low) / np.maximum(high - low, 1e-9) * side).astype(np.intp).clip(0, side - 1)
    return where[:, 0] * side + where[:, 1]


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
