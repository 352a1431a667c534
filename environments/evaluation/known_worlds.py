"""Generated worlds in an evaluation: their record, and players that know the truth.

`Worlds` is plain data, so that it can be frozen with a run and sent to a process; the
worlds follow from it to the last byte. The surprise: a process that plays an episode
makes its world once more to learn its truth, which costs less than sending it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from environments.datasets.synthetic import Part, Synthetic
from environments.demonstrations.oracle import OracleModel
from environments.errors import EnvironmentFault
from environments.records import Episode
from environments.views import select_asks
from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.spec import Ask
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from environments.worlds.truth import Truth
from memagent.async_agent import AsyncAgent
from memagent.core.records import Record, Text

ASKS: Final[tuple[str, ...]] = get_args(Ask)
"""Kinds of questions, those without an answer included."""
Answering = Literal["agent", "reader"]
"""The answerer: each arm's own agent, or the worlds' reader of notes where there are notes."""


class Worlds(Record):
    """Episodes of generated worlds: the first of a split."""

    level: Text
    """A shipped level, or the name or path of a world."""
    split: Part
    seed: int
    episodes: Annotated[int, Field(ge=1)]
    knobs: WorldConfig
    asks: tuple[Text, ...] = ()
    """Kinds of questions asked; empty for all."""

    def environment(self) -> Synthetic:
        """Open the environment of the episodes.

        Raises `EnvironmentFault` for relations that the level does not have.
        """
        return Synthetic(self.level, config=self.knobs, seed=self.seed, episodes=self.episodes)

    def played(self) -> Iterator[Episode]:
        """Return the episodes with the questions that are asked.

        Raises `EnvironmentFault` for an unknown kind of question.
        """
        if unknown := [ask for ask in self.asks if ask not in ASKS]:
            raise EnvironmentFault(
                f"no question asks for {unknown[0]!r}; there are {', '.join(ASKS)}"
            )
        env = self.environment()
        for episode in env.episodes(self.split):
            yield select_asks(episode, env.truth(episode), self.asks) if self.asks else episode

    def behind(self, episode: Episode) -> KnownWorld:
        """Return what is behind one of the episodes."""
        env = self.environment()
        return KnownWorld(
            episode=episode, truth=env.truth(episode), lexicon=env.lexicon(self.split)
        )


@dataclass(frozen=True)
class KnownWorld:
    """An episode with what is behind it."""

    episode: Episode
    truth: Truth
    lexicon: Lexicon

    @cached_property
    def oracle(self) -> OracleModel:
        """A model whose replies are always right; it plays this episode once."""
        return OracleModel(self.truth, self.episode.sessions, self.lexicon)

    def reader(self, base: AsyncAgent) -> WorldReader:
        """Return the agent with its answers read off its notes."""
        return WorldReader(base=base, language=NoteLanguage(self.lexicon)).knowing(self.truth)
