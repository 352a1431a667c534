"""`task_stream`: tasks that share a hidden procedure over objects that are always new.

"polish the lamp17" is solved by three moves in one order, the same for everything that
is polished. An action names its object ("rub lamp17"), so no earlier text holds it
word for word: what carries over is the procedure, never the answer. The task ends at
the first wrong move or after the last right one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import permutations
from random import Random
from typing import Final

from environments.acting.task import Observation
from environments.errors import EnvironmentFault

VERBS: Final = ("polish", "seal", "mend", "wrap")
MOVES: Final = ("rub", "rinse", "heat", "press")
LENGTH: Final = 3


@dataclass
class ProcedureTask:
    """One task: a verb, a new object, and the moves that solve it in order."""

    verb: str
    thing: str
    moves: tuple[str, ...]
    taken: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The task, as a player reads it."""
        return f"{self.verb} the {self.thing}"

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that are possible."""
        return tuple(f"{move} {self.thing}" for move in MOVES)

    def reset(self, seed: int) -> Observation:  # noqa: ARG002 - nothing is random once it is made
        """Begin anew."""
        self.taken = []
        return Observation(text=f"The {self.thing} lies on the bench.")

    def step(self, action: str) -> Observation:
        """Carry out an action."""
        if action not in self.actions:
            return Observation(text="Nothing happens.")
        self.taken.append(action)
        right = self.taken == list(self.solution()[: len(self.taken)])
        if right and len(self.taken) < LENGTH:
            return Observation(text="It seems to work.")
        text = "It is done." if right else "It is spoilt."
        return Observation(text=text, reward=float(right), done=True, success=right)

    def snapshot(self) -> str:
        """Return the present point as JSON."""
        return json.dumps({"task": self.text, "taken": self.taken})

    def restore(self, point: str) -> None:
        """Go back to a point of this task."""
        try:
            content = json.loads(point)
            if content["task"] != self.text:
                raise ValueError("another task")
            self.taken = [str(action) for action in content["taken"]]
        except (ValueError, TypeError, KeyError) as exc:
            raise EnvironmentFault(f"this is no point of {self.text!r}: {exc}") from exc

    def solution(self) -> tuple[str, ...]:
        """Return the actions that solve the task."""
        return tuple(f"{move} {self.thing}" for move in self.moves)


def task_stream(seed: int, count: int) -> list[ProcedureTask]:
    """Return tasks of four verbs in turn; equal seeds give equal tasks."""
    rng = Random(f"task_stream {seed}")
    orders = list(permutations(MOVES, LENGTH))
    procedures = {verb: rng.choice(orders) for verb in VERBS}
    verbs = [VERBS[number % len(VERBS)] for number in range(count)]
    return [
        ProcedureTask(verb, f"thing{seed}x{number}", procedures[verb])
        for number, verb in enumerate(verbs)
    ]
