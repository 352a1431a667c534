"""What the best hits lead to: items told beside them, more of their sessions, and what
the event graph links to them.

Each gives candidates or a ranking to the search; none decides what is shown. Filters
hold for what is added as for what was found.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem
from memagent.events.expansion import expand
from memagent.events.visibility import OutOfSight
from memagent.search.fusion import Candidate
from memagent.search.index import IndexView, Scored, Scoring
from memagent.search.segments import CONTEXT
from memagent.state.adjacency import Path
from memagent.state.fold import BankState
from memagent.state.matching import matches

NEIGHBOUR_SHARE = 0.9
"""What a neighbour has of the score of the hit beside it, for each turn between them."""
SEEDS = 10
"""Best hits that the graph expansion starts from."""
TOLERANCE = 2e-3
"""Share of the walk that is followed no further; the walk touches about so many nodes as
this goes into 1.
"""
SESSION_HITS = 10
"""Items ranked for each session searched once more."""


def add_neighbours(
    hits: Sequence[Candidate],
    found: dict[str, Candidate],
    *,
    distance: int,
    where: Filter,
    state: BankState,
    view: IndexView,
) -> None:
    """Put the items whose turns lie within `distance` turns of a hit's into `found`; a
    higher score that one has there stays.
    """
    tellers: dict[str, dict[int, list[MemoryItem]]] = {}
    for hit, base in [(hit, hit.fused) for hit in hits]:
        for session_id, places in _places(hit.item, state).items():
            if session_id not in tellers:
                tellers[session_id] = _by_place(session_id, where, state, view)
            near = {
                place + step for place in places for step in range(-distance, distance + 1)
            } - places
            for place in sorted(near):
                share = base * NEIGHBOUR_SHARE ** min(abs(place - own) for own in places)
                for item in tellers[session_id].get(place, ()):
                    known = found.get(item.id)
                    if known is None:
                        found[item.id] = Candidate(item, fused=share, expanded_from=hit.id)
                    elif share > known.fused:
                        known.fused = known.score = share
                        known.expanded_from = hit.id


def _places(item: MemoryItem, state: BankState) -> dict[str, set[int]]:
    """Positions of an item's source turns, by session."""
    places: dict[str, set[int]] = {}
    for turn_id in item.source_turn_ids:
        place = state.turns.get(turn_id)
        if place is not None:
            places.setdefault(place[0], set()).add(place[1])
    return places


def _by_place(
    session_id: str, where: Filter, state: BankState, view: IndexView
) -> dict[int, list[MemoryItem]]:
    """Items of a session by the positions of the turns they rest on, those of one
    position in order of id.
    """
    found: dict[int, list[MemoryItem]] = {}
    for item in sorted(view.of_session(session_id), key=lambda item: item.id):
        if where.empty or matches(item, where):
            for place in _places(item, state).get(session_id, ()):
                found.setdefault(place, []).append(item)
    return found


def session_ranking(
    order: Sequence[Candidate], scoring: Scoring, *, sessions: int, where: Filter
) -> list[Scored]:
    """Items of the best hits' sessions by cosine of their context with the query, best
    first; [] when no hit has a session.
    """
    chosen = dict.fromkeys(one.item.session_id for one in order if one.item.session_id is not None)
    some = list(chosen)[:sessions]
    if not some:
        return []
    only = where.model_copy(update={"session_ids": frozenset(some)})
    return scoring.nearest(k=SESSION_HITS * len(some), field=CONTEXT, where=only)


def graph_ranking(
    order: Sequence[Candidate],
    *,
    most: int,
    where: Filter,
    state: BankState,
    expired: Container[str],
) -> list[tuple[MemoryItem, float, Path]]:
    """(item, share of the walk, path) of items that the event graph leads to from the
    best hits, best first; the seeds are left out.
    """
    seeds = {one.id: 1.0 / rank for rank, one in enumerate(order[:SEEDS], 1)}
    hidden = OutOfSight(state, where, expired)
    reached: list[tuple[MemoryItem, float, Path]] = []
    for node in expand(
        state.graph, seeds, without=hidden, tolerance=TOLERANCE, limit=8 * (SEEDS + most)
    ):
        item = state.items.get(node.id)
        if item is not None and node.via:
            reached.append((item, node.score, node.via))
    return reached[:most]
