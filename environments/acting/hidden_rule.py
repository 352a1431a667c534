"""`hidden_rule`: find the rules of a lab by tests, then claim them (after arXiv 2509.21766).

Two worlds as those of UltraHorizon, of 72 calls and more on average. In `LAMPS` each lamp
lights up for objects of one colour, one shape, or both. In `GENES` each trait has an order
in which alleles dominate, and a test crosses two of them. The units of a lab answer in
turn, so what is known of one lies scattered over the whole history. A wrong claim ends the
task.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial
from memagent.core.workspace import workspace_of

COLOURS: Final = ("red", "green", "blue", "amber")
SHAPES: Final = ("cube", "ball", "cone", "ring")
OBJECTS: Final = tuple(map(" ".join, product(COLOURS, SHAPES)))
ALLELES: Final = "ABCDE"


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The units of a world, what can be tested, the rules, and what a rule answers to a test."""

    unit: str
    units: int
    tests: Sequence[str]
    rules: Sequence[str]
    answer: Callable[[str, str], str]


LAMPS: Final = Lab(
    unit="lamp", units=8, tests=OBJECTS, rules=(*COLOURS, *SHAPES, *OBJECTS),
    answer=lambda rule, thing: "lit" if {*rule.split()} <= {*thing.split()} else "dark",
)  # fmt: skip
GENES: Final = Lab(
    unit="trait", units=9, tests=tuple(map(" with ".join, combinations(ALLELES, 2))),
    rules=tuple(map(" ".join, permutations(ALLELES))),
    answer=lambda rule, cross: min(cross.split(" with "), key=rule.index),
)  # fmt: skip


class RuleTask(PlannedTask[tuple[int, int]]):
    """One lab; a state is the number of tests and of claims made."""

    def __init__(self, name: str, lab: Lab, hidden: Sequence[str]) -> None:
        self.name, self.lab, self.hidden = name, lab, tuple(hidden)
        self.limit = lab.units * len(lab.tests)
        text = (
            f"find the rules of {name} by tests, then claim that of each {lab.unit}, from 0 to "
            f"{lab.units - 1}; a test is answered by one after the other"
        )
        tests, claims = (f"test {test}" for test in lab.tests), (f"claim {r}" for r in lab.rules)
        super().__init__(text, (*tests, *claims), (0, 0))

    def moved(self, state: tuple[int, int], action: str) -> tuple[tuple[int, int], Observation]:
        """Return the state after an action; a wrong claim or the last one ends the task."""
        (tests, claims), (verb, _, rest) = state, action.partition(" ")
        if verb == "claim":
            right, last = rest == self.hidden[claims], claims + 1 == self.lab.units
            return (tests, claims + 1), Observation(
                text="The claim is right." if right else "The claim is wrong.",
                reward=right / self.lab.units,
                done=last or not right,
                success=last and right,
            )
        if tests >= self.limit:
            return state, Observation(text="There is no time left.", done=True, success=False)
        unit = tests % self.lab.units
        answer = self.lab.answer(self.hidden[unit], rest)
        return (tests + 1, claims), Observation(text=f"{self.lab.unit} {unit}: {rest} = {answer}.")

    def solution(self) -> tuple[str, ...]:
        """Return the claims."""
        return tuple(f"claim {rule}" for rule in self.hidden)


def hidden_rule(seed: int, count: int, *, labs: Sequence[Lab] = (LAMPS, GENES)) -> list[RuleTask]:
    """Return labs of the worlds in turn; equal seeds give equal tasks."""
    rng = Random(f"hidden_rule {seed}")
    turns = [labs[(seed + number) % len(labs)] for number in range(count)]
    return [
        RuleTask(f"lab{seed}x{number}", lab, rng.choices(lab.rules, k=lab.units))
        for number, lab in enumerate(turns)
    ]


class RulePlayer:
    """Splits the rules that its workspace leaves open; claims when one is left for each unit."""

    async def act(
        self,
        task: RuleTask,
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,
    ) -> str | None:
        """Return the test that splits best, or the claim."""
        lab, shown = task.lab, workspace_of(trial).prompt
        claims = sum(step.action.startswith("claim") for step in trial.steps)
        tests = len(trial.steps) - claims
        seen = [
            re.findall(rf"{lab.unit} {unit}: (.+?) = (\w+)", shown) for unit in range(lab.units)
        ]
        left = [
            [
                rule
                for rule in lab.rules
                if all(lab.answer(rule, test) == said for test, said in facts)
            ]
            for facts in seen
        ]
        if claims or tests >= task.limit or all(len(rules) == 1 for rules in left):
            return f"claim {left[claims][0]}"
        rules = left[tests % lab.units]

        def unevenness(test: str) -> int:
            return max(Counter(lab.answer(rule, test) for rule in rules).values())

        return f"test {min(lab.tests, key=unevenness)}"


TASKS: Final = TaskSet(stream=hidden_rule, player=lambda _: RulePlayer())
