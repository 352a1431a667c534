"""Items that the best hits lead to: told beside them, of their sessions, linked in the graph.

Each function adds rows to the pool of a search; none decides what comes back. Filters
hold for what is added as for what was found.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem
from memagent.events.expansion import expand
from memagent.search.fusion import Pool
from memagent.search.index import IndexView
from memagent.search.scoring import Scoring
from memagent.search.segments import CONTEXT
from memagent.state.fold import BankState
from memagent.state.matching import matches

NEIGHBOUR_SHARE = 0.9
"""The share of a hit's score that a neighbour has, for each turn between them."""
SEEDS = 10
"""Best hits that the graph expansion starts from."""
TOLERANCE = 2e-3
"""Share of the walk that is followed no further; a walk touches about 1 / TOLERANCE nodes."""
SESSION_HITS = 10
"""Items ranked for each session searched once more."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The source of neighbours: turns at most `distance` apart, under a filter."""

    distance: int
    where: Filter
    state: BankState
    view: IndexView

    def places(self, item: MemoryItem) -> dict[str, set[int]]:
        """Return the positions of an item's source turns, by session."""
        places: dict[str, set[int]] = {}
        for turn_id in item.source_turn_ids:
            place = self.state.turns.get(turn_id)
            if place is not None:
                places.setdefault(place[0], set()).add(place[1])
        return places

    def session(self, session_id: str) -> dict[int, list[MemoryItem]]:
        """Return a session's items by the positions of their turns, in order of id."""
        items: dict[int, list[MemoryItem]] = {}
        for item in sorted(self.view.of_session(session_id), key=lambda item: item.id):
            if self.where.empty or matches(item, self.where):
                for place in self.places(item).get(session_id, ()):
                    items.setdefault(place, []).append(item)
        return items


def add_neighbours(pool: Pool, rows: Sequence[int], beside: Beside) -> None:
    """Add the items whose turns lie close to a hit's; a row keeps a higher score.

    `rows` are the hits, best first.
    """
    sessions: dict[str, dict[int, list[MemoryItem]]] = {}
    distance = beside.distance
    for hit, base in [(pool.items[row], pool.scores[row]) for row in rows]:
        for session_id, places in beside.places(hit).items():
            if session_id not in sessions:
                sessions[session_id] = beside.session(session_id)
            near = {place + step for place in places for step in range(-distance, distance + 1)}
            for place in sorted(near - places):
                share = base * NEIGHBOUR_SHARE ** min(abs(place - own) for own in places)
                for item in sessions[session_id].get(place, ()):
                    fresh = item not in pool
                    row = pool.row(item, score=share)
                    if fresh or share > pool.scores[row]:
                        pool.scores[row] = share
                        pool.origins[row] = hit.id


def add_sessions(
    pool: Pool, rows: Sequence[int], scoring: Scoring, *, sessions: int, where: Filter
) -> None:
    """Add the items of the best hits' sessions, by cosine of their context with the query.

    `rows` are all rows of the pool, best first.
    """
    heads: dict[str, str] = {}
    """The best hit of each session."""
    for item in (pool.items[row] for row in rows):
        if item.session_id is not None:
            heads.setdefault(item.session_id, item.id)
    chosen = list(heads)[:sessions]
    if not chosen:
        return
    only = where.model_copy(update={"session_ids": frozenset(chosen)})
    ranking = scoring.nearest(k=SESSION_HITS * len(chosen), field=CONTEXT, where=only)
    fresh = [item for item, _ in ranking if item not in pool]
    pool.add("session", ranking, most=1.0)
    for item in fresh:
        if item.session_id is not None:
            pool.origins[pool.row(item)] = heads[item.session_id]


def add_graph(
    pool: Pool, rows: Sequence[int], *, most: int, hidden: Container[str], state: BankState
) -> None:
    """Add at most `most` items that the event graph leads to from the best hits.

    `rows` are the pool's, best first; the walk enters no `hidden` node.
    """
    seeds = {pool.items[row].id: 1.0 / rank for rank, row in enumerate(rows[:SEEDS], 1)}
    nodes = expand(
        state.graph, seeds, without=hidden, tolerance=TOLERANCE, limit=8 * (SEEDS + most)
    )
    reached = [
        (item, node)
        for node in nodes
        if node.via and (item := state.items.get(node.id)) is not None
    ][:most]
    if reached:
        ranking = [(item, node.score) for item, node in reached]
        pool.add("graph", ranking, most=reached[0][1].score)
        pool.paths = {pool.row(item): node.via for item, node in reached}
