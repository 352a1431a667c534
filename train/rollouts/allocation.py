"""Allocation: the number of runs that each group of a step gets.

Techniques fill this slot. It concerns groups that
share their start: reruns of a session from one memory, answers to one question from one
memory. Any number of them may be compared, so runs can go where they teach most. Whole
rollouts stay n for every episode, as TRL lays its batches out.

Rewards count as successes by their part in [0, 1], so a group need not be right or
wrong.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol


def accuracy(rewards_G: Sequence[float]) -> float:
    """Return the mean success of (G,) rewards, each cut to [0, 1]; 0 without any."""
    return fmean(min(1.0, max(0.0, reward)) for reward in rewards_G) if rewards_G else 0.0


@dataclass(kw_only=True)
class SuccessHistory:
    """Beta(a, b) beliefs about the success rate of kinds of groups; the prior is Beta(1, 1)."""

    decay: float = 0.9
    """Share of a belief's distance from the prior that is left after each update of the
    policy, visited or not; 1 never forgets.
    """
    version: int = 0
    """Version of the policy that plays now."""
    beliefs: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    rates: dict[str, float] = field(default_factory=dict[str, float])
    """Accuracy in the last step that met the kind, over all its groups."""
    runs: dict[str, int] = field(default_factory=dict[str, int])
    """Runs that it rests on."""
    versions: dict[str, int] = field(default_factory=dict[str, int])
    """Version of the policy at the last visit."""

    def see(self, name: str, rewards_G: Sequence[float]) -> None:
        """Take in the rewards of one group; nothing changes without any."""
        if not rewards_G:
            return
        a, b = self.belief(name)
        won = accuracy(rewards_G) * len(rewards_G)
        self.beliefs[name] = (a + won, b + len(rewards_G) - won)
        same = self.runs.get(name, 0) if self.versions.get(name) == self.version else 0
        self.runs[name] = same + len(rewards_G)
        self.rates[name] = (same * self.last(name) + won) / self.runs[name]
        self.versions[name] = self.version

    def belief(self, name: str) -> tuple[float, float]:
        """Return (a, b) of a group, faded by the updates since; the prior for one never seen."""
        a, b = self.beliefs.get(name, (1.0, 1.0))
        left = self.decay ** max(0, self.version - self.versions.get(name, self.version))
        return 1.0 + left * (a - 1.0), 1.0 + left * (b - 1.0)

    def mean(self, name: str) -> float:
        """Return the believed success rate."""
        a, b = self.belief(name)
        return a / (a + b)

    def last(self, name: str) -> float:
        """Return the accuracy in the last step that met it; 0.5 for a kind never seen."""
        return self.rates.get(name, 0.5)

    def state(self) -> dict[str, Any]:
        """Return the history as plain values."""
        return {
            "beliefs": {name: list(belief) for name, belief in self.beliefs.items()},
            "rates": dict(self.rates),
            "runs": dict(self.runs),
            "versions": dict(self.versions),
            "version": self.version,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over the values that `state` gave."""
        self.beliefs = {name: (float(a), float(b)) for name, (a, b) in state["beliefs"].items()}
        self.rates = {name: float(rate) for name, rate in state["rates"].items()}
        self.runs = {name: int(count) for name, count in state.get("runs", {}).items()}
        self.version = int(state.get("version", 0))
        self.versions = {name: int(value) for name, value in state.get("versions", {}).items()}


class Allocator(Protocol):
    """Decides how many runs groups get; stateless, since it is given all it may look at."""

    @property
    def pool(self) -> int:
        """Groups drawn for each group that is to be run."""
        ...

    def plan(
        self, names: Sequence[str], *, each: int, history: SuccessHistory, draws: random.Random
    ) -> Sequence[int]:
        """Return the runs of each named group before any of them is run, 0 for none.

        Together they are at most `each` a group that is to be run.
        """
        ...

    def more(self, rewards_G: Sequence[float], /) -> int:
        """Return the number of further runs of a group whose first ones earned this."""
        ...


@dataclass(frozen=True, kw_only=True)
class Even:
    """The same number for every group; the base of techniques that change one half of it."""

    pool: int = 1

    def plan(
        self,
        names: Sequence[str],
        *,
        each: int,
        history: SuccessHistory,  # noqa: ARG002 - interface
        draws: random.Random,  # noqa: ARG002 - interface
    ) -> list[int]:
        """Return `each` for all."""
        return [each] * len(names)

    def more(self, _rewards_G: Sequence[float], /) -> int:
        """Return 0."""
        return 0


even = Even()
