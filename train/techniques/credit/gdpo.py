"""Each part of the reward is standardised by itself (GDPO, arXiv 2601.05242).

    A = sum over the parts k of weight_k * (r_k - mean r_k) / (std r_k + 1e-6)

A sum of parts that is standardised as one mixes unlike rewards: very different parts
can add up to the same. `weights` names the parts; by default every part counts 1, so
costs need a negative weight. Changed: the paper standardises A over the whole batch as
well; groups are credited one by one here.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Mapping

from train.credit.advantages import group_zscore
from train.credit.scored import ScoredGroup


class Gdpo:
    """Estimates advantages by part; a group that is flat as a whole may still teach."""

    sees_flat = True

    def __init__(self, *, weights: Mapping[str, float] | None = None) -> None:
        self.weights = weights

    def __call__(self, group: ScoredGroup) -> list[float]:
        """Return (G,) advantages; those of the whole reward when it has no parts."""
        weights = self.weights or dict.fromkeys(group.part_names, 1.0)
        if not weights:
            return group_zscore(group)
        total_G = [0.0] * len(group)
        for name, weight in weights.items():
            scores_G = group_zscore(group.parts_G(name))
            total_G = [
                total + weight * score for total, score in zip(total_G, scores_G, strict=True)
            ]
        return total_G
