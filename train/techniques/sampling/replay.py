"""Rows of the last steps once more (the replay of DOTS, arXiv 2506.05316).

The newest `capacity` responses with an advantage are kept with the log-probabilities
of the policy that said them, so a ratio to that policy clips them. A step draws up to
`share` times its own rows from those kept before it. What is older than `age` steps is
dropped. Advantages are those of the step that the row comes from.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, TokenTrace
from train.credit.groups import CreditGroup
from train.rollouts.slots import GroupSource, Replay

Kept = tuple[int, str, float, TokenTrace, Role]
"""Step of the buffer, response id, advantage, tokens, role."""


class ReplayBuffer(GroupSource):
    """Keeps rows and gives some of them again."""

    def __init__(self, *, capacity: int = 512, share: float = 0.5, age: int = 4) -> None:
        if capacity < 1 or share < 0 or age < 1:
            raise ConfigError("replay: capacity and age are at least 1, share at least 0")
        self.share, self.age, self.steps = share, age, 0
        self.kept: deque[Kept] = deque(maxlen=capacity)

    def draw(self, fresh: Replay, groups: Sequence[CreditGroup], draws: random.Random, /) -> Replay:
        """Take in fresh rows and return earlier ones."""
        del groups
        young = [row for row in self.kept if self.steps - row[0] <= self.age]
        drawn = draws.sample(young, min(len(young), int(self.share * len(fresh.advantages))))
        for key, advantage in fresh.advantages.items():
            if advantage and key in fresh.traces:
                self.kept.append((self.steps, key, advantage, fresh.traces[key], fresh.roles[key]))
        self.steps += 1
        return Replay(
            advantages={key: advantage for _, key, advantage, _, _ in drawn},
            traces={key: trace for _, key, _, trace, _ in drawn},
            roles={key: role for _, key, _, _, role in drawn},
        )

    def state(self) -> Mapping[str, Any]:
        """Return the rows kept."""
        return {"steps": self.steps, "kept": [[*r[:3], r[3].model_dump(), r[4]] for r in self.kept]}

    def load(self, state: Any, /) -> None:
        """Take the rows kept."""
        rows = [(r[0], r[1], r[2], TokenTrace(**r[3]), Role(r[4])) for r in state["kept"]]
        self.steps, self.kept = int(state["steps"]), deque(rows, maxlen=self.kept.maxlen)
