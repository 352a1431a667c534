"""Acting tasks as Gymnasium environments: actions and observations are plain texts.

    import gymnasium
    from environments.acting.gym import register_tasks

    register_tasks()
    env = gymnasium.make("memagent/TinyHouse-v0")

An observation is the task and what was seen last; `info` has the possible actions. The
seed chooses the task of the stream, and `info` never shows a solution.
"""

from __future__ import annotations

from typing import Any, Final

from environments.acting.task import ActingTask, Observation, open_tasks
from environments.errors import EnvironmentFault
from memagent.core.errors import MissingExtra
from memagent.plugins import available

try:
    import gymnasium
    from gymnasium.spaces import Text
except ModuleNotFoundError as error:
    raise MissingExtra("gym", needed_for="playing through Gymnasium", cause=str(error)) from error

PRINTABLE: Final = "".join(map(chr, (10, *range(32, 127))))


class TaskGym(gymnasium.Env[str, str]):
    """A stream of acting tasks; each reset begins one of them."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self, tasks: str, *, seed: int = 0, count: int = 100, most_steps: int = 200
    ) -> None:
        """Open a set of tasks by its name. Raises `UnknownPlugin`, `EnvironmentFault`."""
        self.tasks, self.most_steps = open_tasks(tasks, seed=seed, count=count), most_steps
        self.observation_space = Text(max_length=20_000, min_length=0, charset=PRINTABLE)
        self.action_space = Text(max_length=2_000, min_length=0, charset=PRINTABLE)
        self._task: ActingTask | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin a task drawn by the seed, or the one that `options={"task": 3}` names."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(len(self.tasks)))
        self._task = self.tasks[int((options or {}).get("task", drawn)) % len(self.tasks)]
        self._steps = 0
        return self._shown(self._task, self._task.reset(0))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out an action. Raises `EnvironmentFault` before the first reset."""
        if self._task is None:
            raise EnvironmentFault("reset the environment first: no task is under way")
        seen = self._task.step(action)
        self._steps += 1
        text, info = self._shown(self._task, seen)
        late = self._steps >= self.most_steps and not seen.done
        return text, seen.reward, seen.done, late, info

    def _shown(self, task: ActingTask, seen: Observation) -> tuple[str, dict[str, Any]]:
        info = {"actions": task.actions, "success": seen.success, "steps": self._steps}
        return f"{task.text}\n{seen.text}", info


def register_tasks() -> None:
    """Register `memagent/TinyHouse-v0` and its like. Harmless when repeated."""
    for name in available("tasks"):
        title = f"memagent/{''.join(word.capitalize() for word in name.split('_'))}-v0"
        if title not in gymnasium.registry:
            gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
                title, entry_point="environments.acting.gym:TaskGym", kwargs={"tasks": name}
            )
