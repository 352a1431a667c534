"""What is told and changes nothing: look-alike facts about bystanders, jokes, rumours
and their denial.

It is drawn from a stream of its own after the story is complete and uses values that
are nobody's, so more of it changes no answer. Rumours are about friends' states and
come at the end of a session, when the state that their denial repeats is settled.
"""

from __future__ import annotations

import random
from typing import Final

from environments.worlds.cast import Cast
from environments.worlds.days import Calendar, past_day, spoken
from environments.worlds.knobs import Knobs
from environments.worlds.lexicon import Form, Lexicon, capitalised, filled, pick
from environments.worlds.spec import Person, Relation
from environments.worlds.story import Beat, Story
from environments.worlds.truth import Act
from environments.worlds.units import Line, Unit, insert, words_for

_UNTIMED: Final = frozenset(("when", "old"))


class Noise:
    """The noise of one story."""

    def __init__(
        self, rng: random.Random, lexicon: Lexicon, knobs: Knobs, cast: Cast, story: Story
    ) -> None:
        self.rng, self.lexicon, self.knobs, self.cast, self.story = rng, lexicon, knobs, cast, story
        self.calendar: Calendar = lexicon.grammar.calendar
        self._held: dict[tuple[str, str], Beat] = {}
        """The last state of each friend as told by now."""
        self._ends = {
            id(beat.supersedes): beat.day
            for beats in story.beats
            for beat in beats
            if beat.act is Act.CHANGE and beat.day is not None
        }
        """Days on which values ended, by the identity of the beat that last told them; the
        story keeps the beats alive.
        """

    def disturb(self, number: int, units: list[Unit]) -> list[Unit]:
        """The units of session `number` with noise between them; called once a session, in order."""
        for beat in self.story.beats[number]:
            if (
                beat.subject not in self.cast.speakers
                and beat.relation.kind == "state"
                and beat.act is not Act.REPEAT
            ):
                self._held[beat.subject.name, beat.relation.name] = beat
        mean = self.knobs.distractors * self.knobs.facts
        count = int(mean) + (self.rng.random() < mean - int(mean))
        last: list[Unit] = []
        for _ in range(count):
            kind = self.rng.choice(("bystander", "bystander", "joke", "rumour"))
            unit = self._rumour(number) if kind == "rumour" else None
            if unit is not None:
                last.append(unit)
                continue
            unit = self._joke(number) if kind == "joke" else None
            unit = unit or self._bystander(number)
            if unit is not None:
                insert(self.rng, units, unit)
        return [*units, *last]

    def _decoy(self, relation: Relation) -> str:
        """A value that is nobody's in this episode; empty when there is none."""
        used = self.story.used.get(relation.name, ())
        free = [value for value in self.lexicon.pools.get(relation.values, ()) if value not in used]
        return self.rng.choice(free) if free else ""

    def _beat(
        self,
        number: int,
        relation: Relation,
        form: Form,
        act: Act,
        speaker: Person,
        subject: Person,
        value: str,
    ) -> Beat:
        return Beat(
            session=number,
            said_on=self.story.dates[number],
            speaker=speaker,
            subject=subject,
            relation=relation,
            act=act,
            value=value,
            form=form,
        )

    def _bystander(self, number: int) -> Unit | None:
        relation = self.rng.choice(self.story.relations)
        form = pick(
            self.rng,
            self.lexicon.forms(relation.name, "third"),
            without=frozenset(("place", "person")),
        )
        value = self._decoy(relation)
        if form is None or not value:
            return None
        speaker, subject = (
            self.rng.choice(self.cast.speakers),
            self.rng.choice(self.cast.bystanders),
        )
        beat = self._beat(number, relation, form, Act.BYSTANDER, speaker, subject, value)
        if "when" in form.slots:
            beat.day = past_day(self.rng, self.calendar, beat.said_on)
            if relation.kind == "plan" or beat.day is None:
                return None
            beat.day_text = spoken(self.rng, self.calendar, beat.said_on, beat.day)
        return Unit([self._line(beat)])

    def _joke(self, number: int) -> Unit | None:
        relations = [one for one in self.story.relations if self.lexicon.forms(one.name, "jokes")]
        if not relations:
            return None
        relation = self.rng.choice(relations)
        form, value = (
            self.rng.choice(self.lexicon.forms(relation.name, "jokes")),
            self._decoy(relation),
        )
        if not value:
            return None
        speaker = self.rng.choice(self.cast.speakers)
        return Unit(
            [self._line(self._beat(number, relation, form, Act.JOKE, speaker, speaker, value))]
        )

    def _rumour(self, number: int) -> Unit | None:
        """Somebody heard something wrong of a friend; the one who knows denies it and
        says what is true.
        """
        if not self._held:
            return None
        true = self._held[self.rng.choice(list(self._held))]
        ended = self._ends.get(id(true))
        if ended is not None and ended <= self.story.dates[number]:
            return None  # told later, true before: by now the value is no longer what one would say
        value = self._decoy(true.relation)
        wrong = pick(self.rng, self.lexicon.forms(true.relation.name, "hearsay"), without=_UNTIMED)
        right = pick(self.rng, self.lexicon.forms(true.relation.name, "third"), without=_UNTIMED)
        denials = self.lexicon.forms("", "denials")
        if not value or wrong is None or right is None or not denials:
            return None
        gossip = self.rng.choice([one for one in self.cast.speakers if one != true.speaker])
        rumour = self._beat(number, true.relation, wrong, Act.RUMOUR, gossip, true.subject, value)
        truth = self._beat(
            number, true.relation, right, Act.REPEAT, true.speaker, true.subject, true.value
        )
        truth.supersedes = true
        line = self._line(truth)
        line.text = f"{capitalised(self.rng.choice(denials).text)} {line.text}"
        return Unit([self._line(rumour), line])

    def _line(self, beat: Beat) -> Line:
        own = beat.subject == beat.speaker
        slots = words_for(None if own else beat.subject, beat.subject.name, beat.value) | {
            "when": beat.day_text
        }
        return Line(beat.speaker, filled(beat.form.text, slots), beat, "" if own else "name")
