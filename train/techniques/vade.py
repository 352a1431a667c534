"""The groups whose outcome is least certain, chosen before they are run (VADE).

Each group has a Beta(a, b) belief about its success rate, which fades toward the prior
as the policy moves (`SuccessHistory`). A rate p is drawn from it, the group's score is
p (1 - p), and the best scored are run. The draw keeps groups in play about which little
is known.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from train.rollouts.allocation import Even, SuccessHistory


@dataclass(frozen=True, kw_only=True)
class Vade(Even):
    """The most uncertain of `pool` times as many groups are run."""

    pool: int = 2

    def plan(
        self, names: Sequence[str], *, each: int, history: SuccessHistory, draws: random.Random
    ) -> list[int]:
        """Return `each` for one in `pool` groups (rounded up), 0 for the others."""
        rates = [draws.betavariate(*history.belief(name)) for name in names]
        best = sorted(
            range(len(names)), key=lambda place: (-rates[place] * (1.0 - rates[place]), place)
        )
        taken = set(best[: -(-len(names) // self.pool)])
        return [each if place in taken else 0 for place in range(len(names))]


vade = Vade()
