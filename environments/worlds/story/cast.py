"""The people of an episode: speakers, the people they tell of, and bystanders.

The names are drawn from a stream of random numbers of their own and nothing else is, so
other names make another cast and leave everything else as it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from environments.errors import EnvironmentFault
from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.spec import Person, Relation


@dataclass(frozen=True, slots=True)
class Tie:
    """A bond that will be told: `owner` says who `friend` is."""

    owner: Person
    relation: Relation
    friend: Person


@dataclass(frozen=True)
class Cast:
    """The people of an episode."""

    speakers: tuple[Person, ...]
    ties: tuple[Tie, ...]
    spares: tuple[Person, ...]
    """New friends, for bonds that change."""
    bystanders: tuple[Person, ...]


def draw_cast(rng: random.Random, lexicon: Lexicon, config: WorldConfig) -> Cast:
    """Draw the people of an episode.

    Raises `EnvironmentFault` when the split has too few names for the configuration.
    """
    bonds = [
        relation
        for relation in lexicon.relations.values()
        if relation.kind == "bond" and relation.name in (config.only or lexicon.relations)
    ]
    friends = min(config.friends, len(bonds))
    needed = config.speakers * (1 + friends) + 4
    if len(lexicon.people) < needed:
        raise EnvironmentFault(
            f"{config.speakers} speakers need {needed} names; the split has {len(lexicon.people)}"
        )
    people = rng.sample(lexicon.people, len(lexicon.people))
    speakers, rest = tuple(people[: config.speakers]), people[config.speakers :]
    ties = tuple(
        Tie(speaker, relation, _take_matching(rest, relation))
        for speaker in speakers
        for relation in rng.sample(bonds, friends)
    )
    return Cast(speakers, ties, tuple(rest[:3]), tuple(rest[3:7]))


def _take_matching(people: list[Person], relation: Relation) -> Person:
    """Take out the first person whose pronoun fits the relation, else the first."""
    fitting = (i for i, person in enumerate(people) if relation.gender in ("", person.he))
    return people.pop(next(fitting, 0))


def offstage(cast: Cast) -> Iterator[Person]:
    """Return those who are spoken of and never speak: friends, then spares."""
    yield from (tie.friend for tie in cast.ties)
    yield from cast.spares
