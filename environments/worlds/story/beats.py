"""A story before it is written: beats, threads and the dates of the sessions.

The people of an episode: speakers, the people they tell of, and bystanders.

The names are drawn from a stream of random numbers of their own and nothing else is, so
other names make another cast and leave everything else as it was.

Turns that have no ids yet: lines, and units of lines that stay together.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final, Literal

from environments.errors import EnvironmentFault
from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import PRONOUNS, Form, Lexicon, with_article
from environments.worlds.language.spec import Person, Relation
from environments.worlds.truth import Act

Topic = tuple[Person, Relation]
"""A person and a relation: whatever is told is a value of a topic."""


@dataclass(slots=True)
class Beat:
    """One thing to tell; becomes a `Telling` when its turn is written."""

    session: int
    said_on: date
    speaker: Person
    subject: Person
    relation: Relation
    act: Act
    value: str
    form: Form
    old: str = ""
    day: date | None = None
    day_text: str = ""
    place: str = ""
    company: str = ""
    cause: str = ""
    supersedes: Beat | None = None
    role: str = ""
    """The subject's role to the speaker ("sister"), where it stays the same; lets the
    dialogue say "my sister".
    """

    @property
    def topic(self) -> Topic:
        """The person and the relation."""
        return self.subject, self.relation

    def history(self) -> Iterator[Beat]:
        """Return this beat and those that it supersedes, newest first."""
        beat: Beat | None = self
        while beat is not None:
            yield beat
            beat = beat.supersedes


@dataclass(slots=True)
class Thread:
    """The life of one value that can be revised."""

    beat: Beat
    """The last telling that added or revised it."""
    value: str
    since: date
    """No later day was told for it; a change must lie after it."""
    open: bool = True
    """Whether it can still be revised."""
    day: date | None = None
    """A plan's day."""
    lead: Beat | None = None
    """The latest telling that may be corrected."""


@dataclass
class Story:
    """Beats by session, in the order of telling."""

    dates: tuple[date, ...]
    beats: list[list[Beat]] = field(default_factory=list[list[Beat]])
    used: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Values by relation that are, were or were wrongly said to be anybody's."""
    relations: tuple[Relation, ...] = ()
    """Relations in use besides bonds."""


def session_dates(rng: random.Random, lexicon: Lexicon, config: WorldConfig) -> tuple[date, ...]:
    """Draw the dates of the sessions, some days apart."""
    short = lexicon.grammar.calendar == "short"
    today = date(2024, 1, 2) + timedelta(rng.randrange(60 if short else 500))
    gaps = (2, 4) if short else (3, 17)
    dates: list[date] = []
    for _ in range(config.sessions):
        dates.append(today)
        today += timedelta(rng.randint(*gaps))
    return tuple(dates)


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


Mention = Literal["", "name", "role"]
_SLOTLESS: Final = dict.fromkeys(
    ("old", "a_old", "other", "a_other", "when", "place", "person", "cause"), ""
)


@dataclass(slots=True)
class Line:
    """A turn without an id: its speaker, its text, and what it tells."""

    speaker: Person
    text: str
    beat: Beat | None = None
    mention: Mention = ""
    """The mention of the subject: by `name` or `role`; empty in the first person."""
    pronoun: bool = False
    """Whether a pronoun stands for the subject."""
    free: bool = False
    """Whether anybody may say it; the speaker is chosen last, so that turns go back and
    forth.
    """


@dataclass(slots=True)
class Unit:
    """Lines that stay together."""

    lines: list[Line] = field(default_factory=list[Line])
    glued: bool = False
    """Whether it must follow the unit before it."""


def insert(rng: random.Random, units: list[Unit], unit: Unit) -> None:
    """Put a unit at a drawn place, but never before one that must follow another."""
    places = [
        place for place in range(len(units) + 1) if place == len(units) or not units[place].glued
    ]
    units.insert(rng.choice(places), unit)


def words_for(subject: Person | None, name: str, value: str) -> dict[str, str]:
    """Return the words for the slots; without a subject the speaker tells of himself.

    Slots that only some forms hold are empty.
    """
    pronouns = PRONOUNS["I" if subject is None else subject.he]
    if "{" in value:
        value = value.format_map(pronouns)
    return {**_SLOTLESS, **pronouns, "name": name, "value": value, "a_value": with_article(value)}
