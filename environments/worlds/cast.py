"""Who takes part: the speakers, the people they tell of, and bystanders, drawn from a
stream of random numbers of their own.

The names are the only thing drawn here, so other names make another cast and leave
everything else as it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from environments.errors import EnvironmentFault
from environments.worlds.knobs import Knobs
from environments.worlds.lexicon import Lexicon
from environments.worlds.spec import Person, Relation


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


def draw_cast(rng: random.Random, lexicon: Lexicon, knobs: Knobs) -> Cast:
    """The people of an episode.

    Raises `EnvironmentFault` when the split has too few names for the knobs.
    """
    bonds = [
        relation
        for relation in lexicon.relations.values()
        if relation.kind == "bond" and relation.name in (knobs.only or lexicon.relations)
    ]
    friends = min(knobs.friends, len(bonds))
    wanted = knobs.speakers * (1 + friends) + 4
    if len(lexicon.people) < wanted:
        raise EnvironmentFault(
            f"{knobs.speakers} speakers need {wanted} names; the split has {len(lexicon.people)}"
        )
    names = iter(rng.sample(lexicon.people, len(lexicon.people)))
    speakers = tuple(next(names) for _ in range(knobs.speakers))
    left = list(names)
    ties = tuple(
        Tie(speaker, relation, _matching(left, relation))
        for speaker in speakers
        for relation in rng.sample(bonds, friends)
    )
    return Cast(speakers, ties, tuple(left[:3]), tuple(left[3:7]))


def _matching(names: list[Person], relation: Relation) -> Person:
    place = next((i for i, one in enumerate(names) if relation.gender in ("", one.he)), 0)
    return names.pop(place)


def offstage(cast: Cast) -> Iterator[Person]:
    """Friends, then spares: those who are spoken of and never speak."""
    yield from (tie.friend for tie in cast.ties)
    yield from cast.spares
