"""Worlds for verifiers: a taskset of episodes, and the environment that plays them.

Verifiers finds a taskset by the name of a top-level module, so write `memory_world.py`:

    from environments.verifiers_adapter import MemoryEnv, MemoryTaskset

    __all__ = ["MemoryEnv", "MemoryTaskset"]

and `eval memory_world -m MODEL` plays it. Each call about the memory is a run of the
agent `player` on a task of its own, with the call as its prompt, as in service; when
the episode is over, each of these runs gets what the memory earned. What happens behind
a call is told in `environments.gym_adapter`.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pydantic import Field

from environments.gym_adapter import make
from memagent.core.errors import MissingExtra

try:
    import verifiers.v1 as vf
except ModuleNotFoundError as error:
    raise MissingExtra("verifiers", needed_for="its environments", cause=str(error)) from error

__all__ = ["MemoryEnv", "MemoryEnvConfig", "MemoryTaskset", "MemoryTasksetConfig"]


class MemoryTaskData(vf.TaskData):
    """An episode of a world, by its number; the prompt of a call is added in play."""

    episode: int


class MemoryTask(vf.Task[MemoryTaskData]):
    """An episode to play."""


class MemoryTasksetConfig(vf.TasksetConfig):
    """The world, and how many of its episodes."""

    world: str = "synthetic"
    """Name of an entry point: those of `environments.gym_adapter.WORLDS`."""
    episodes: int = Field(100, ge=1)
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Arguments of `environments.gym_adapter.make`: level, knobs, design, embedder."""


class MemoryTaskset(vf.Taskset[MemoryTask, MemoryTasksetConfig]):
    """The episodes of a world."""

    def load(self) -> Iterator[MemoryTask]:
        """Return the tasks in the order of the episodes."""
        for number in range(self.config.episodes):
            data = MemoryTaskData(name=f"{self.config.world}#{number}", episode=number)
            yield MemoryTask(data, self.config.task)


class MemoryEnvConfig(vf.EnvConfig):
    """The agent that replies; it needs no tools and runs no code."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())


class MemoryEnv(vf.Env[MemoryEnvConfig]):
    """Plays an episode call by call."""

    async def run(self, task: MemoryTask, agents: vf.Agents) -> None:
        """Let the player reply until the episode is over, and reward each reply."""
        config = self.taskset.config
        traces: list[vf.Trace] = []
        with closing(await asyncio.to_thread(make, config.world, **config.options)) as gym:
            chosen = {"episode": task.data.episode}
            shown, _ = await asyncio.to_thread(gym.reset, options=chosen)
            reward, over = 0.0, False
            while not over:
                traces.append(await agents.player.run(task.with_data(prompt=shown)))
                step = await asyncio.to_thread(gym.step, traces[-1].last_reply)
                shown, reward, over, _cut, _info = step
        for trace in traces:
            trace.record_reward("memory", reward)
