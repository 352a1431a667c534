"""`execution_horizon`: keep a running sum for many turns (after arXiv 2509.09677).

Nothing is to be found out: the values stand in the task, each turn names two words, and
the answer is the sum so far. The first wrong sum ends the task, so the number of steps
is how far an agent executes without a fault. Full histories grow with every turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial
from memagent.core.workspace import workspace_of

WORDS: Final = ("alder", "birch", "cedar", "maple", "rowan", "aspen")


class SumTask(PlannedTask[tuple[int, int]]):
    """One run; a state is the turn and the sum so far."""

    def __init__(
        self, name: str, values: Mapping[str, int], turns: Sequence[tuple[str, str]]
    ) -> None:
        self.name, self.values, self.turns = name, values, tuple(turns)
        super().__init__()

    @property
    def text(self) -> str:
        """The task, as a player reads it."""
        known = ", ".join(f"{word} = {value}" for word, value in self.values.items())
        return f"{self.name}: keep the sum of the words named, from 0. {known}. Begin with: say 0"

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that are possible."""
        bound = 2 * max(map(abs, self.values.values())) * len(self.turns)
        return tuple(f"say {number}" for number in range(-bound, bound + 1))

    def start(self) -> tuple[int, int]:
        """Return the state before the first turn."""
        return 0, 0

    def moved(self, state: tuple[int, int], action: str) -> tuple[tuple[int, int], Observation]:
        """Return the state after an answer; each right one earns its share of the reward."""
        turn, total = state
        right = int(action.split()[1]) == total
        if not right or turn == len(self.turns):
            text = "All sums are right." if right else "That sum is wrong."
            share = float(right) / (len(self.turns) + 1)
            return state, Observation(text=text, reward=share, done=True, success=right)
        first, second = self.turns[turn]
        after = turn + 1, total + self.values[first] + self.values[second]
        share = 1 / (len(self.turns) + 1)
        return after, Observation(text=f"add {first} and {second}", reward=share)

    def solution(self) -> tuple[str, ...]:
        """Return the sums in order."""
        said, total = ["say 0"], 0
        for first, second in self.turns:
            total += self.values[first] + self.values[second]
            said.append(f"say {total}")
        return tuple(said)


def execution_horizon(seed: int, count: int, *, turns: int = 30) -> list[SumTask]:
    """Return runs with values of their own; equal seeds give equal tasks."""
    rng = Random(f"execution_horizon {seed}")
    return [
        SumTask(
            f"run{seed}x{number}",
            {word: rng.randint(-9, 9) for word in WORDS},
            [(rng.choice(WORDS), rng.choice(WORDS)) for _ in range(turns)],
        )
        for number in range(count)
    ]


class SumPlayer:
    """Adds what its workspace shows: the last sum it said and the last two words."""

    async def act(
        self,
        task: SumTask,
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,
    ) -> str | None:
        """Return the next sum."""
        prompt = workspace_of(trial).prompt
        said = re.findall(r"did: say (-?\d+)", prompt)
        named = re.findall(r"saw: add (\w+) and (\w+)", prompt)
        if not said or not named:
            return "say 0"
        return f"say {int(said[-1]) + sum(task.values[word] for word in named[-1])}"


TASKS: Final = TaskSet(stream=execution_horizon, player=lambda _: SumPlayer())
