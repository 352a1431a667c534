"""The pen that drafts a story: from what is to be told to a beat with its form, day,
place and company.
"""

from __future__ import annotations

import random
from datetime import date
from typing import Final

from environments.worlds.cast import Cast, offstage
from environments.worlds.days import Calendar, coming_day, past_day, spoken
from environments.worlds.lexicon import Form, Lexicon, pick
from environments.worlds.spec import PEOPLE, Person, Relation
from environments.worlds.story import Beat, Thread
from environments.worlds.truth import Act

_DATED_SHARE: Final = 0.7
"""How often a change says when it happened."""
_NO_DAY: Final = frozenset(("when",))


class Pen:
    """Drafts beats into the session that was begun last."""

    def __init__(self, rng: random.Random, lexicon: Lexicon, cast: Cast) -> None:
        self.rng, self.lexicon, self.cast = rng, lexicon, cast
        self.calendar: Calendar = lexicon.grammar.calendar
        self.session, self.today = 0, date.min
        self.now: list[Beat] = []
        """Beats of the session."""
        self.used: dict[str, set[str]] = {}
        """Values by relation that are, were or were wrongly said to be anybody's."""
        self.tellers: dict[str, tuple[Person, str]] = {one.name: (one, "") for one in cast.speakers}
        """Who tells of whom, and the person's lasting role to the teller."""

    def begin(self, session: int, today: date) -> None:
        """Turn to the next session."""
        self.session, self.today, self.now = session, today, []

    def write(
        self,
        subject: Person,
        relation: Relation,
        group: str,
        act: Act,
        value: str,
        *,
        revises: Thread | None = None,
        supersedes: Beat | None = None,
        cause: str = "",
    ) -> Beat | None:
        """Tell it in a form of the group; the form decides whether a day, a place and company are told.

        None when no form fits.
        """
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
        beat = self.made(subject, relation, form, act, value)
        if "when" in form.slots:
            beat.day = day or self.today
            beat.day_text = spoken(self.rng, self.calendar, self.today, beat.day)
        if "place" in form.slots:
            beat.place = self.rng.choice(self.lexicon.pools[relation.place])
        if "person" in form.slots:
            beat.company = self._company(beat)
        beat.cause = cause
        beat.supersedes = revises.beat if revises is not None else supersedes
        beat.old = revises.value if revises is not None else ""
        self.now.append(beat)
        if relation.values != PEOPLE:
            self.used.setdefault(relation.name, set()).add(value)
        return beat

    def made(self, subject: Person, relation: Relation, form: Form, act: Act, value: str) -> Beat:
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
        """Somebody who is neither the person nor in the conversation."""
        names = [one.name for one in offstage(self.cast) if one.name != beat.subject.name]
        return self.rng.choice(names)
