"""Evidence counts by its place in the group (EAPO, arXiv 2601.10306).

    r' = r + weight * (e - mean e) / (std e + 1e-6)        A = zscore(r')

e is the part of the reward that says how well an answer rests on evidence. Scoring it
relative to the group tells lucky guesses from grounded answers even where all answers
are right. Changed: the paper trains a reward model for e along with the policy; here e
is computed from the world (`evidence`), so there is nothing to train.

Shapes: G members of a group.
"""

from __future__ import annotations

from train.credit.advantages import group_zscore
from train.credit.scored import ScoredGroup


class Eapo:
    """Adds the group-relative evidence to the reward; needs `evidence` or another part."""

    sees_flat = True

    def __init__(self, *, weight: float = 0.3, part: str = "evidence") -> None:
        self.weight, self.part = weight, part

    def __call__(self, group: ScoredGroup) -> list[float]:
        """Return (G,) advantages; those of the reward alone when no member has the part."""
        evidence_G = group_zscore(group.parts_G(self.part))
        return group_zscore([r + self.weight * e for r, e in zip(group, evidence_G, strict=True)])
