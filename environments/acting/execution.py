"""`execution_horizon`: keep a running sum for many turns (after arXiv 2509.09677).

Nothing is to be found out: the values stand in the task, each turn names two words, and
the answer is the sum so far. A wrong sum is not told and ends nothing: a turn earns its
share if the sum said before was carried on rightly, as the paper's accuracy of a step, and
the task is solved if all sums are right. Full histories grow with every turn.
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


Sums = tuple[int, int, bool]


class SumTask(PlannedTask[Sums]):
    """One run; a state is the turn, the sum said last, and whether all sums were right."""

    def __init__(
        self, name: str, values: Mapping[str, int], turns: Sequence[tuple[str, str]]
    ) -> None:
        self.name, self.values, self.turns = name, values, tuple(turns)
        known = ", ".join(f"{word} = {value}" for word, value in values.items())
        text = f"{name}: keep the sum of the words named, from 0. {known}. Begin with: say 0"
        bound = 2 * max(map(abs, values.values())) * len(turns)
        says = (f"say {number}" for number in range(-bound, bound + 1))
        super().__init__(text, says, (0, 0, True))

    def moved(self, state: Sums, action: str) -> tuple[Sums, Observation]:
        """Return the state after an answer; the last one ends the task."""
        turn, before, flawless = state
        said = int(action.split()[1])
        carried = said == before + sum(self.values[word] for word in self.turns[turn - 1] if turn)
        share, flawless = carried / (len(self.turns) + 1), flawless and carried
        after = turn + 1, said, flawless
        if turn == len(self.turns):
            return after, Observation(text="The end.", reward=share, done=True, success=flawless)
        return after, Observation(text=f"add {' and '.join(self.turns[turn])}", reward=share)

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
