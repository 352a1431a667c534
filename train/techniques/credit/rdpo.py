"""Parts of the reward are ranked and decorrelated before they are added (RDPO, 2605.13641).

    q_k = normal quantile of (rank_k - 1/2) / G, ties in the middle, to unit spread
    Y   = Q R^(-1/2)                  R: correlations of the parts, shrunk towards 1
    A   = sum over k of weight_k * m_k * Y_k          m_k = min(1, range_k / full)

Whitening counts once what several parts say alike. The weights are those of the run's own
reward, so a cost stays a cost; `weights` replaces them. m_k and the shrinking are our
reading.

Shapes: G members of a group, K active parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import torch

from memagent.core.errors import ConfigError
from train.credit.advantages import group_zscore
from train.credit.groups import ScoredGroup
from train.techniques.credit.gdpo import ByParts


def normal_scores(values_G: Sequence[float]) -> list[float]:
    """Return (G,) standardised normal quantiles of the mid-ranks."""
    order, normal = sorted(values_G), NormalDist()
    ranks_G = [order.index(value) + order.count(value) / 2 for value in values_G]
    return group_zscore([normal.inv_cdf(rank / len(order)) for rank in ranks_G])


def whitened(scores_GK: torch.Tensor, shrink: float) -> torch.Tensor:
    """Return (G, K) columns without correlation; `shrink` 1 leaves them as they are."""
    members, parts = scores_GK.shape
    seen = (1 - shrink) * scores_GK.T @ scores_GK / (members - 1)
    values, axes = torch.linalg.eigh(seen + shrink * torch.eye(parts, dtype=seen.dtype))
    return scores_GK @ axes @ torch.diag(values.clamp(min=1e-9).rsqrt()) @ axes.T


class Rdpo(ByParts):
    """Estimates advantages from whitened parts, by the weights of the run's own reward."""

    def __init__(
        self, *, weights: Mapping[str, float] | None = None, shrink: float = 0.1, full: float = 0.1
    ) -> None:
        self.weights = weights
        if not 0 < shrink <= 1 or full <= 0:
            raise ConfigError("rdpo: shrink in (0, 1], full above 0")
        self.shrink, self.full = shrink, full

    def __call__(self, group: ScoredGroup) -> list[float]:
        """Return (G,) advantages; zeros where no part differs."""
        active = list(group.weighed_parts(self.weights).values())
        if not active:
            return [0.0] * len(group)
        scores = torch.tensor([normal_scores(v) for _, v in active], dtype=torch.float64).T
        sizes = [weight * min(1.0, (max(v) - min(v)) / self.full) for weight, v in active]
        return (whitened(scores, self.shrink) @ torch.tensor(sizes, dtype=scores.dtype)).tolist()
