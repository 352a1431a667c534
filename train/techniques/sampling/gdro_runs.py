"""Runs where rewards vary most (the half over rollouts of GDRO, arXiv 2601.19280).

    n_i = sqrt(p_i (1 - p_i) / price)

with the price at which the numbers add up to the budget: of all spreads of the budget
this one has the least variance of the mean gradient (our reading of the paper's shadow
price). p is the believed success rate; every group gets two runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from train.rollouts.allocation import Even, SuccessHistory


def spread_runs(rates: Sequence[float], *, budget: int, least: int = 2) -> list[int]:
    """Return numbers of runs that add up to the budget, in proportion to sqrt(p (1 - p)).

    Each group has at least `least`, as far as the budget holds them.
    """
    numbers = [min(least, budget // max(1, len(rates)))] * len(rates)
    worth = [(rate * (1 - rate)) ** 0.5 or 1e-9 for rate in rates]
    for _ in range(budget - sum(numbers)):  # the group that is shortest of its share gets one
        place = min(range(len(rates)), key=lambda i: ((numbers[i] + 1) / worth[i], i))
        numbers[place] += 1
    return numbers


@dataclass(frozen=True, kw_only=True)
class GdroRuns(Even):
    """As many runs as without it, spread by the variance of success."""

    def plan(
        self,
        names: Sequence[str],
        *,
        each: int,
        history: SuccessHistory,
        draws: random.Random,  # noqa: ARG002 - interface
    ) -> list[int]:
        """Return numbers that add up to `each` a group."""
        return spread_runs([history.mean(name) for name in names], budget=each * len(names))
