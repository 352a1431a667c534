"""Parts of the reward are ranked and decorrelated before they are added (RDPO, 2605.13641).

    q_k = normal quantile of (rank_k - 1/2) / G, ties in the middle, to unit spread
    Y   = Q R^(-1/2)                  R: correlations of the parts, shrunk towards 1
    A   = sum over k of weight_k * m_k * Y_k          m_k = min(1, range_k / full)

Whitening counts once what several parts say alike. m_k and the shrinking are our reading.

Shapes: G members of a group, K active parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import torch

from memagent.core.errors import ConfigError
from train.credit.advantages import group_zscore
from train.credit.scored import ScoredGroup


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


class Rdpo:
    """Estimates advantages from whitened parts; `weights` names them, else all count 1."""

    sees_flat = True

    def __init__(
        self, *, weights: Mapping[str, float] | None = None, shrink: float = 0.1, full: float = 0.1
    ) -> None:
        if not 0 < shrink <= 1 or full <= 0:
            raise ConfigError("rdpo: shrink in (0, 1], full above 0")
        self.weights, self.shrink, self.full = weights, shrink, full

    def __call__(self, group: ScoredGroup) -> list[float]:
        """Return (G,) advantages; those of the whole reward when it has no parts."""
        weights = self.weights or dict.fromkeys(group.part_names, 1.0)
        parts = {name: group.parts_G(name) for name in weights}
        active = {n: max(v) - min(v) for n, v in parts.items() if len(set(v)) > 1}
        if not active:
            return [0.0] * len(group) if weights else group_zscore(group)
        scores = torch.tensor([normal_scores(parts[n]) for n in active], dtype=torch.float64).T
        sizes = [weights[n] * min(1.0, apart / self.full) for n, apart in active.items()]
        return (whitened(scores, self.shrink) @ torch.tensor(sizes, dtype=scores.dtype)).tolist()
