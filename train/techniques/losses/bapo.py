"""Bounds of the clip that balance good and bad tokens (BAPO, arXiv 2510.18927).

Tokens with a negative advantage mostly outweigh the others. Before a slice is learned
from, the clip starts at `low[0]` and `high[0]`. While tokens with a positive advantage
contribute less than `share`, the upper bound grows by 0.05 up to `high[1]`, then the
lower one by 0.02 up to `low[1]`. A token contributes ratio * |advantage|, or nothing
where the clip takes its gradient away (our reading). It needs a ratio for each token.

Shapes: N tokens of a slice.
"""

from __future__ import annotations

from typing import Any

import torch

from memagent.core.errors import ConfigError
from train.credit.objectives import LossView, Objective

Bound = tuple[float, float]


def positive_share(ratio: torch.Tensor, advantages: torch.Tensor, low: float, high: float) -> float:
    """Return the positive tokens' part in what all (N,) contribute; 1 when none does."""
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

    def check(self, args: Any, /) -> None:
        """Refuse one ratio a row, which hardly moves, so that these bounds would not clip."""
        if args.importance_sampling_level != "token":
            raise ConfigError("bapo needs importance_sampling_level = 'token': it clips tokens")

    def prepare(self, view: LossView, /) -> None:
        """Find the bounds for a slice, by the ratios of its tokens."""
        mask = view.mask.bool()
        ratio = (view.logps.detach() - view.old_logps).exp()[mask]
        advantages = view.advantages.expand_as(view.logps)[mask]
        low, high = self.low[0], self.high[0]
        while positive_share(ratio, advantages, low, high) < self.share:
            if high < self.high[1]:
                high = min(self.high[1], high + self.steps[1])
            elif low < self.low[1]:
                low = min(self.low[1], low + self.steps[0])
            else:
                break
        self.present = (low, high)

    def bounds(self, view: LossView, /) -> tuple[float, float] | None:  # noqa: ARG002 - interface
        """Return the bounds as distances from 1."""
        return 1 - self.present[0], self.present[1] - 1
