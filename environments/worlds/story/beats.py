"""A story before it is written: beats, threads and the dates of the sessions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta

from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Form, Lexicon
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
