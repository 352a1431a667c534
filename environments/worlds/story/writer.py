"""The writer of beats: from a value to tell to a beat with its form, day, place and company."""

from __future__ import annotations

import random
from datetime import date
from typing import Final

from environments.worlds.language.days import Calendar, coming_day, past_day, spoken
from environments.worlds.language.lexicon import Form, Lexicon, pick
from environments.worlds.language.spec import PEOPLE, Person
from environments.worlds.story.beats import Beat, Cast, Thread, Topic, offstage
from environments.worlds.truth import Act

_DATED_SHARE: Final = 0.7
"""Share of changes that say when they happened."""
_NO_DAY: Final = frozenset(("when",))


class BeatWriter:
    """Writes beats into the session that was begun last."""

    def __init__(self, rng: random.Random, lexicon: Lexicon, cast: Cast) -> None:
        self.rng, self.lexicon, self.cast = rng, lexicon, cast
        self.calendar: Calendar = lexicon.grammar.calendar
        self.session, self.today = 0, date.min
        self.beats: list[Beat] = []
        """Beats of the session."""
        self.used: dict[str, set[str]] = {}
        """Values by relation that are, were or were wrongly said to be anybody's."""
        self.tellers: dict[str, tuple[Person, str]] = {
            person.name: (person, "") for person in cast.speakers
        }
        """The speaker who tells of a person, and the person's lasting role to them."""

    def begin(self, session: int, today: date) -> None:
        """Start the next session."""
        self.session, self.today, self.beats = session, today, []

    def write(
        self, topic: Topic, group: str, act: Act, value: str, *, revises: Thread | None = None
    ) -> Beat | None:
        """Add a beat in a form of the group; return None when no form fits.

        The form decides whether a day, a place and company are told.
        """
        relation = topic[1]
        forms = self.lexicon.forms(relation.name, group)
        ahead = relation.kind == "plan" and act in (Act.ADD, Act.MOVE)
        day = self._day(ahead, None if revises is None else revises.since)
        undated = day is None or (
            act is not Act.ADD and not ahead and self.rng.random() > _DATED_SHARE
        )
        form = (pick(self.rng, forms, without=_NO_DAY) if undated else None) or pick(
            self.rng, forms
        )
        if form is None:
            return None
        beat = self.new_beat(topic, form, act, value)
        if "when" in form.slots:
            beat.day = day or self.today
            beat.day_text = spoken(self.rng, self.calendar, self.today, beat.day)
        if "place" in form.slots:
            beat.place = self.rng.choice(self.lexicon.pools[relation.place])
        if "person" in form.slots:
            beat.company = self._company(beat)
        if revises is not None:
            beat.supersedes, beat.old = revises.beat, revises.value
        self.beats.append(beat)
        if relation.values != PEOPLE:
            self.used.setdefault(relation.name, set()).add(value)
        return beat

    def new_beat(self, topic: Topic, form: Form, act: Act, value: str) -> Beat:
        """Return a beat of today, without adding it to the session."""
        subject, relation = topic
        speaker, role = self.tellers[subject.name]
        return Beat(
            session=self.session,
            said_on=self.today,
            speaker=speaker,
            subject=subject,
            relation=relation,
            act=act,
            value=value,
            form=form,
            role=role,
        )

    def _day(self, ahead: bool, since: date | None) -> date | None:
        if ahead:
            return coming_day(self.rng, self.calendar, self.today)
        return past_day(self.rng, self.calendar, self.today, after=since)

    def _company(self, beat: Beat) -> str:
        """Draw somebody who is neither the subject nor in the conversation."""
        names = [person.name for person in offstage(self.cast) if person != beat.subject]
        return self.rng.choice(names)
