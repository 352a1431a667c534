"""What all generators share: splits, names, and the way from a script of facts to an
episode with its truth.

An episode is a function of (generator, level, knobs, seed, split, index) and of nothing
else. The test split has surface forms and names of its own. Behind every episode stands
a `Truth`, as behind those of `synthetic`, so the readers of `worlds.players` play all
of them.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import cache
from typing import Final, TypedDict, Unpack, get_args

from environments.base import Environment, Split
from environments.datasets.synthetic import LEVELS, PARTS, Level, Part
from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent
from environments.records import Episode, Probe
from environments.worlds.asker import ask_questions
from environments.worlds.cast import Cast
from environments.worlds.days import Calendar
from environments.worlds.grammar import grammar_of
from environments.worlds.knobs import Knobs
from environments.worlds.lexicon import Lexicon
from environments.worlds.story import Story
from environments.worlds.teller import Teller
from environments.worlds.truth import ProbeTruth, Telling, Truth
from memagent.core.records import Session, Turn

Draw = Callable[[str], random.Random]
"""A stream of random numbers by name; equal names give equal streams."""
Asked = tuple[Probe, ProbeTruth]
"""A probe and how it came about."""
World = tuple[Episode, Truth]
"""An episode and what is behind it."""

_ALL: Final = 1_000_000
_NOON: Final = time(12, tzinfo=UTC)


class Shared(TypedDict, total=False):
    """The knobs that all generators have."""

    level: Level
    """Language of the world; `standard` where nothing is said."""
    seed: int
    episodes: int
    """How many `episodes(split)` gives of each split; 100 where nothing is said."""
    answering: MemoryAgent | None


class Generated(Environment):
    """A generator: `episodes(split)` as any environment, and `truth(episode)` behind them."""

    def __init__(self, **shared: Unpack[Shared]) -> None:
        """Raises `EnvironmentFault` for an unknown level or no episodes."""
        super().__init__(answering=shared.get("answering"))
        self.level: Level = shared.get("level", "standard")
        self.seed, self.count = shared.get("seed", 0), shared.get("episodes", 100)
        if self.level not in get_args(Level):
            raise EnvironmentFault(
                f"no level {self.level!r}; there are {', '.join(get_args(Level))}"
            )
        at_least(1, episodes=self.count)
        self._last: tuple[tuple[Part, int], World] | None = None
        """The world made last: its truth is mostly asked for next."""

    @abstractmethod
    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """The episode called `name`, made of the streams that `draw` gives."""

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """The first episodes of a split; of all three for `all`."""
        parts: tuple[Part, ...] = PARTS if split == "all" else (split,)
        return (self.episode(part, index) for part in parts for index in range(self.count))

    def episode(self, split: Part, index: int) -> Episode:
        """Episode number `index` of a split, from 0.

        Raises `EnvironmentFault` for an unknown split.
        """
        return self._world(split, index)[0]

    def truth(self, episode: Episode) -> Truth:
        """What is behind an episode of this generator; of a truncated one, only its sessions.

        Raises `EnvironmentFault` for another's.
        """
        prefix = f"{self.name}-{self.level}-{self.seed}-"
        split, _, index = episode.id.removeprefix(prefix).rpartition("-")
        for part in PARTS:
            if episode.id.startswith(prefix) and split == part and index.isdecimal():
                return self._world(part, int(index))[1].upto(len(episode.sessions))
        raise EnvironmentFault(f"{episode.id!r} is no episode of {prefix}*")

    @property
    def calendar(self) -> Calendar:
        """How the level's dialogues and answers name days."""
        return grammar_of(self.level).calendar

    def lexicon(self, split: Part) -> Lexicon:
        """The language of a split."""
        return _lexicon(self.level, split)

    def knobs(
        self, *, sessions: int, facts: float = 1.0, distractors: float | None = None
    ) -> Knobs:
        """The level's knobs for the talk around a script."""
        base = LEVELS[self.level]
        noise = base.distractors if distractors is None else distractors
        return replace(base, sessions=sessions, facts=facts, distractors=noise)

    def _world(self, split: Part, index: int) -> World:
        if split not in PARTS:
            raise EnvironmentFault(f"no split {split!r}; there are {', '.join(PARTS)}")

        if self._last is not None and self._last[0] == (split, index):
            return self._last[1]

        def draw(stream: str) -> random.Random:
            return random.Random(f"{self.name}/{self.seed}/{split}/{index}/{stream}")

        made = self.make(
            f"{self.name}-{self.level}-{self.seed}-{split}-{index}",
            draw,
            _lexicon(self.level, split),
        )
        self._last = (split, index), made
        return made


@cache
def _lexicon(level: Level, split: Part) -> Lexicon:
    return Lexicon(grammar_of(level), held_out=split == "test")


def at_least(least: int, **knobs: int) -> None:
    """Raises `EnvironmentFault` for the first knob below `least`."""
    for name, value in knobs.items():
        if value < least:
            raise EnvironmentFault(f"{name} must be at least {least}, not {value}")


# -- from a story or a list of turns to an episode -------------------------------------


def told(name: str, draw: Draw, lexicon: Lexicon, knobs: Knobs, cast: Cast, story: Story) -> World:
    """A story as dialogue, with talk and noise around it, without probes."""
    dialogue = Teller(draw, lexicon, knobs, cast, story).dialogue()
    return written(
        name,
        story.dates,
        dialogue.turns,
        dialogue.tellings,
        speakers=[one.name for one in cast.speakers],
        bystanders=[one.name for one in cast.bystanders],
    )


def written(
    name: str,
    dates: Sequence[date],
    turns: Sequence[Sequence[tuple[str, str, str]]],
    tellings: Sequence[Telling],
    *,
    speakers: Sequence[str],
    bystanders: Sequence[str] = (),
) -> World:
    """Turns by session, each (turn id, speaker, text), as an episode without probes;
    what they tell as its truth.
    """
    sessions = tuple(
        Session(
            id=f"S{number}",
            at=datetime.combine(day, _NOON),
            turns=tuple(Turn(id=turn_id, speaker=who, text=text) for turn_id, who, text in said),
        )
        for number, (day, said) in enumerate(zip(dates, turns, strict=True), start=1)
    )
    truth = Truth(
        episode_id=name,
        speakers=tuple(speakers),
        people=tuple(dict.fromkeys((*speakers, *(one.subject for one in tellings if one.true)))),
        bystanders=tuple(bystanders),
        dates=tuple(dates),
        session_ids=tuple(session.id for session in sessions),
        tellings=tuple(tellings),
    )
    return Episode(id=name, sessions=sessions), truth


# -- questions -------------------------------------------------------------------------


def questions(
    rng: random.Random, truth: Truth, lexicon: Lexicon, keep: Callable[[Probe, ProbeTruth], bool]
) -> list[Asked]:
    """Every question of the world that is of the wanted kind, worded, in a drawn order."""
    return [
        pair for pair in ask_questions(rng, truth, lexicon, most=_ALL, prefix="q") if keep(*pair)
    ]


def asking(world: World, asked: Sequence[Asked]) -> World:
    """The world with these questions, numbered anew."""
    episode, truth = world
    names = [f"{episode.id}:q{number}" for number in range(1, len(asked) + 1)]
    probes = tuple(
        probe.model_copy(update={"id": name}) for name, (probe, _) in zip(names, asked, strict=True)
    )
    hows = tuple(replace(how, probe_id=name) for name, (_, how) in zip(names, asked, strict=True))
    return Episode(id=episode.id, sessions=episode.sessions, probes=probes), replace(
        truth, probes=hows
    )
