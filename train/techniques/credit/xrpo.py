"""Unusual successes count more (the novelty bonus of XRPO, arXiv 2510.06672).

    novelty = exp(s - mean s)             s: a member's mean log-probability a token
    A+ = A + min(max(bonus * (1 - novelty), 0), cap * A)          for successes

A right answer that the policy found unlikely is worth more than one it gives anyway.
The paper's spread of rollouts is `xrpo_runs`; its examples in the prompt are left out.

Shapes: G members of a group.
"""

from __future__ import annotations

from math import exp
from statistics import fmean

from train.credit.advantages import group_zscore
from train.credit.groups import ScoredGroup


class Xrpo:
    """Sharpens the advantages of successes by their novelty."""

    def __init__(self, *, bonus: float = 0.5, cap: float = 0.5, success: float = 0.5) -> None:
        self.bonus, self.cap, self.success = bonus, cap, success

    def __call__(self, group: ScoredGroup) -> list[float]:
        """Return (G,) advantages."""
        likely_G = group.mean_logps_G
        usual = fmean(likely_G)
        return [
            self._sharpened(advantage, exp(likely - usual)) if reward >= self.success else advantage
            for advantage, likely, reward in zip(group_zscore(group), likely_G, group, strict=True)
        ]

    def _sharpened(self, advantage: float, novelty: float) -> float:
        bonus = max(self.bonus * (1 - novelty), 0.0)
        return advantage + min(bonus, self.cap * max(advantage, 0.0))
