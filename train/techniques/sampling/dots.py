"""Episodes of middling difficulty (DOTS, arXiv 2506.05316).

    chance of an episode ~ exp(-|d - target| / temperature)       d = 1 - mean reward

d is smoothed over visits. An episode never played has d = `target`. Changed: the paper
predicts d of unseen questions from a small reference set. Its replay of rollouts is
`train.techniques.sampling.replay`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from train.rollouts.allocation import accuracy
from train.rollouts.slots import EpisodeSampler


class Dots(EpisodeSampler):
    """Draws episodes without repetition inside a batch."""

    def __init__(
        self, *, target: float = 0.5, temperature: float = 0.2, decay: float = 0.5
    ) -> None:
        self.target, self.temperature, self.decay = target, temperature, decay
        self.difficulty: dict[int, float] = {}

    def choose(self, batch: int, *, seed: int, episodes: int, size: int) -> list[int]:
        """Return the places drawn; raises `TrainFault` for fewer episodes than `size`."""
        super().choose(batch, seed=seed, episodes=episodes, size=size)
        draws = random.Random(f"{seed}/dots/{batch}")
        keys = {  # the largest of u^(1/w) are a weighted draw without repetition
            place: draws.random() ** (1 / self._weight(place)) for place in range(episodes)
        }
        return sorted(keys, key=lambda place: -keys[place])[:size]

    def _weight(self, place: int) -> float:
        distance = abs(self.difficulty.get(place, self.target) - self.target)
        return exp(-distance / self.temperature)

    def see(self, rewards: Mapping[int, Sequence[float]], /) -> None:
        """Take in what episodes earned."""
        for place, values in rewards.items():
            fresh = 1 - accuracy(values)
            known = self.difficulty.get(place, fresh)
            self.difficulty[place] = self.decay * known + (1 - self.decay) * fresh

    def state(self) -> Mapping[str, Any]:
        """Return the difficulties."""
        return {"difficulty": {str(place): value for place, value in self.difficulty.items()}}

    def load(self, state: Any, /) -> None:
        """Take the difficulties."""
        self.difficulty = {int(place): value for place, value in state["difficulty"].items()}
