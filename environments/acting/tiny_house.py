"""`tiny_house`: find a thing, wash it, put it away (after ALFWorld, arXiv 2010.03768).

Where a kind of thing is kept is a habit of the house, the same in every task of a
stream; each thing is new. Ten steps are enough for who knows the habit, and for few
wrong guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial

KINDS: Final = ("mug", "plate", "spoon", "pan")
HOMES: Final = ("table", "shelf", "drawer", "cabinet", "basket", "crate")
CLOSED: Final = frozenset({"drawer", "cabinet", "crate"})
PLACES: Final = (*HOMES, "sink")
LIMIT: Final = 10


class House(NamedTuple):
    """A state: place of the agent, open places, place of the thing ("" in hand), washed."""

    at: str
    opened: frozenset[str]
    thing_at: str
    clean: bool
    steps: int


class HouseTask(PlannedTask[House]):
    """One task in a house."""

    def __init__(self, thing: str, home: str, target: str) -> None:
        self.thing, self.home, self.target = thing, home, target
        moves = [
            *(f"go to {place}" for place in PLACES),
            *(f"open {place}" for place in sorted(CLOSED)),
            *(f"{verb} {thing}" for verb in ("take", "wash", "put")),
        ]
        at_door = House("door", frozenset(), home, clean=False, steps=0)
        super().__init__(f"put a clean {thing} into the {target}", moves, at_door)

    def moved(self, state: House, action: str) -> tuple[House, Observation]:
        """Return the state after an action; the last step ends the task."""
        verb, _, rest = action.partition(" ")
        after, text = self._done(state, verb, rest.removeprefix("to "))
        after = after._replace(steps=state.steps + 1)
        solved = verb == "put" and after.thing_at == self.target and after.clean
        if solved or after.steps >= LIMIT:
            text += " The task is done." if solved else " There is no time left."
            return after, Observation(text=text, reward=float(solved), done=True, success=solved)
        return after, Observation(text=text)

    def _done(self, state: House, verb: str, rest: str) -> tuple[House, str]:
        usable = state.at not in CLOSED or state.at in state.opened
        here = state.thing_at == state.at and usable
        match verb:
            case "go":
                inside = rest not in CLOSED or rest in state.opened
                seen = f"You see {self.thing}." if state.thing_at == rest else "It is not here."
                return state._replace(at=rest), seen if inside else f"The {rest} is closed."
            case "open" if rest == state.at and not usable:
                seen = f"You see {self.thing}." if state.thing_at == rest else "It is not here."
                return state._replace(opened=state.opened | {rest}), seen
            case "take" if here:
                return state._replace(thing_at=""), f"You hold {self.thing}."
            case "wash" if state.thing_at == "" and state.at == "sink":
                return state._replace(clean=True), f"{self.thing} is clean."
            case "put" if state.thing_at == "" and usable and state.at != "door":
                return state._replace(thing_at=state.at), f"{self.thing} lies at the {state.at}."
            case _:
                return state, "Nothing happens."


def tiny_house(seed: int, count: int) -> list[HouseTask]:
    """Return tasks in one house; equal seeds give equal tasks."""
    rng = Random(f"tiny_house {seed}")
    homes = {kind: rng.choice(HOMES) for kind in KINDS}
    tasks: list[HouseTask] = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        target = rng.choice([place for place in HOMES if place != homes[kind]])
        tasks.append(HouseTask(f"{kind}{seed}x{number}", homes[kind], target))
    return tasks


class HousePlayer:
    """Looks first where cases found things of this kind, then in places drawn at random."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = Random(f"house player {seed}")

    async def act(
        self, task: HouseTask, memories: Sequence[MemoryItem], trial: Trial
    ) -> str | None:
        """Return the next action, by what the steps so far have shown."""
        done = [step.action for step in trial.steps]
        at = next((a.removeprefix("go to ") for a in reversed(done) if a.startswith("go")), "door")
        last = trial.steps[-1].observation if trial.steps else ""
        washed, held = f"wash {task.thing}" in done, f"take {task.thing}" in done
        goal = task.target if washed else "sink"
        if not held and f"see {task.thing}" in last:
            return f"take {task.thing}"
        if "is closed" in last:
            return f"open {at}"
        if held:
            return f"go to {goal}" if at != goal else f"{'put' if washed else 'wash'} {task.thing}"
        places = [place for place in HOMES if f"go to {place}" not in done]
        kind = task.thing.rstrip("0123456789").split("x")[0].rstrip("0123456789")
        known = [place for place in map(_found_at, memories) if place.startswith(f"{kind} ")]
        first = [place for place in places if f"{kind} {place}" in known]
        return f"go to {first[0] if first else self.rng.choice(places)}" if places else None


def _found_at(case: MemoryItem) -> str:
    """Return "kind place" for the case of a task in which the thing was taken; else ""."""
    place = ""
    for line in case.text.split("\n")[1:]:
        if line.startswith("go to "):
            place = line.removeprefix("go to ")
        elif line.startswith("take "):
            return f"{line.removeprefix('take ').split('x')[0].rstrip('0123456789')} {place}"
    return ""


TASKS: Final = TaskSet(stream=tiny_house, player=HousePlayer)
