"""A budget of runs spread over groups by their worth (Knapsack RL).

    value(n, p) = (1 - p^n - (1-p)^n) p (1-p)^2

is the chance that n runs of a group with success rate p differ, times how much there is
to learn from it; the second factor is our reading of the paper. Numbers n_i with a
given sum are chosen by dynamic programming, exactly. The rates are those of earlier
visits; a group never seen counts as one half. A group in which nothing succeeded, or
everything, is worth 0 at any number, so it would never get more than the least again: a
`fallback` share of what is left beyond the least goes to such groups, evenly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from train.errors import TrainFault
from train.rollouts.allocation import Even, SuccessHistory


def value(runs: int, rate: float) -> float:
    """Return the worth of a number of runs of a group with a success rate in [0, 1]."""
    return (1.0 - rate**runs - (1.0 - rate) ** runs) * rate * (1.0 - rate) ** 2 if runs else 0.0


def best_numbers(rates: Sequence[float], *, budget: int, least: int = 2) -> list[int]:
    """Return the runs of each group that are worth most together.

    Each group gets at least `least`; the numbers add up to `budget`. O(groups *
    budget^2). Raises `TrainFault` when the budget does not hold `least` for each group.
    """
    spare = budget - least * len(rates)
    if spare < 0:
        raise TrainFault(f"{budget} runs do not hold {least} for each of {len(rates)} groups")
    if not rates:
        return []
    best = [0.0] + [float("-inf")] * spare  # by runs beyond the least that the groups so far have
    chosen: list[list[int]] = []
    for rate in rates:
        worth = [value(least + more, rate) for more in range(spare + 1)]
        row: list[int] = []
        fresh: list[float] = []
        for total in range(spare + 1):
            more = max(
                range(total + 1), key=lambda more, total=total: best[total - more] + worth[more]
            )
            row.append(more)
            fresh.append(best[total - more] + worth[more])
        best, chosen = fresh, [*chosen, row]
    numbers: list[int] = []
    for row in reversed(chosen):
        numbers.append(least + row[spare])
        spare -= row[spare]
    return numbers[::-1]


@dataclass(frozen=True, kw_only=True)
class Knapsack(Even):
    """As many runs as without it, spread by the success rates of earlier visits."""

    fallback: float = 0.2
    """Share of the budget beyond the least for groups that look worthless."""

    def plan(
        self,
        names: Sequence[str],
        *,
        each: int,
        history: SuccessHistory,
        draws: random.Random,  # noqa: ARG002 - interface
    ) -> list[int]:
        """Return numbers that add up to `each` a group."""
        rates = [history.last(name) for name in names]
        least = min(2, each)
        lost = [place for place, rate in enumerate(rates) if rate in (0.0, 1.0)]
        spare = (each - least) * len(names)
        kept = int(self.fallback * spare) if lost else 0
        numbers = best_numbers(rates, budget=each * len(names) - kept, least=least)
        for turn in range(kept):
            numbers[lost[turn % len(lost)]] += 1
        return numbers


knapsack = Knapsack()
