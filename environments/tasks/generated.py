"""The base of the tasks: from a script of facts to an episode with its truth.

Behind every episode stands a `Truth`, as behind those of `synthetic`, so the players of
`worlds.readers.players` play all of them.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Final, TypedDict, Unpack

from environments.datasets.generated import GeneratedEnvironment, Part
from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent
from environments.records import Episode, Probe
from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.spec import Ask
from environments.worlds.questions.candidates import ask_questions
from environments.worlds.truth import ProbeTruth, Telling, Truth
from environments.worlds.world import World
from memagent.core.records import Session, Turn

Draw = Callable[[str], random.Random]
"""A stream of random numbers by name; equal names give equal streams."""
Asked = tuple[Probe, ProbeTruth]
"""A probe and its origin."""

_ALL: Final = 1_000_000
_NOON: Final = time(12, tzinfo=UTC)


class Shared(TypedDict, total=False):
    """The arguments that all tasks share."""

    level: str | Path
    """World whose language is used: a level, a name or a path; `standard` by default."""
    seed: int
    episodes: int
    """Number of episodes that `episodes(split)` gives of each split; 100 by default."""
    answering: MemoryAgent | None


class Generated(GeneratedEnvironment):
    """A task: `episodes(split)` as any environment, and `truth(episode)` behind them."""

    def __init__(self, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` for an unknown level or no episodes."""
        super().__init__(**shared)

    @abstractmethod
    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make the episode called `name` of the streams that `draw` gives."""

    def config(
        self, *, sessions: int, facts: float = 1.0, distractors: float | None = None
    ) -> WorldConfig:
        """Return the level's configuration for the talk around a script."""
        base = self.world.config
        noise = base.distractors if distractors is None else distractors
        return replace(base, sessions=sessions, facts=facts, distractors=noise)

    def _make(self, episode_id: str, split: Part, index: int) -> World:
        def draw(stream: str) -> random.Random:
            return random.Random(f"{self.name}/{self.seed}/{split}/{index}/{stream}")

        return self.make(episode_id, draw, self.lexicon(split))


def require_at_least(least: int, **values: int) -> None:
    """Raise `EnvironmentFault` for the first value below `least`."""
    for name, value in values.items():
        if value < least:
            raise EnvironmentFault(f"{name} must be at least {least}, not {value}")


# -- from a list of turns to an episode ------------------------------------------------


def build_world(
    name: str,
    dates: Sequence[date],
    turns: Sequence[Sequence[tuple[str, str, str]]],
    tellings: Sequence[Telling],
    *,
    speakers: Sequence[str],
    bystanders: Sequence[str] = (),
) -> World:
    """Return an episode without probes, and the truth of its tellings.

    `turns` are by session, each a (turn id, speaker, text).
    """
    sessions = tuple(
        Session(
            id=f"S{number}",
            at=datetime.combine(day, _NOON),
            turns=tuple(Turn(id=turn_id, speaker=who, text=text) for turn_id, who, text in rows),
        )
        for number, (day, rows) in enumerate(zip(dates, turns, strict=True), start=1)
    )
    truth = Truth(
        episode_id=name,
        speakers=tuple(speakers),
        people=tuple(
            dict.fromkeys((*speakers, *(telling.subject for telling in tellings if telling.true)))
        ),
        bystanders=tuple(bystanders),
        dates=tuple(dates),
        session_ids=tuple(session.id for session in sessions),
        tellings=tuple(tellings),
    )
    return Episode(id=name, sessions=sessions), truth


# -- questions -------------------------------------------------------------------------


def draw_questions(
    rng: random.Random, truth: Truth, lexicon: Lexicon, *asks: Ask, absent: bool = True
) -> list[Asked]:
    """Return every answerable question of these kinds, worded, in a drawn order.

    Without `absent` those that cannot be answered take no part in the draw.
    """
    return [
        (probe, origin)
        for probe, origin in ask_questions(
            rng, truth, lexicon, most=_ALL, prefix="q", absent=absent
        )
        if origin.ask in asks and not probe.unanswerable
    ]


def with_questions(world: World, asked: Sequence[Asked]) -> World:
    """Return the world with these questions, numbered anew."""
    episode, truth = world
    names = [f"{episode.id}:q{number}" for number in range(1, len(asked) + 1)]
    probes = tuple(
        probe.model_copy(update={"id": name}) for name, (probe, _) in zip(names, asked, strict=True)
    )
    origins = tuple(
        replace(origin, probe_id=name) for name, (_, origin) in zip(names, asked, strict=True)
    )
    episode = Episode(id=episode.id, sessions=episode.sessions, probes=probes)
    return episode, replace(truth, probes=origins)
