"""Additions to the hits of a search, and the cuts at its end.

Cuts are for near duplicates, the share of one session and a token budget. Each takes
hits in their order, best first, and gives positions to keep in that same order.

Additions are items that the best hits lead to: told beside them, of their sessions,
linked in the graph. Each adds rows to the pool of a search; none decides what comes
back. Filters hold for what is added as for what was found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Container, Hashable, Sequence
from math import ceil

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem
from memagent.events.visibility import expand
from memagent.search.fusion import Pool
from memagent.search.index import IndexView, Scoring
from memagent.search.segments import CONTEXT
from memagent.state.fold import BankState
from memagent.state.validation import matches

_FIXED = re.compile(r"\d+|(?<=[\w,] )[A-Z][\w'’-]+")
_CHARS_PER_TOKEN = 4


def fixed_words(text: str) -> tuple[str, ...]:
    """Return the numbers and capitalised words of a text, in which near duplicates agree."""
    return tuple(_FIXED.findall(text))


def word_overlap(words: frozenset[str], others: frozenset[str]) -> float:
    """Return the shared words as a part of all words, 0.0 to 1.0; 0.0 when both are empty."""
    together = len(words | others)
    return len(words & others) / together if together else 0.0


def collapse(
    frames: Sequence[Hashable], alike: Callable[[int, int], bool]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return each position to keep, with the positions that it stands for.

    A hit joins the first better one of the same frame that it is like. A frame holds
    what two hits must share to be compared at all, such as speaker and numbers.
    """
    joined: dict[int, list[int]] = {}
    heads: dict[Hashable, list[int]] = {}
    for at, frame in enumerate(frames):
        rivals = heads.setdefault(frame, [])
        head = next((head for head in rivals if alike(head, at)), None)
        if head is None:
            rivals.append(at)
            joined[at] = []
        else:
            joined[head].append(at)
    return [(head, tuple(others)) for head, others in joined.items()]


def quota(groups: Sequence[Hashable | None], *, most: int) -> list[int]:
    """Return positions of the first `most` of each group; None is no group and always kept."""
    counts: dict[Hashable, int] = {}
    kept: list[int] = []
    for at, group in enumerate(groups):
        if group is not None:
            counts[group] = counts.get(group, 0) + 1
        if group is None or counts[group] <= most:
            kept.append(at)
    return kept


def budget(costs: Sequence[int], *, most: int) -> list[int]:
    """Return positions that fit a budget: each is kept if the rest of the budget pays for it.

    So one long hit does not end the list.
    """
    left = most
    kept: list[int] = []
    for at, cost in enumerate(costs):
        if cost <= left:
            left -= cost
            kept.append(at)
    return kept


def token_estimate(text: str) -> int:
    """Estimate the tokens of a text by its characters; at least 1.

    A token has four characters, or one that is wide (Chinese, Japanese, Korean).
    """
    if text.isascii():
        return max(1, ceil(len(text) / _CHARS_PER_TOKEN))
    wide = sum(1 for char in text if unicodedata.east_asian_width(char) in "WF")
    return max(1, wide + ceil((len(text) - wide) / _CHARS_PER_TOKEN))


NEIGHBOUR_SHARE = 0.9
"""The share of a hit's score that a neighbour has, for each turn between them."""
SEEDS = 10
"""Best hits that the graph expansion starts from."""
TOLERANCE = 2e-3
"""Share of the walk that is followed no further; a walk touches about 1 / TOLERANCE nodes."""
SESSION_HITS = 10
"""Items ranked for each session searched once more."""


def add_neighbours(
    pool: Pool,
    rows: Sequence[int],
    *,
    distance: int,
    where: Filter,
    state: BankState,
    view: IndexView,
) -> None:
    """Add the items whose turns lie at most `distance` from a hit's; a row keeps a higher score.

    `rows` are the hits, best first.
    """
    sessions: dict[str, dict[int, list[MemoryItem]]] = {}
    for hit, base in [(pool.items[row], pool.scores[row]) for row in rows]:
        for session_id, places in _places(hit, state).items():
            if session_id not in sessions:
                # The session's items by the positions of their turns, in order of id.
                by_place = sessions[session_id] = {}
                of_session = view.of_session(session_id)
                for item in sorted(of_session, key=lambda item: item.id):
                    if where.empty or matches(item, where):
                        for place in _places(item, state).get(session_id, ()):
                            by_place.setdefault(place, []).append(item)
            near = {place + step for place in places for step in range(-distance, distance + 1)}
            for place in sorted(near - places):
                share = base * NEIGHBOUR_SHARE ** min(abs(place - own) for own in places)
                for item in sessions[session_id].get(place, ()):
                    fresh = item not in pool
                    row = pool.row(item, score=share)
                    if fresh or share > pool.scores[row]:
                        pool.scores[row] = share
                        pool.origins[row] = hit.id


def _places(item: MemoryItem, state: BankState) -> dict[str, set[int]]:
    """Return the positions of an item's source turns, by session."""
    places: dict[str, set[int]] = {}
    for turn_id in item.source_turn_ids:
        place = state.turns.get(turn_id)
        if place is not None:
            places.setdefault(place[0], set()).add(place[1])
    return places


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
    ranking = scoring.listed(
        scoring.cosines(k=SESSION_HITS * len(chosen), field=CONTEXT, where=only)
    )
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
