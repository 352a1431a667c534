"""One loop that plays a task, and players to compare with: oracle, random, case, none.

The surprise: the loop is the same for every arm. An arm without memory plays with no
agent, so what memory gives is the only difference. A player reads the workspace of the
trial (`memory.trials.workspace`), which the agent's design may edit after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from random import Random
from typing import Any, Final, Protocol

from environments.acting.procedures import task_stream
from environments.acting.task import ActingTask, TaskSet
from memagent.async_agent import AsyncAgent
from memagent.core.records import MemoryItem, content_id
from memagent.core.trials import Outcome, Trial, TrialStep

MOST_STEPS = 1_000


class Player(Protocol):
    """Chooses actions for a task.

    One that follows certain memories may name them by `used`, a tuple of ids: its next
    step says so, and an outcome is theirs.
    """

    async def act(self, task: Any, memories: Sequence[MemoryItem], trial: Trial, /) -> str | None:
        """Return the next action after the trial's steps; None gives up."""
        ...


async def play_task(
    task: ActingTask, player: Player, *, agent: AsyncAgent | None = None, seed: int = 0, k: int = 40
) -> Trial:
    """Play a task once and return the trial; with an agent it is recalled for and reported."""
    recall = await agent.recall(task.text, k=k) if agent is not None else None
    memories = [hit.item for hit in recall.hits if hit.item is not None] if recall else []
    begun = Trial(id=content_id("trl", task.text, str(seed)), task=task.text)
    trial = recall.trial if recall is not None else begun
    seen = task.reset(seed)
    while not seen.done and len(trial.steps) < MOST_STEPS:
        action = await player.act(task, memories, trial)
        if action is None:
            break
        seen = task.step(action)
        used: tuple[str, ...] = getattr(player, "used", ())
        trial = trial.with_step(
            TrialStep(action=action, observation=seen.text, reward=seen.reward, used=used)
        )
        trial = trial if agent is None else await agent.compact(trial)
    reward = sum(step.reward or 0.0 for step in trial.steps)
    success = bool(seen.success)
    if agent is None:
        return trial.model_copy(update={"outcome": Outcome(reward=reward, success=success)})
    return (await agent.report(trial, reward, success=success)).trial


@dataclass(frozen=True)
class OraclePlayer:
    """Takes the actions of the solution."""

    async def act(
        self,
        task: ActingTask,
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,
    ) -> str | None:
        """Return the next action of the solution."""
        solution, place = task.solution(), len(trial.steps)
        return solution[place] if place < len(solution) else None


@dataclass(frozen=True)
class EmptyPlayer:
    """Takes no action."""

    async def act(
        self,
        task: ActingTask,  # noqa: ARG002 - interface
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,  # noqa: ARG002 - interface
    ) -> str | None:
        """Give up."""
        return None


@dataclass
class RandomPlayer:
    """Takes any action that is possible, each as likely as another."""

    seed: int = 0
    rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(f"random player {self.seed}")

    async def act(
        self,
        task: ActingTask,
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,  # noqa: ARG002 - interface
    ) -> str | None:
        """Return an action."""
        return self.rng.choice(task.actions)


@dataclass
class CasePlayer:
    """Does again what worked for a task of this sort, else what no case shows as tried.

    A case is an item of kind `case`: the task in its first line, an action in each
    further one. Without cases it plays at random.
    """

    seed: int = 0
    length: int = 3
    rng: Random = field(init=False)
    planned: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.rng = Random(f"player {self.seed}")  # a stream of the same seed draws otherwise

    async def act(
        self, task: ActingTask, memories: Sequence[MemoryItem], trial: Trial
    ) -> str | None:
        """Return the next action of a plan that is made at the first."""
        if not trial.steps:
            self.planned = self.plan(task, memories)
        place = len(trial.steps)
        return self.planned[place] if place < len(self.planned) else None

    def plan(self, task: ActingTask, memories: Sequence[MemoryItem]) -> Sequence[str]:
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


PROCEDURES: Final = TaskSet(stream=task_stream, player=CasePlayer)
"""The stream of procedures with its player."""
