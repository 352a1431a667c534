"""Each part of the reward is standardised by itself (GDPO, arXiv 2601.05242).

    A = sum over the parts k of weight_k * (r_k - mean r_k) / (std r_k + 1e-6)

A sum of parts that is standardised as one mixes unlike rewards: very different parts
can add up to the same. The weights are those of the run's own reward, so a cost stays a
cost; `weights` replaces them. Parts without weight are left out, and so are those whose
weighed amounts differ by `flat_tolerance` at most. Changed: the paper standardises A
over the whole batch as well; groups are credited one by one here.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memagent.core.errors import ConfigError
from train.credit.advantages import group_zscore
from train.credit.groups import ScoredGroup


class ByParts:
    """An estimator over the parts of the reward; a group that is flat as a whole may teach."""

    sees_flat = needs_parts = True

    def check(self, args: Any, /) -> None:
        """Refuse credit by chunk or call: the parts are those of whole sessions."""
        if args.credit_unit != "session":
            raise ConfigError(
                f"{type(self).__name__.lower()} needs credit_unit = 'session': the parts of the "
                f"reward are known for whole sessions; it is {args.credit_unit!r}"
            )


class Gdpo(ByParts):
    """Adds the standardised parts by the weights of the reward."""

    def __init__(self, *, weights: Mapping[str, float] | None = None) -> None:
        self.weights = weights

    def __call__(self, group: ScoredGroup) -> list[float]:
        """Return (G,) advantages."""
        total_G = [0.0] * len(group)
        for weight, amounts_G in group.weighed_parts(self.weights).values():
            scores_G = group_zscore(amounts_G)
            total_G = [
                total + weight * score for total, score in zip(total_G, scores_G, strict=True)
            ]
        return total_G
