"""The world of a run: the environment, its episodes, and the agent that lives in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from itertools import islice
from typing import Self, cast

from environments.base import Environment
from environments.datasets.locomo import LoCoMo
from environments.datasets.synthetic import Synthetic, synthetic
from environments.records import Episode
from environments.views import select_asks, select_probes, truncate
from environments.worlds.truth import Truth
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope
from memagent.plugins import load
from train.settings.run import EnvironmentPart, RunSettings


class _SilentModel:
    """The model of an agent that speaks through its policy only."""

    async def complete(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 - interface
        raise ConfigError("a training agent speaks through its policy only")


@dataclass(kw_only=True)
class TrainingWorld:
    """An environment with the agent that lives in it."""

    settings: RunSettings
    env: Environment
    agent: AsyncAgent
    sessions: int
    """Sessions of an episode; longer ones are cut."""
    truths: dict[str, Truth] = field(default_factory=dict[str, Truth], repr=False)
    """The world behind the episodes given so far, by their ids: making a world again costs
    as much as its episode.
    """

    @classmethod
    def of(cls, settings: RunSettings, *, sessions: int) -> Self:
        """Open the environment of the settings at a number of sessions.

        Raises `ConfigError`, `EnvironmentFault`.
        """
        env = open_environment(settings.environment, sessions=sessions)
        store = open_store(path=":memory:", embedder=settings.agent.embedder)
        agent = store.agent(
            Scope(user_id="train"),
            model=_SilentModel(),
            design=settings.agent.design,
            keep_unreadable=True,
        )
        return cls(settings=settings, env=env, agent=agent, sessions=sessions)

    def episodes(self, split: str, count: int, *, skip: int = 0) -> list[Episode]:
        """Return the first episodes of a split after `skip`.

        They have the questions that the settings ask, and no more sessions than the
        task.
        """
        asks, episodes = self.settings.environment.asks, list[Episode]()
        for episode in islice(self.env.episodes(split), skip, skip + count):  # type: ignore[arg-type]
            if asks and isinstance(self.env, Synthetic):
                episode = select_asks(episode, self.truth(self.env, episode), asks)
            elif asks:
                episode = select_probes(episode, lambda probe: probe.category in asks)
            episodes.append(truncate(episode, self.sessions))
        return episodes

    def truth(self, env: Synthetic, episode: Episode) -> Truth:
        """Return the world behind an episode."""
        if episode.id not in self.truths:
            self.truths[episode.id] = env.truth(episode)
        return self.truths[episode.id]


def open_environment(part: EnvironmentPart, *, sessions: int) -> Environment:
    """Open the environment of the settings at a number of sessions.

    Raises `ConfigError`, `EnvironmentFault`.
    """
    if part.kind == "locomo":
        return LoCoMo(part.path or "", split_by=part.split_by or "memory_r2")
    if part.kind == "synthetic":
        return synthetic(
            part.level,
            sessions=sessions,
            seed=part.seed,
            episodes=part.episodes,
            turns=part.turns,
            facts=part.facts,
            overwrite=part.overwrite,
            interference=part.interference,
            distractors=part.distractors,
            friends=part.friends,
            only=part.only,
            probes=part.probes,
        )
    return _named_environment(part, sessions)


def _named_environment(part: EnvironmentPart, sessions: int) -> Environment:
    """Open any environment with what it takes of the settings, and its own options."""
    make = cast("Callable[..., Environment]", load("environments", part.kind))
    takes = signature(make).parameters.values()
    names = {parameter.name for parameter in takes}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes):
        names |= {"level", "seed", "episodes"}
    shared = {
        "level": part.level,
        "seed": part.seed,
        "episodes": part.episodes,
        "sessions": sessions,
    } | ({"path": part.path} if part.path else {})
    values = {name: value for name, value in shared.items() if name in names} | part.options
    try:
        return make(**values)
    except TypeError as error:
        raise ConfigError(f"environment.options: {error}") from None
