"""Worlds as OpenEnv environments: a server hands out calls, a trainer's client replies.

    from openenv.core.env_server.http_server import create_fastapi_app
    from environments.openenv_adapter import MemoryCall, MemoryEnvironment, MemoryReply

    app = create_fastapi_app(MemoryEnvironment, MemoryReply, MemoryCall)

What happens behind a call is told in `environments.gym_adapter`. Each session of the
server plays in a memory of its own.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import Any
from uuid import uuid4

from environments.gym_adapter import make
from memagent.core.errors import MissingExtra

try:
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State
except ModuleNotFoundError as error:
    raise MissingExtra("openenv", needed_for="serving through OpenEnv", cause=str(error)) from error


class MemoryReply(Action):
    """The model's reply to the call that waits."""

    text: str


class MemoryCall(Observation):
    """The call that waits for a reply; after the last one, an empty text and the reward."""

    text: str
    info: dict[str, Any]
    """Role, session and number of the call; of a finished episode, its score and its parts."""


class MemoryEnvironment(Environment[MemoryReply, MemoryCall, State]):
    """One world; the arguments are those of `environments.gym_adapter.make`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, world: str = "synthetic", **options: Any) -> None:
        super().__init__()
        self._gym = make(world, **options)
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> MemoryCall:
        """Begin an episode drawn by the seed, or the one that `episode=3` names."""
        self._state = State(episode_id=episode_id or uuid4().hex)
        text, info = self._gym.reset(seed=seed, options=options)
        return MemoryCall(text=text, info=info)

    def step(self, action: MemoryReply, timeout_s: float | None = None, **_: Any) -> MemoryCall:  # noqa: ARG002 (OpenEnv's name)
        """Reply to the call that waits; raises `EnvironmentFault` when there is none."""
        text, reward, over, _cut, info = self._gym.step(action.text)
        self._state.step_count += 1
        return MemoryCall(text=text, info=info, reward=reward, done=over)

    @property
    def state(self) -> State:
        """The episode's id and the number of replies so far."""
        return self._state

    def close(self) -> None:
        """Free the world's memory."""
        self._gym.close()
