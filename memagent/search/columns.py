"""The end of a plain search in columns: what `Fusion`, the weights and the order of
candidates say, for all documents at once.

Most searches add nothing to what the arms find and name no time. Theirs are worked out
here without a candidate for every document; only the k hits become records, and what
explains them is left out unless it is asked for. The numbers are those of the long way
to the last bit, since the same operations run in the same order; the tests compare both
on random memories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from memagent.core.recipes import Recipe
from memagent.core.records import MemoryItem
from memagent.search.fusion import ARM_WEIGHTS, ORDER_DECIMALS, Candidate
from memagent.search.index import IndexView
from memagent.search.scoring import Ranking, best_first, rounded
from memagent.search.segments import Floats
from memagent.search.weights import asking, length


def adds_nothing(recipe: Recipe) -> bool:
    """Whether a recipe only fuses its arms and weighs names, so that the columns say
    everything; a reranker is not its doing alone.
    """
    return not (
        recipe.sessions
        or recipe.graph
        or recipe.neighbours
        or recipe.importance
        or recipe.half_life_days is not None
        or recipe.collapse is not None
        or recipe.per_session is not None
        or recipe.max_tokens is not None
    )


def in_columns(
    arms: Mapping[str, Ranking],
    *,
    most: Mapping[str, float],
    pool: int,
    k: int,
    names: frozenset[str],
    names_weight: float,
    view: IndexView,
    explain: bool,
) -> list[Candidate]:
    """At most k items, best first, ties by id.

    `arms` and `most` are as for `Fusion.add`; `names` are those the query speaks of.
    """
    fused, listed, floors = np.zeros(view.size), np.zeros(view.size, bool), 0.0
    for name, (places, scores) in arms.items():
        weight = ARM_WEIGHTS[name] / max(most.get(name, 1.0), 1e-9)
        floor = max(float(scores.min()), 0.0) if len(scores) >= pool else 0.0
        floors += weight * floor
        fused[places] += weight * np.maximum(scores - floor, 0.0)
        listed[places] = True
    found = listed.nonzero()[0]
    factors = [_worth(view, _asking)[found], _worth(view, _length)[found]]
    if names:
        factors.insert(0, np.where(_named(view, names)[found], 1.0 + names_weight, 1.0))
    weights = factors[0]
    for factor in factors[1:]:
        weights = weights * factor
    sums = fused[found] + floors
    scores = sums * weights
    best = _best(scores, found, k, view)
    candidates = [Candidate(item) for item in view.items_at(found[best])]
    for one, score in zip(candidates, scores[best].tolist(), strict=True):
        one.score = score
    if explain:
        _explain(candidates, found[best], arms, view)
        labels = ("names", "asking", "length")[-len(factors) :]
        columns = (factor[best].tolist() for factor in factors)
        for one, total, *parts in zip(candidates, sums[best].tolist(), *columns, strict=True):
            one.fused, one.factors = total, dict(zip(labels, parts, strict=True))
    return candidates


def _best(
    scores: Floats, places: npt.NDArray[np.int64], k: int, view: IndexView
) -> npt.NDArray[np.int64]:
    """Positions of the k best, best first; scores that agree in nine decimals go by id."""
    values = rounded(scores, ORDER_DECIMALS)
    kept = np.arange(len(values))
    if len(values) > k:
        kept = (values >= np.partition(values, len(values) - k)[len(values) - k]).nonzero()[0]
    return kept[np.lexsort((view.order_of(places[kept]), -values[kept]))][:k]


def _asking(item: MemoryItem) -> float:
    return asking(item.text)


def _length(item: MemoryItem) -> float:
    return length(item.text)


def _worth(view: IndexView, rule: Callable[[MemoryItem], float]) -> Floats:
    """What a rule says of every document of the view (n,)."""
    columns = [part.segment.worth(rule) for part in view.pieces]
    return columns[0] if len(columns) == 1 else np.concatenate(columns) if columns else np.zeros(0)


def _named(view: IndexView, names: frozenset[str]) -> npt.NDArray[np.bool_]:
    """Whether each document of the view is by or about one of the names (n,)."""
    mask = np.zeros(view.size, bool)
    for part, offset in zip(view.pieces, view.offsets, strict=True):
        for name in names & part.segment.names:
            for field in ("speakers", "subjects"):
                at = part.segment.filed.get((field, name))
                if at is not None:
                    mask[at + offset] = True
    return mask


def _explain(
    candidates: list[Candidate],
    places: npt.NDArray[np.int64],
    arms: Mapping[str, Ranking],
    view: IndexView,
) -> None:
    """Write down each candidate's rank and score in every arm; `places` (k,) are the
    candidates' in the view.
    """
    candidate_at = np.full(view.size, -1)
    candidate_at[places] = np.arange(len(places))
    for name, ranking in arms.items():
        order = best_first(view, ranking)
        at = candidate_at[ranking.places[order]]
        for place in (at >= 0).nonzero()[0].tolist():
            one = candidates[int(at[place])]
            one.arms[name] = float(ranking.scores[order[place]])
            one.ranks[name] = place + 1
