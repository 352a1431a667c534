"""The policy that sees the right notes teaches the one that does not (SDAR, 2605.15155).

    gate(token) = sigmoid(sharpness * (log T - log S))
    A(token)    = zscore(r) + weight * gate(token)

Teacher T and student S are one policy; the teacher's prompts also hold the session's
right notes. The paper's loss is gate * (log T - log S) with the gradient through log S
alone, so each token is drawn towards by its gate: wholly where the teacher would rather
have said it, hardly where the teacher rejects it, and never away from it. Changed: it is
an advantage a token, so the clip bounds it too. Replies without a teacher have none.

Shapes: G members of a group, C tokens of a reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import tanh

from memagent.core.errors import ConfigError
from train.credit.advantages import group_zscore
from train.credit.groups import ScoredGroup, TokenValues


class Sdar:
    """Adds a gated pull towards the teacher; groups that are flat are taught as well."""

    sees_flat = needs_teacher = True

    def __init__(self, *, weight: float = 0.01, sharpness: float = 5.0, flat: float = 0.01) -> None:
        if weight < 0 or sharpness < 0:
            raise ConfigError("sdar: weight and sharpness are at least 0")
        self.weight, self.sharpness, self.flat = weight, sharpness, flat

    def __call__(self, group: ScoredGroup) -> list[TokenValues]:
        """Return for each member the advantages (C,) of its replies, by response id."""
        alike = not len(group) or max(group) - min(group) <= self.flat
        scores_G = [0.0] * len(group) if alike else group_zscore(group)
        own, taught = group.logps, group.taught_logps
        return [
            {
                key: [score + pull for pull in self._pulls(own[key], taught.get(key))]
                for key in member.response_ids
                if key in own
            }
            for member, score in zip(group.members, scores_G, strict=True)
        ]

    def _pulls(self, own_C: Sequence[float], taught_C: Sequence[float] | None) -> list[float]:
        if taught_C is None:
            return [0.0] * len(own_C)
        apart_C = [taught - own for own, taught in zip(own_C, taught_C, strict=True)]
        return [self.weight * (1 + tanh(self.sharpness * apart / 2)) / 2 for apart in apart_C]
