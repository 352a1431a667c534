"""Hints that keep success near one half (SEELE, arXiv 2509.06923).

    success = sigmoid(slope * (share - difficulty))

Slope and difficulty of the curve of a kind of session are fitted to the pairs (share of hints,
success) of its last visits, of which the newest counts most. The next share is where the
curve meets `target`, within [0, 1]. Changed: the paper fits over several rounds inside a
step; here a visit is a round.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any, Final

from memagent.core.errors import ConfigError
from train.rollouts.allocation import accuracy
from train.rollouts.slots import Hinter

SLOPES: Final = (2.0, 4.0, 8.0, 16.0)
PLACES: Final = tuple(place / 50 - 0.5 for place in range(101))
"""Difficulties that are tried."""


def fitted(seen: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return (slope, difficulty) of the likeliest curve; the newest pair comes last."""

    def misfit(curve: tuple[float, float]) -> float:
        cost = 0.02 * (abs(log(curve[0] / 4.0)) + abs(curve[1] - 0.5))
        for age, (share, success) in enumerate(reversed(seen)):
            chance = 1 / (1 + exp(-curve[0] * (share - curve[1])))
            cost -= 0.7**age * (success * log(chance) + (1 - success) * log(1 - chance))
        return cost

    return min(((slope, place) for slope in SLOPES for place in PLACES), key=misfit)


class Seele(Hinter):
    """Gives each session the share of hints at which half of its runs succeed."""

    def __init__(self, *, target: float = 0.5, start: float = 0.0) -> None:
        if not 0 < target < 1 or not 0 <= start <= 1:
            raise ConfigError("seele: target in (0, 1), start in [0, 1]")
        self.target, self.start = target, start
        self.shares: dict[str, float] = {}
        self.given: dict[str, float] = {}
        """Shares that the present step showed; sessions of one kind end one after another."""
        self.seen: dict[str, list[tuple[float, float]]] = {}

    def share(self, name: str, draws: random.Random, /) -> float:
        """Return the share for the kind's next visit."""
        del draws
        self.given[name] = self.shares.get(name, self.start)
        return self.given[name]

    def see(self, name: str, rewards_G: Sequence[float], /) -> None:
        """Fit the kind's curve to what the runs of a session earned, and move its share."""
        if rewards_G:
            given = self.given.get(name, self.start)
            self.seen[name] = [*self.seen.get(name, []), (given, accuracy(rewards_G))][-6:]
            slope, place = fitted(self.seen[name])
            share = place + log(self.target / (1 - self.target)) / slope
            self.shares[name] = min(1.0, max(0.0, share))

    def state(self) -> Mapping[str, Any]:
        """Return the shares and the pairs they were fitted to."""
        return {"shares": self.shares, "given": self.given, "seen": self.seen}

    def load(self, state: Any, /) -> None:
        """Take the shares and the pairs."""
        self.shares = dict(state["shares"])
        self.given = dict(state.get("given", self.shares))
        seen = state.get("seen", {})
        self.seen = {name: [(at, won) for at, won in pairs] for name, pairs in seen.items()}
