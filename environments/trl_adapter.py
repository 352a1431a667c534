"""Worlds for TRL: `GRPOTrainer(environment_factory=...)` with a memory to keep.

    from environments.trl_adapter import environment_factory

    GRPOTrainer(model=..., args=..., environment_factory=environment_factory("synthetic"))

The first call of an episode is appended to the example's prompt, the tool `reply` takes
what the model says to it and returns the next one, and the reward is what the memory
earned. What happens behind a call is told in `environments.gym_adapter`. For training a
design's own prompts without tools, take `train` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import finalize

from environments.gym_adapter import make

OVER = "The episode is over. Say nothing more."


class MemoryToolEnvironment:
    """An episode after another, played by one tool; it is made by `environment_factory`."""

    def __init__(self, world: str = "synthetic", **options: Any) -> None:
        self._gym = make(world, **options)
        # TRL closes nothing.
        finalize(self, self._gym.close).atexit = False
        self._reward, self._over = 0.0, True

    def reset(self, episode: int | None = None, **_: Any) -> str:
        """Begin the episode that an example's field `episode` names, else a random one."""
        chosen = {} if episode is None else {"episode": int(episode)}
        text, _info = self._gym.reset(options=chosen)
        self._reward, self._over = 0.0, False
        return text

    def reply(self, text: str) -> str:
        """Reply to the last call about the memory.

        Args:
            text: The reply, in the format that the call asks for.

        Returns:
            The next call, or that the episode is over.

        """
        if self._over:
            return OVER
        following, self._reward, self._over, _cut, _info = self._gym.step(text)
        return OVER if self._over else following

    def get_reward(self) -> float:
        """Return what the memory earned; 0 for an episode that was not played to its end."""
        return self._reward


def environment_factory(
    world: str = "synthetic", **options: Any
) -> Callable[[], MemoryToolEnvironment]:
    """Return what makes an environment for each rollout.

    The arguments are those of `environments.gym_adapter.make`.
    """
    return partial(MemoryToolEnvironment, world, **options)
