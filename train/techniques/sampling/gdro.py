"""Hard episodes are played most (the half over prompts of GDRO, arXiv 2601.19280).

Episodes fall into bins by their mean reward. Bins are drawn by weights that grow with
their loss, w <- w * exp(rate * loss / chance); `explore` mixes in a uniform draw. The
half over rollouts is `train.techniques.sampling.gdro_runs`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from train.rollouts.allocation import accuracy
from train.rollouts.slots import EpisodeSampler


class Gdro(EpisodeSampler):
    """Draws bins of episodes by weights that follow the loss."""

    def __init__(self, *, bins: int = 4, rate: float = 0.1, explore: float = 0.2) -> None:
        self.rate, self.explore, self.weights = rate, explore, [1.0] * bins
        self.rewards: dict[int, float] = {}

    def bin_of(self, place: int) -> int:
        """Return the bin of an episode; the middle one before its first visit."""
        bins = len(self.weights)
        return min(bins - 1, int(self.rewards.get(place, 0.5) * bins))

    def chance(self, bin: int) -> float:
        """Return the chance of a bin."""
        share = self.weights[bin] / sum(self.weights)
        return (1 - self.explore) * share + self.explore / len(self.weights)

    def choose(self, batch: int, *, seed: int, episodes: int, size: int) -> list[int]:
        """Return the places drawn; raises `TrainFault` for fewer episodes than `size`."""
        super().choose(batch, seed=seed, episodes=episodes, size=size)
        draws = random.Random(f"{seed}/gdro/{batch}")
        bins = [self.bin_of(place) for place in range(episodes)]
        keys = [draws.random() ** (bins.count(bin) / self.chance(bin)) for bin in bins]
        return sorted(range(episodes), key=lambda place: -keys[place])[:size]

    def see(self, rewards: Mapping[int, Sequence[float]], /) -> None:
        """Move the weight of each bin by the loss of its episodes."""
        for place, values in rewards.items():
            bin, loss = self.bin_of(place), 1 - accuracy(values)
            self.weights[bin] *= exp(self.rate * loss / self.chance(bin))
            self.rewards[place] = 1 - loss
        self.weights = [weight / max(self.weights) for weight in self.weights]

    def state(self) -> Mapping[str, Any]:
        """Return weights and rewards."""
        return {"weights": self.weights, "rewards": {str(p): r for p, r in self.rewards.items()}}

    def load(self, state: Any, /) -> None:
        """Take weights and rewards."""
        self.weights = list(state["weights"])
        self.rewards = {int(place): reward for place, reward in state["rewards"].items()}
