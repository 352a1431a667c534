"""Turns that have no ids yet: lines, and units of lines that stay together."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

from environments.worlds.language.lexicon import PRONOUNS, with_article
from environments.worlds.language.spec import Person
from environments.worlds.story.beats import Beat

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
