"""The base of environments whose episodes are made, not stored: splits, indexes, truth.

An episode is a function of (environment, level, seed, split, index) and of nothing else;
it is made when it is asked for. Train and validation share surface forms and names and
differ in their seeds; the test split has forms and names of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, Literal

from environments.base import Environment, Split
from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.worlds.language.days import Calendar
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.loading import grammar_of, open_world
from environments.worlds.truth import Truth
from environments.worlds.world import World

Part = Literal["train", "validation", "test"]
PARTS: Final[tuple[Part, ...]] = ("train", "validation", "test")
"""The splits that have episodes of their own."""


class GeneratedEnvironment(Environment):
    """Episodes made by index, each with the truth behind it."""

    def __init__(
        self,
        level: str | Path = "standard",
        *,
        seed: int = 0,
        episodes: int = 100,
        answering: MemoryAgent | None = None,
    ) -> None:
        """Open the world; `episodes(split)` gives `episodes` of each split, `episode` any.

        Raises `EnvironmentFault`.
        """
        super().__init__(answering=answering)
        self.world = open_world(level)
        if episodes < 1:
            raise EnvironmentFault(f"episodes must be at least 1, not {episodes}")
        self.level, self.seed, self.count = str(level), seed, episodes
        self._latest: tuple[tuple[Part, int], World] | None = None
        """The episode made last: its truth is mostly asked for right after it."""

    @abstractmethod
    def _make(self, episode_id: str, split: Part, index: int) -> World:
        """Make an episode and its truth."""

    @property
    def calendar(self) -> Calendar:
        """The way in which the dialogues and answers name days."""
        return self.world.grammar.calendar

    def lexicon(self, split: Part) -> Lexicon:
        """Return the language of a split: its names, values and surface forms."""
        return _lexicon(self.level, split)

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """Return the first episodes of a split; of all three for `all`."""
        parts: tuple[Part, ...] = PARTS if split == "all" else (split,)
        return (self.episode(part, index) for part in parts for index in range(self.count))

    def episode(self, split: Part, index: int) -> Episode:
        """Return episode number `index` of a split, from 0, as large as you like.

        Raises `EnvironmentFault` for an unknown split.
        """
        return self._world(split, index)[0]

    def world_of(self, episode_id: str) -> Truth:
        """Return the truth behind an episode of this environment, all sessions.

        Raises `EnvironmentFault` for an id that is not its own.
        """
        return self._world(*self._place(episode_id))[1]

    def truth(self, episode: Episode) -> Truth:
        """Return the truth behind the sessions of an episode.

        Of a truncated episode, only the truth of its sessions. Raises
        `EnvironmentFault` for an episode of another environment.
        """
        return self.world_of(episode.id).upto(len(episode.sessions))

    @property
    def _prefix(self) -> str:
        return f"{self.name}-{self.world.name}-{self.seed}-"

    def _world(self, split: Part, index: int) -> World:
        if split not in PARTS:
            raise EnvironmentFault(f"no split {split!r}; there are {', '.join(PARTS)}")
        if self._latest is None or self._latest[0] != (split, index):
            world = self._make(f"{self._prefix}{split}-{index}", split, index)
            self._latest = (split, index), world
        return self._latest[1]

    def _place(self, episode_id: str) -> tuple[Part, int]:
        """Return the split and the index that an episode's id names."""
        split, _, index = episode_id.removeprefix(self._prefix).rpartition("-")
        for part in PARTS:
            if episode_id.startswith(self._prefix) and split == part and index.isdecimal():
                return part, int(index)
        raise EnvironmentFault(f"{episode_id!r} is no episode of {self._prefix}*")


@cache
def _lexicon(level: str, split: Part) -> Lexicon:
    return Lexicon(grammar_of(level), held_out=split == "test")
