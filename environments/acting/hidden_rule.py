"""`hidden_rule`: find the rule of a lab by tests, then claim it.

A rule names a colour, a shape, or both; a test of an object says whether the rule holds.
Sixteen tests are enough for any rule. What was seen must be kept: the rule
follows from all answers together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial
from memagent.core.workspace import workspace_of

COLOURS: Final = ("red", "green", "blue", "amber")
SHAPES: Final = ("cube", "ball", "cone", "ring")
OBJECTS: Final = tuple(f"{colour} {shape}" for colour, shape in product(COLOURS, SHAPES))
RULES: Final = (*COLOURS, *SHAPES, *OBJECTS)
LIMIT: Final = 17


def holds(rule: str, thing: str) -> bool:
    """Tell whether a rule holds for an object: it has every property that the rule names."""
    return set(rule.split()) <= set(thing.split())


class RuleTask(PlannedTask[int]):
    """One lab; a state is the number of actions taken."""

    def __init__(self, name: str, rule: str) -> None:
        self.name, self.rule = name, rule
        super().__init__()

    @property
    def text(self) -> str:
        """The task, as a player reads it."""
        return f"find the rule of {self.name}"

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that are possible."""
        return (*(f"test {thing}" for thing in OBJECTS), *(f"claim {rule}" for rule in RULES))

    def start(self) -> int:
        """Return the state before any test."""
        return 0

    def moved(self, state: int, action: str) -> tuple[int, Observation]:
        """Return the state after an action; a claim or the last action ends the task."""
        verb, _, rest = action.partition(" ")
        right = verb == "claim" and rest == self.rule
        if verb == "claim" or state + 1 >= LIMIT:
            text = "The claim is right." if right else "The rule was not found."
            return state, Observation(text=text, reward=float(right), done=True, success=right)
        answer = "lights up" if holds(self.rule, rest) else "stays dark"
        return state + 1, Observation(text=f"{rest} {answer}.")


def hidden_rule(seed: int, count: int) -> list[RuleTask]:
    """Return labs with rules of their own; equal seeds give equal tasks."""
    rng = Random(f"hidden_rule {seed}")
    return [RuleTask(f"lab{seed}x{number}", rng.choice(RULES)) for number in range(count)]


class RulePlayer:
    """Splits the rules that its workspace leaves open; claims when one is left."""

    async def act(
        self,
        task: RuleTask,  # noqa: ARG002 - interface
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,
    ) -> str | None:
        """Return the test that splits best, or the claim."""
        seen = re.findall(
            r"(\w+ (?:cube|ball|cone|ring)) (lights up|stays dark)", workspace_of(trial).prompt
        )
        facts = {thing: answer == "lights up" for thing, answer in seen}
        left = [r for r in RULES if all(holds(r, thing) == lit for thing, lit in facts.items())]
        if len(left) == 1 or len(trial.steps) >= LIMIT - 1:
            return f"claim {left[0]}" if left else None

        def unevenness(thing: str) -> float:
            return abs(sum(holds(rule, thing) for rule in left) - len(left) / 2)

        return f"test {min((o for o in OBJECTS if o not in facts), key=unevenness)}"


TASKS: Final = TaskSet(stream=hidden_rule, player=lambda _: RulePlayer())
