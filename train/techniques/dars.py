"""More runs for hard groups after a first look (DARS, depth-breadth synergy).

N runs show an accuracy p (0 counts as 0.5 / N). With S = 2 p (1 - p), the chance that
two runs differ,

    equal treatment       ceil((N/2 - N S) / S)
    hardness-weighted     ceil(((1 - p) N - N S) / S)

further runs are made, none for p of one half and more, and no more than make `cap` in
all. Every further run starts where the first ones did, under the same policy, so the
group stays comparable; what the first look shows decides only how many there are.

These numbers are for advantages that are not divided by the spread, `estimator =
"mean"`. What a group teaches is the sum of its |advantages|: 2 p (1 - p) a run there,
and 2 sqrt(p (1 - p)) with standardised ones. `dars_standardised` takes that for S, with
N and 2 (1 - p) N, the values of S at one half, in the place of N/2 and (1 - p) N.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from train.rollouts.allocation import Even, accuracy


def further_runs(
    accuracy: float,
    runs: int,
    *,
    hardness: bool = False,
    standardised: bool = False,
    cap: int | None = None,
) -> int:
    """Return the runs to add to a group whose first `runs` had this accuracy, in [0, 1]."""
    p = Fraction(accuracy).limit_denominator(max(1, runs) * 1_000) or Fraction(1, 2 * runs)
    if p >= Fraction(1, 2):
        return 0
    target = (1 - p) * runs if hardness else Fraction(runs, 2)
    spread = 2 * p * (1 - p)
    if standardised:
        spread, target = Fraction(2 * float(p * (1 - p)) ** 0.5), 2 * target
    more = max(0, ceil((target - runs * spread) / spread))
    return more if cap is None else max(0, min(more, cap - runs))


@dataclass(frozen=True, kw_only=True)
class Dars(Even):
    """Every group gets the same first look, hard ones more.

    The caps are those of the paper's tables: 4 and 8 times the first look.
    """

    hardness: bool = False
    standardised: bool = False
    """Whether the estimator divides by the spread."""

    def more(self, rewards_G: Sequence[float], /) -> int:
        """Return `further_runs` for the group's accuracy."""
        runs = len(rewards_G)
        if not runs:
            return 0
        return further_runs(
            accuracy(rewards_G),
            runs,
            hardness=self.hardness,
            standardised=self.standardised,
            cap=(8 if self.hardness else 4) * runs,
        )


dars = Dars()
dars_hardness = Dars(hardness=True)
dars_standardised = Dars(standardised=True)
