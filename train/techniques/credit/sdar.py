"""The policy that sees the right notes teaches the one that does not (SDAR, 2605.15155).

    d = log pi(token | prompt with hints) - log pi(token | prompt)
    A(token) = zscore(r) + weight * sigmoid(sharpness * d) * d

Teacher and student are one policy; the teacher's prompts also hold the session's right
notes. Where it would rather have said the token, the student is drawn there; what it
rejects counts less, since its hints may be misread. With the gate held at 1 the second
term is the policy gradient of -KL(student || teacher). Changed: the paper adds it as a
loss of its own; here it is an advantage a token, so the clip bounds it too.

Shapes: G members of a group, C tokens of a reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import tanh

from memagent.core.errors import ConfigError
from train.credit.advantages import group_zscore
from train.credit.groups import TokenValues
from train.credit.scored import ScoredGroup


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
                key: [score + pull for pull in self._pulls(own[key], taught.get(key, own[key]))]
                for key in member.response_ids
                if key in own
            }
            for member, score in zip(group.members, scores_G, strict=True)
        ]

    def _pulls(self, own_C: Sequence[float], taught_C: Sequence[float]) -> list[float]:
        apart_C = [taught - own for own, taught in zip(own_C, taught_C, strict=True)]
        return [
            self.weight * apart * (1 + tanh(self.sharpness * apart / 2)) / 2 for apart in apart_C
        ]
