"""Bounds of the clip that balance good and bad replies (BAPO, arXiv 2510.18927).

Rows with a negative advantage mostly outweigh the others. Before a slice is learned
from, the clip starts at `low[0]` and `high[0]`. While rows with a positive advantage
contribute less than `share`, the upper bound grows by 0.05 up to `high[1]`, then the
lower one by 0.02 up to `low[1]`. A row contributes ratio * |advantage|, or nothing where
the clip takes its gradient away (our reading).

Shapes: B rows, C completion.
"""

from __future__ import annotations

import torch

from train.credit.objectives import LossView, Objective

Bound = tuple[float, float]


def positive_share(ratio: torch.Tensor, advantages: torch.Tensor, low: float, high: float) -> float:
    """Return the positive rows' part in what all (B,) contribute; 1 when none does."""
    good = (ratio * advantages)[(advantages > 0) & (ratio <= high)].sum()
    bad = (ratio * advantages)[(advantages < 0) & (ratio >= low)].sum().abs()
    return float(good / (good + bad)) if good + bad > 0 else 1.0


class Bapo(Objective):
    """Sets the bounds anew for each slice."""

    looks_ahead = True

    def __init__(
        self, *, share: float = 0.4, low: Bound = (0.6, 0.9), high: Bound = (1.2, 3.0)
    ) -> None:
        self.share, self.low, self.high, self.steps = share, low, high, (0.02, 0.05)
        self.present = (low[0], high[0])

    def prepare(self, view: LossView, /) -> None:
        """Find the bounds for a slice, by the length-normalised ratio of its rows."""
        tokens = view.mask.sum(1).clamp(min=1)
        moved = (view.logps.detach() - view.old_logps) * view.mask
        ratio = (moved.sum(1) / tokens).exp()
        advantages = (view.advantages * view.mask).sum(1) / tokens
        low, high = self.low[0], self.high[0]
        while positive_share(ratio, advantages, low, high) < self.share:
            if high < self.high[1]:
                high = min(self.high[1], high + self.steps[1])
            elif low < self.low[1]:
                low = min(self.low[1], low + self.steps[0])
            else:
                break
        self.present = (low, high)

    def bounds(self, view: LossView, /) -> tuple[float, float] | None:
        """Return the bounds as distances from 1."""
        del view
        return 1 - self.present[0], self.present[1] - 1
