"""One loop that plays a task, and players to compare with: oracle, random, case, none.

The surprise: the loop is the same for every arm. An arm without memory plays with no
agent, so what memory gives is the only difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from random import Random
from typing import Protocol

from environments.acting.task import ActingTask, Observation
from memagent.async_agent import AsyncAgent
from memagent.core.records import MemoryItem, content_id
from memagent.core.trials import Outcome, Trial, TrialStep


class Player(Protocol):
    """Chooses actions for a task."""

    def plan(self, task: ActingTask, memories: Sequence[MemoryItem], /) -> Sequence[str]:
        """Return the actions to take, in order; the loop stops when the task is done."""
        ...


async def play_task(
    task: ActingTask, player: Player, *, agent: AsyncAgent | None = None, seed: int = 0, k: int = 40
) -> Trial:
    """Play a task once and return the trial; with an agent it is recalled for and reported."""
    recall = await agent.recall(task.text, k=k) if agent is not None else None
    hits = recall.hits if recall is not None else ()
    task.reset(seed)
    seen = Observation(text="")
    steps: list[TrialStep] = []
    for action in player.plan(task, [hit.item for hit in hits if hit.item is not None]):
        seen = task.step(action)
        steps.append(TrialStep(action=action, observation=seen.text, reward=seen.reward))
        if seen.done:
            break
    reward = sum(step.reward or 0.0 for step in steps)
    success = bool(seen.success)
    if agent is None or recall is None:
        outcome = Outcome(reward=reward, success=success)
        trial_id = content_id("trl", task.text, str(seed))
        return Trial(id=trial_id, task=task.text, steps=tuple(steps), outcome=outcome)
    return (await agent.report(recall, reward, success=success, steps=steps)).trial


@dataclass(frozen=True)
class OraclePlayer:
    """Takes the actions of the solution."""

    def plan(self, task: ActingTask, memories: Sequence[MemoryItem], /) -> Sequence[str]:  # noqa: ARG002 - interface
        """Return the solution."""
        return task.solution()


@dataclass(frozen=True)
class EmptyPlayer:
    """Takes no action."""

    def plan(self, task: ActingTask, memories: Sequence[MemoryItem], /) -> Sequence[str]:  # noqa: ARG002 - interface
        """Return nothing."""
        return ()


@dataclass
class CasePlayer:
    """Does again what worked for a task of this sort, else what no case shows as tried.

    A case is an item of kind `case`: the task in its first line, an action in each
    further one. Without cases it plays at random.
    """

    seed: int = 0
    length: int = 3
    rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(f"player {self.seed}")  # a stream of the same seed draws otherwise

    def plan(self, task: ActingTask, memories: Sequence[MemoryItem], /) -> Sequence[str]:
        """Return the actions, with the object of this task."""
        sort, thing = task.text.split()[0], task.text.split()[-1]
        cases = [item for item in memories if item.text.split()[:1] == [sort]]
        tried = [tuple(line.split()[0] for line in case.text.split("\n")[1:]) for case in cases]
        for case, moves in zip(cases, tried, strict=True):
            if "succeeded" in case.tags:
                return [f"{move} {thing}" for move in moves]
        moves = [action.split()[0] for action in task.actions]
        wrong = [begun for begun in tried if begun]
        fresh = [
            plan
            for plan in permutations(moves, self.length)
            if not any(plan[: len(begun)] == begun for begun in wrong)
        ]
        return [f"{move} {thing}" for move in self.rng.choice(fresh or [tuple(moves)])]
