"""Hints that keep success near one half (SEELE, arXiv 2509.06923).

    success = sigmoid(slope * (share - difficulty))

A session's next share of hints is where this curve, through its last success rate,
meets `target`: share + (logit(target) - logit(success)) / slope, within [0, 1]. Changed:
the paper fits the curve over several rounds inside a step; here a visit is a round and
the slope is fixed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from memagent.core.errors import ConfigError
from train.rollouts.allocation import accuracy
from train.rollouts.slots import Hinter


def logit(chance: float) -> float:
    """Return log(p / (1 - p)), with p cut to [0.05, 0.95]."""
    chance = min(0.95, max(0.05, chance))
    return log(chance / (1 - chance))


class Seele(Hinter):
    """Gives each session the share of hints at which half of its runs succeed."""

    def __init__(self, *, target: float = 0.5, slope: float = 4.0, start: float = 0.0) -> None:
        if not 0 < target < 1 or slope <= 0 or not 0 <= start <= 1:
            raise ConfigError("seele: target in (0, 1), slope above 0, start in [0, 1]")
        self.target, self.slope, self.start = target, slope, start
        self.shares: dict[str, float] = {}

    def share(self, name: str, draws: random.Random, /) -> float:
        """Return the share for the session's next visit."""
        del draws
        return self.shares.get(name, self.start)

    def see(self, name: str, rewards_G: Sequence[float], /) -> None:
        """Move the session's share by what its runs earned."""
        if rewards_G:
            missing = logit(self.target) - logit(accuracy(rewards_G))
            share = self.shares.get(name, self.start) + missing / self.slope
            self.shares[name] = min(1.0, max(0.0, share))

    def state(self) -> Mapping[str, Any]:
        """Return the shares."""
        return {"shares": self.shares}

    def load(self, state: Any, /) -> None:
        """Take the shares."""
        self.shares = dict(state["shares"])
