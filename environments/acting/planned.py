"""A base for tasks that are pure functions of a state, with an exact planner.

A task gives its text, its actions and its first state, and says what an action does to
a state. The base keeps the actions taken, so a snapshot is their list and a restore plays
them again; the planner is breadth-first search, so a solution is a shortest one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from environments.acting.task import Observation
from environments.errors import EnvironmentFault

S = TypeVar("S", bound=Hashable)
MOST_STATES = 200_000


class PlannedTask(ABC, Generic[S]):
    """A deterministic task over immutable states."""

    def __init__(self, text: str, actions: Iterable[str], start: S) -> None:
        """Take all that a player must know at the beginning, what can be done, and the state."""
        self.text, self.actions, self._start = text, tuple(actions), start
        self.taken: list[str] = []
        self._possible, self._state = frozenset(self.actions), start
        self._seen = Observation(text="")
        self._solution: tuple[str, ...] | None = None

    @abstractmethod
    def moved(self, state: S, action: str) -> tuple[S, Observation]:
        """Return the state after a possible action, and what is seen."""

    def reset(self, seed: int) -> Observation:  # noqa: ARG002 - nothing is random once it is made
        """Begin anew."""
        self.taken, self._state = [], self._start
        self._seen = Observation(text="You may begin.")
        return self._seen

    def step(self, action: str) -> Observation:
        """Carry out an action; an unknown one, or one after the end, changes nothing."""
        if self._seen.done:
            return Observation(text="It is over.", done=True, success=self._seen.success)
        if action not in self._possible:
            return Observation(text="Nothing happens.")
        self.taken.append(action)
        self._state, self._seen = self.moved(self._state, action)
        return self._seen

    def snapshot(self) -> str:
        """Return the present point as JSON."""
        return json.dumps({"task": self.text, "taken": self.taken})

    def restore(self, point: str) -> None:
        """Go back to a point of this task."""
        try:
            content = json.loads(point)
            taken = [str(action) for action in content["taken"]]
            if content["task"] != self.text or not self._possible.issuperset(taken):
                raise ValueError("another task")
        except (ValueError, TypeError, KeyError) as exc:
            raise EnvironmentFault(f"this is no point of {self.text!r}: {exc}") from exc
        self.reset(0)
        for action in taken:
            self.step(action)

    def solution(self) -> tuple[str, ...]:
        """Return a shortest list of actions that solves the task."""
        if self._solution is None:
            self._solution = self._searched()
        return self._solution

    def _searched(self) -> tuple[str, ...]:
        before: dict[S, tuple[S, str] | None] = {self._start: None}
        waiting, actions = deque([self._start]), self.actions
        while waiting and len(before) < MOST_STATES:
            state = waiting.popleft()
            for action in actions:
                after, seen = self.moved(state, action)
                if seen.done and seen.success:
                    return (*_path(before, state), action)
                if not seen.done and after not in before:
                    before[after] = (state, action)
                    waiting.append(after)
        raise EnvironmentFault(f"{self.text!r} has no solution")


def _path(before: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    path: list[str] = []
    while (link := before[state]) is not None:
        state, action = link
        path.append(action)
    return tuple(reversed(path))
