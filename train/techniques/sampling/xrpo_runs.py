"""Runs where one more would tell most (the allocator of XRPO, arXiv 2510.06672).

    h(n) = z s / sqrt(n)                      half-width of the mean reward's interval
    priority = h(n) - h(n + 1) + explore * sqrt(log(1 + T) / n)

Each run of the budget goes to the group whose priority is highest at that moment; n
counts the group's runs so far, T those of all groups. Changed: rewards count as
successes, so s = sqrt(p (1 - p)) with the believed rate p, and n begins with what the
belief rests on; z is the normal quantile where the paper takes Student's; and numbers are
fixed before a step instead of in rounds within it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import NormalDist

from train.rollouts.allocation import Even, SuccessHistory


def priority(rate: float, runs: float, total: float, *, z: float, explore: float) -> float:
    """Return what one more run of a group promises; `runs` of it and `total` were made."""
    spread = (rate * (1.0 - rate)) ** 0.5
    reduction = z * spread * (runs**-0.5 - (runs + 1.0) ** -0.5)
    return reduction + explore * (log(1.0 + total) / runs) ** 0.5


@dataclass(frozen=True, kw_only=True)
class XrpoRuns(Even):
    """As many runs as without it, each where the interval shrinks most."""

    confidence: float = 0.95
    explore: float = 0.05
    least: int = 2

    def plan(
        self,
        names: Sequence[str],
        *,
        each: int,
        history: SuccessHistory,
        draws: random.Random,  # noqa: ARG002 - interface
    ) -> list[int]:
        """Return numbers that add up to `each` a group; two for each at least, if they go."""
        z = NormalDist().inv_cdf(0.5 + self.confidence / 2.0)
        known = [max(1.0, sum(history.belief(name)) - 2.0) for name in names]
        rates = [history.mean(name) for name in names]
        numbers = [min(self.least, each)] * len(names)
        for _ in range(each * len(names) - sum(numbers)):
            runs = [old + new for old, new in zip(known, numbers, strict=True)]
            worth = [
                priority(rate, count, sum(runs), z=z, explore=self.explore)
                for rate, count in zip(rates, runs, strict=True)
            ]
            numbers[worth.index(max(worth))] += 1
        return numbers
