"""The protocol of a task that is acted in, and its checker.

A task answers actions with observations, all plain text, and ends with a reward. It can
be put back to any point by `snapshot` and `restore`, so a search or a group of rollouts
starts where it likes. `solution` is for oracles and checks; no player is shown it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from environments.errors import EnvironmentFault
from memagent.core.exchange import ModelRequest
from memagent.core.records import Record, Text
from memagent.plugins import load


class Observation(Record):
    """The state that a task shows after an action."""

    text: Text
    reward: float = 0.0
    done: bool = False
    success: bool | None = None
    """Whether the task was solved; None until it is done."""


class ActingTask(Protocol):
    """A task that is solved by actions."""

    @property
    def text(self) -> str:
        """The task, as a player reads it."""
        ...

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that are possible."""
        ...

    def reset(self, seed: int) -> Observation:
        """Begin anew; equal seeds begin equally."""
        ...

    def step(self, action: str) -> Observation:
        """Carry out an action. An unknown one is answered, not raised."""
        ...

    def snapshot(self) -> str:
        """Return the present point as JSON."""
        ...

    def restore(self, point: str) -> None:
        """Go back to a point of this task. Raises `EnvironmentFault` for another text."""
        ...

    def solution(self) -> tuple[str, ...]:
        """Return actions that solve the task from the beginning."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    """A stream of tasks under a name, with a scripted player that can use memory.

    Declared under the entry-point group `memagent.tasks`.
    """

    stream: Callable[[int, int], Sequence[ActingTask]]
    """Takes a seed and a count; equal arguments give equal tasks."""
    player: Callable[[int], Any]
    """Takes a seed and returns a `Player`."""
    editor: Callable[[ModelRequest], str] | None = None
    """Replies as a good model to the prompt that asks to edit a workspace; for
    demonstrations.
    """


def open_tasks(name: str, *, seed: int = 0, count: int = 60) -> Sequence[ActingTask]:
    """Return the first tasks of a set's stream by the set's name; equal seeds give equal ones.

    Raises `UnknownPlugin` for a name that no set has, `EnvironmentFault` for another plug-in.
    """
    return open_task_set(name).stream(seed, count)


def open_task_set(name: str) -> TaskSet:
    """Return the set of tasks with a name, ours or of an installed package."""
    loaded = load("tasks", name)
    if not isinstance(loaded, TaskSet):
        raise EnvironmentFault(f"{name!r} is no TaskSet")
    return loaded


def check_task(task: ActingTask, *, seed: int = 0) -> None:
    """Check a task: determinism, exact restore, a solution that is shown nowhere.

    Raises `EnvironmentFault` in plain words.
    """
    solution = task.solution()
    first = _played(task, solution, seed)
    if not first or not first[-1].success:
        raise EnvironmentFault(f"{task.text!r}: its solution does not solve it")
    if _played(task, solution, seed) != first:
        raise EnvironmentFault(f"{task.text!r}: equal seeds and actions give other observations")
    begun = task.reset(seed)
    for action, expected in zip(solution, first, strict=True):
        point = task.snapshot()
        task.step("an action that no task knows")
        task.restore(point)
        if task.snapshot() != point:
            raise EnvironmentFault(f"{task.text!r}: a restored point is another one")
        if task.step(action) != expected:
            raise EnvironmentFault(f"{task.text!r}: it goes on otherwise after a restore")
    shown = f"{task.text}\n{begun.text}"
    order = [shown.find(action) for action in solution]
    if min(order) >= 0 and order == sorted(order):
        raise EnvironmentFault(f"{task.text!r}: it shows its solution before the first action")


def _played(task: ActingTask, actions: tuple[str, ...], seed: int) -> list[Observation]:
    task.reset(seed)
    return [task.step(action) for action in actions]
