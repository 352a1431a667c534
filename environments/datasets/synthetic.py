"""Synthetic worlds: unlimited dialogues with exact answers, drawn from a seed.

An episode is a function of (world, configuration, seed, split, index) and of nothing
else. The test split has forms and names of its own, so that learning is not memorising.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from environments.datasets.generated import PARTS, GeneratedEnvironment, Part
from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.worlds.config import WorldConfig, WorldOptions
from environments.worlds.language.loading import LEVELS, Level, open_world
from environments.worlds.truth import Truth
from environments.worlds.world import World, asked_after, make_world

__all__ = ["LEVELS", "PARTS", "Level", "Part", "Synthetic", "synthetic"]


class Synthetic(GeneratedEnvironment):
    """Episodes of generated worlds. Use `synthetic` to open one."""

    name = "synthetic"

    def __init__(
        self,
        level: str | Path = "standard",
        *,
        config: WorldConfig | None = None,
        seed: int = 0,
        episodes: int = 100,
        answering: MemoryAgent | None = None,
    ) -> None:
        """Open a world by level, name or path, with its own configuration unless one is given.

        Raises `EnvironmentFault`.
        """
        super().__init__(level, seed=seed, episodes=episodes, answering=answering)
        self.config = config or self.world.config
        names = [relation.name for relation in self.world.grammar.relations]
        for name in self.config.only:
            if name not in names:
                raise EnvironmentFault(
                    f"level {self.level!r} has no relation {name!r}; there are {', '.join(names)}"
                )

    def after(
        self, episode: Episode, sessions: int, *, probes: int | None = None
    ) -> tuple[Episode, Truth]:
        """Return the first `sessions` sessions with new questions, and their truth.

        The questions (at most `probes`) are about the state right after these sessions.

        Ids of the questions tell the session, so those of different places never mix.
        """
        split, index = self._place(episode.id)
        full, truth = self._world(split, index)
        if not 1 <= sessions <= len(full.sessions):
            raise EnvironmentFault(
                f"episode {episode.id!r} has 1 to {len(full.sessions)} sessions, not {sessions}"
            )
        cut = truth.upto(sessions)
        return asked_after(full, cut, self._key(split, index), self.lexicon(split), probes)

    def _make(self, episode_id: str, split: Part, index: int) -> World:
        key = self._key(split, index)
        return make_world(episode_id, key, self.lexicon(split), self.config)

    def _key(self, split: Part, index: int) -> str:
        return f"{self.seed}/{split}/{index}"


def synthetic(
    level: str | Path = "standard",
    *,
    sessions: int = 8,
    seed: int = 0,
    episodes: int = 100,
    probes: int | None = None,
    answering: MemoryAgent | None = None,
    **options: Unpack[WorldOptions],
) -> Synthetic:
    """Open a synthetic world: a level, a name in `$MEMAGENT_WORLDS`, or a path.

    Options that are left out or None keep the world's own value; `WorldConfig` describes
    them. Raises `EnvironmentFault` for an unknown level, a world with faults or an
    option out of range.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    own = open_world(level).config
    config = replace(own, sessions=sessions, probes=probes, **chosen)  # type: ignore[arg-type]
    return Synthetic(level, config=config, seed=seed, episodes=episodes, answering=answering)
