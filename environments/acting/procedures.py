"""`task_stream`: tasks that share a hidden procedure over objects that are always new.

"polish the lamp17" is solved by three moves in one order, the same for everything that
is polished. An action names its object ("rub lamp17"), so no earlier text holds it
word for word: what carries over is the procedure, never the answer. The task ends at
the first wrong move or after the last right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation

VERBS: Final = ("polish", "seal", "mend", "wrap")
MOVES: Final = ("rub", "rinse", "heat", "press")
LENGTH: Final = 3


class ProcedureTask(PlannedTask[int]):
    """One task: a verb, a new object, and the moves that solve it; a state is how many are done."""

    def __init__(
        self, verb: str, thing: str, moves: Sequence[str], choices: Sequence[str] = MOVES
    ) -> None:
        """Take the moves of the procedure, and those that can be chosen."""
        self.verb, self.thing, self.moves = verb, thing, tuple(moves)
        super().__init__(f"{verb} the {thing}", (f"{move} {thing}" for move in choices), 0)

    def moved(self, state: int, action: str) -> tuple[int, Observation]:
        """Return the state after a move; a wrong one or the last one ends the task."""
        right = action == f"{self.moves[state]} {self.thing}"
        if right and state + 1 < len(self.moves):
            return state + 1, Observation(text="It seems to work.")
        return state, Observation(
            text="It is done." if right else "It is spoilt.",
            reward=float(right),
            done=True,
            success=right,
        )


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
