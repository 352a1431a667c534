"""Synthetic worlds as an environment: unlimited dialogues with exact answers, drawn from a seed.

An episode is a function of (level, knobs, seed, split, index) and of nothing else; it
is made when it is asked for. Train and validation share surface forms and names and
differ in their seeds; the test split has forms and names of its own, so that learning
is not memorising.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final, Literal, get_args

from environments.base import Environment, Split
from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.worlds.days import Calendar
from environments.worlds.grammar import grammar_of
from environments.worlds.knobs import Knobs
from environments.worlds.lexicon import Lexicon
from environments.worlds.truth import Truth
from environments.worlds.world import asked_after, make_world

Level = Literal["tiny", "standard", "rich"]
Part = Literal["train", "validation", "test"]
PARTS: Final[tuple[Part, ...]] = ("train", "validation", "test")
"""The splits that have episodes of their own."""

LEVELS: Final[dict[Level, Knobs]] = {
    "tiny": Knobs(
        turns=6, facts=3.0, interference=0.3, distractors=0.2, friends=1, relations=8, chat=0.0
    ),
    "standard": Knobs(turns=14, facts=3.0, relations=12),
    "rich": Knobs(
        turns=18,
        facts=5.0,
        overwrite=0.35,
        interference=0.3,
        distractors=0.4,
        friends=3,
        relations=20,
    ),
}
"""The knobs of each level where the caller sets none."""


class Synthetic(Environment):
    """Episodes of generated worlds. Use `synthetic` to open one."""

    name = "synthetic"

    def __init__(
        self,
        level: Level = "standard",
        *,
        knobs: Knobs | None = None,
        seed: int = 0,
        episodes: int = 100,
        answering: MemoryAgent | None = None,
    ) -> None:
        """`episodes` is how many `episodes(split)` gives of each split; `episode` makes any.

        Raises `EnvironmentFault`.
        """
        super().__init__(answering=answering)
        if level not in get_args(Level):
            raise EnvironmentFault(f"no level {level!r}; there are {', '.join(get_args(Level))}")
        if episodes < 1:
            raise EnvironmentFault(f"episodes must be at least 1, not {episodes}")
        self.level: Level = level
        known = [relation.name for relation in grammar_of(level).relations]
        for name in (knobs or LEVELS[level]).only:
            if name not in known:
                raise EnvironmentFault(
                    f"level {level!r} has no relation {name!r}; there are {', '.join(known)}"
                )
        self.knobs, self.seed, self.count = knobs or LEVELS[level], seed, episodes
        self._last: tuple[str, tuple[Episode, Truth]] | None = None
        """Name and world made last: an episode's truth is mostly asked for right after the
        episode.
        """

    @property
    def calendar(self) -> Calendar:
        """How the level's dialogues and answers name days."""
        return grammar_of(self.level).calendar

    def lexicon(self, split: Part) -> Lexicon:
        """The language of a split: its names, values and surface forms."""
        return _lexicon(self.level, split)

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """The first episodes of a split; of all three for `all`."""
        parts: tuple[Part, ...] = PARTS if split == "all" else (split,)
        return (self.episode(part, index) for part in parts for index in range(self.count))

    def episode(self, split: Part, index: int) -> Episode:
        """Episode number `index` of a split, from 0, as large as you like.

        Raises `EnvironmentFault` for an unknown split.
        """
        return self._world(split, index)[0]

    def world_of(self, episode_id: str) -> Truth:
        """What is behind an episode of this environment, all sessions.

        Raises `EnvironmentFault` for an id that is not its own.
        """
        return self._world(*self._place(episode_id))[1]

    def truth(self, episode: Episode) -> Truth:
        """What is behind the sessions of an episode; of a truncated one, only those it has."""
        return self.world_of(episode.id).upto(len(episode.sessions))

    def after(
        self, episode: Episode, sessions: int, *, probes: int | None = None
    ) -> tuple[Episode, Truth]:
        """The first `sessions` sessions with questions drawn anew about the state right
        after them (at most `probes`), and their truth.

        Ids of the questions tell the session, so those of different places never mix.
        """
        split, index = self._place(episode.id)
        full, truth = self._world(split, index)
        if not 1 <= sessions <= len(full.sessions):
            raise EnvironmentFault(
                f"episode {episode.id!r} has 1 to {len(full.sessions)} sessions, not {sessions}"
            )
        return asked_after(
            full, truth, self._key(split, index), _lexicon(self.level, split), sessions, probes
        )

    def _world(self, split: Part, index: int) -> tuple[Episode, Truth]:
        if split not in PARTS:
            raise EnvironmentFault(f"no split {split!r}; there are {', '.join(PARTS)}")
        name = f"synthetic-{self.level}-{self.seed}-{split}-{index}"
        last = self._last
        if last is None or last[0] != name:
            made = make_world(
                name, self._key(split, index), _lexicon(self.level, split), self.knobs
            )
            last = self._last = name, made
        return last[1]

    def _key(self, split: Part, index: int) -> str:
        return f"{self.seed}/{split}/{index}"

    def _place(self, episode_id: str) -> tuple[Part, int]:
        prefix = f"synthetic-{self.level}-{self.seed}-"
        split, _, index = episode_id.removeprefix(prefix).rpartition("-")
        for part in PARTS:
            if episode_id.startswith(prefix) and split == part and index.isdecimal():
                return part, int(index)
        raise EnvironmentFault(f"{episode_id!r} is no episode of {prefix}*")


@cache
def _lexicon(level: Level, split: Part) -> Lexicon:
    return Lexicon(grammar_of(level), held_out=split == "test")


def synthetic(
    level: Level = "standard",
    *,
    sessions: int = 8,
    seed: int = 0,
    episodes: int = 100,
    turns: int | None = None,
    facts: float | None = None,
    overwrite: float | None = None,
    interference: float | None = None,
    distractors: float | None = None,
    speakers: int | None = None,
    friends: int | None = None,
    only: tuple[str, ...] | None = None,
    probes: int | None = None,
    answering: MemoryAgent | None = None,
) -> Synthetic:
    """Open a synthetic world.

    What is not given is the level's own; `Knobs` says what each knob does.

    Raises `EnvironmentFault` for an unknown level or a knob out of range.
    """
    if level not in LEVELS:
        raise EnvironmentFault(f"no level {level!r}; there are {', '.join(LEVELS)}")
    given = {
        "turns": turns,
        "facts": facts,
        "overwrite": overwrite,
        "interference": interference,
        "distractors": distractors,
        "speakers": speakers,
        "friends": friends,
        "only": only,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    knobs = replace(LEVELS[level], sessions=sessions, probes=probes, **chosen)  # type: ignore[arg-type]
    return Synthetic(level, knobs=knobs, seed=seed, episodes=episodes, answering=answering)
