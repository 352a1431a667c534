"""Tellings that change nothing: look-alike facts about bystanders, jokes, denied rumours.

The noise is drawn from a stream of its own after the story is complete and uses values
that are nobody's, so more of it changes no answer. Rumours are about friends' states and
come at the end of a session, when the state that their denial repeats is settled.
"""

from __future__ import annotations

import random
from typing import Final

from environments.worlds.config import WorldConfig
from environments.worlds.language.days import Calendar, past_day, spoken
from environments.worlds.language.lexicon import Form, Lexicon, capitalised, filled, pick
from environments.worlds.language.spec import Person, Relation
from environments.worlds.story.beats import Beat, Cast, Line, Story, Topic, Unit, insert, words_for
from environments.worlds.truth import Act

_UNTIMED: Final = frozenset(("when", "old"))
_PLAIN: Final = frozenset(("place", "person"))


class Noise:
    """The noise of one story."""

    def __init__(
        self, rng: random.Random, lexicon: Lexicon, config: WorldConfig, cast: Cast, story: Story
    ) -> None:
        self.rng, self.lexicon, self.config = rng, lexicon, config
        self.cast, self.story = cast, story
        self.calendar: Calendar = lexicon.grammar.calendar
        self._number = 0
        self._states: dict[tuple[str, str], Beat] = {}
        """The latest state of each friend that was told by now."""
        # By the identity of beats, which the story keeps alive.
        self._ends = {
            id(beat.supersedes): beat.day
            for beats in story.beats
            for beat in beats
            if beat.act is Act.CHANGE and beat.day is not None
        }
        """Days on which values ended, by the beat that last told them."""

    def disturb(self, number: int, units: list[Unit]) -> list[Unit]:
        """Return the units of session `number` with noise between them.

        Call it once a session, in order.
        """
        self._number = number
        for beat in self.story.beats[number]:
            if (
                beat.subject not in self.cast.speakers
                and beat.relation.kind == "state"
                and beat.act is not Act.REPEAT
            ):
                self._states[beat.subject.name, beat.relation.name] = beat
        mean = self.config.distractors * self.config.facts
        count = int(mean) + (self.rng.random() < mean - int(mean))
        rumours: list[Unit] = []
        for _ in range(count):
            kind = self.rng.choice(("bystander", "bystander", "joke", "rumour"))
            unit = self._rumour() if kind == "rumour" else None
            if unit is not None:
                rumours.append(unit)
                continue
            unit = self._joke() if kind == "joke" else None
            unit = unit or self._bystander()
            if unit is not None:
                insert(self.rng, units, unit)
        return [*units, *rumours]

    def _decoy(self, relation: Relation) -> str:
        """Draw a value that is nobody's in this episode; empty when there is none."""
        used = self.story.used.get(relation.name, ())
        free = [value for value in self.lexicon.pools.get(relation.values, ()) if value not in used]
        return self.rng.choice(free) if free else ""

    def _beat(self, topic: Topic, form: Form, act: Act, value: str, *, speaker: Person) -> Beat:
        subject, relation = topic
        return Beat(
            session=self._number,
            said_on=self.story.dates[self._number],
            speaker=speaker,
            subject=subject,
            relation=relation,
            act=act,
            value=value,
            form=form,
        )

    def _bystander(self) -> Unit | None:
        relation = self.rng.choice(self.story.relations)
        form = pick(self.rng, self.lexicon.forms(relation.name, "third"), without=_PLAIN)
        value = self._decoy(relation)
        if form is None or not value:
            return None
        speaker = self.rng.choice(self.cast.speakers)
        subject = self.rng.choice(self.cast.bystanders)
        beat = self._beat((subject, relation), form, Act.BYSTANDER, value, speaker=speaker)
        if "when" in form.slots:
            beat.day = past_day(self.rng, self.calendar, beat.said_on)
            if relation.kind == "plan" or beat.day is None:
                return None
            beat.day_text = spoken(self.rng, self.calendar, beat.said_on, beat.day)
        return Unit([_line(beat)])

    def _joke(self) -> Unit | None:
        relations = [
            relation
            for relation in self.story.relations
            if self.lexicon.forms(relation.name, "jokes")
        ]
        if not relations:
            return None
        relation = self.rng.choice(relations)
        form = self.rng.choice(self.lexicon.forms(relation.name, "jokes"))
        value = self._decoy(relation)
        if not value:
            return None
        speaker = self.rng.choice(self.cast.speakers)
        beat = self._beat((speaker, relation), form, Act.JOKE, value, speaker=speaker)
        return Unit([_line(beat)])

    def _rumour(self) -> Unit | None:
        """Draw a wrong report about a friend, and the denial that says what is true."""
        if not self._states:
            return None
        true = self._states[self.rng.choice(list(self._states))]
        ended = self._ends.get(id(true))
        # Told later, but true before: by now one would no longer say this value.
        if ended is not None and ended <= self.story.dates[self._number]:
            return None
        value = self._decoy(true.relation)
        wrong = pick(self.rng, self.lexicon.forms(true.relation.name, "hearsay"), without=_UNTIMED)
        right = pick(self.rng, self.lexicon.forms(true.relation.name, "third"), without=_UNTIMED)
        denials = self.lexicon.forms("", "denials")
        if not value or wrong is None or right is None or not denials:
            return None
        others = [person for person in self.cast.speakers if person != true.speaker]
        gossip = self.rng.choice(others)
        rumour = self._beat(true.topic, wrong, Act.RUMOUR, value, speaker=gossip)
        denial = self._beat(true.topic, right, Act.REPEAT, true.value, speaker=true.speaker)
        denial.supersedes = true
        line = _line(denial)
        line.text = f"{capitalised(self.rng.choice(denials).text)} {line.text}"
        return Unit([_line(rumour), line])


def _line(beat: Beat) -> Line:
    own = beat.subject == beat.speaker
    slots = words_for(None if own else beat.subject, beat.subject.name, beat.value)
    text = filled(beat.form.text, slots | {"when": beat.day_text})
    return Line(beat.speaker, text, beat, "" if own else "name")
