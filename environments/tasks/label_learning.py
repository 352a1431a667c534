"""Test-time learning: sentences with labels, and then sentences to be labelled.

A label stands for what a sentence is about: a relation of the world or, where there are
more labels than relations, a relation and its value. The labels are numbers, drawn anew
for each episode, so nobody can know them without the examples. The sentences asked
about are in forms that no example of the episode has. Every label has as many examples
and as many questions as any other: always saying the commonest is right once in
`classes` times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, Unpack

from environments.errors import EnvironmentFault
from environments.records import Probe
from environments.tasks.generated import (
    Asked,
    Draw,
    Generated,
    Shared,
    build_world,
    require_at_least,
    with_questions,
)
from environments.worlds.language.lexicon import Form, Lexicon, filled
from environments.worlds.language.spec import Relation, half
from environments.worlds.story.beats import words_for
from environments.worlds.truth import Act, ProbeTruth, Telling
from environments.worlds.world import World

_GROUPS: Final = ("first", "third", "change", "change_third", "done", "remove", "remove_third")
_SIMPLE: Final = frozenset(("value", "name", "he", "him", "his"))
_EXAMPLES: Final = (
    'this has label {label}: "{said}"', 'label {label}, as in "{said}"',
    'and this is {label}: "{said}"', '"{said}" has {label} as its label.',
    'one more with label {label}: "{said}"', 'here is a {label}: "{said}"',
)  # fmt: skip
_QUESTIONS: Final = (
    'What is the label of "{said}"?', 'Which label has "{said}"?',
    'Which label fits "{said}"?', 'And what label has this: "{said}"?',
)  # fmt: skip
_FEW: Final = 20
"""So many labels have two digits; more have three."""
LABEL: Final = "label"
"""Name of the relation between a kind of sentence and its label, in the truth."""


@dataclass(frozen=True)
class _Class:
    """A class: sentences about one relation, or one value of it."""

    relation: Relation
    value: str
    """Empty for any value."""
    label: str
    forms: list[Form]
    """Forms in a drawn order: two for questions, the rest for examples."""

    @property
    def topic(self) -> str:
        """The name of the class in the truth."""
        return f"{self.relation.name}: {self.value}" if self.value else self.relation.name

    @property
    def examples(self) -> list[Form]:
        """The forms of examples."""
        return self.forms[2:]


class LabelLearning(Generated):
    """`classes` labels with `shots` examples each, one a session, and two questions a label."""

    name = "label_learning"

    def __init__(self, *, classes: int = 4, shots: int = 4, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` for fewer than two classes, or more than the language holds."""
        super().__init__(**shared)
        require_at_least(2, classes=classes)
        require_at_least(1, shots=shots)
        self.classes, self.shots = classes, shots

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        rng = draw("story")
        lesson = self._lesson(rng, lexicon)
        speaker = rng.choice(lexicon.people).name
        start = date(2024, 1, 2) + timedelta(rng.randrange(60))
        dates = [start + timedelta(2 * number) for number in range(self.shots)]
        templates = [text for _, text in half(_EXAMPLES, held_out=lexicon.held_out)]
        turns: list[list[tuple[str, str, str]]] = []
        tellings: list[Telling] = []
        first: dict[str, str] = {}
        for number, day in enumerate(dates):
            rows: list[tuple[str, str, str]] = []
            for subject in rng.sample(lesson, len(lesson)):
                form = subject.examples[number % len(subject.examples)]
                sentence = _sentence(rng, lexicon, subject, form)
                text = rng.choice(templates).format(said=sentence, label=subject.label)
                rows.append(
                    (f"D{number + 1}:{len(rows) + 1}", speaker, text[:1].upper() + text[1:])
                )
                telling_id = f"T{len(tellings) + 1}"
                older = first.setdefault(subject.topic, telling_id)
                tellings.append(
                    Telling(
                        id=telling_id,
                        turn_id=rows[-1][0],
                        session=number,
                        speaker=speaker,
                        subject=subject.topic,
                        relation=LABEL,
                        kind="state",
                        act=Act.ADD if older == telling_id else Act.REPEAT,
                        value=subject.label,
                        said_on=day,
                        supersedes="" if older == telling_id else older,
                    )
                )
            turns.append(rows)
        world = build_world(name, dates, turns, tellings, speakers=[speaker])
        asked = [
            _question(rng, lexicon, subject, form, tellings)
            for subject in lesson
            for form in subject.forms[:2]
        ]
        rng.shuffle(asked)
        return with_questions(world, asked)

    def _lesson(self, rng: random.Random, lexicon: Lexicon) -> list[_Class]:
        """Draw the classes with their labels.

        Raises `EnvironmentFault` when the language has too few.
        """
        forms = {
            relation.name: sentences
            for relation in lexicon.relations.values()
            if len(sentences := _sentences(lexicon, relation)) >= 4
        }
        topics = [(lexicon.relations[name], "") for name in forms]
        if len(topics) < self.classes:
            topics = [
                (relation, value)
                for relation, _ in topics
                for value in lexicon.pools[relation.values]
            ]
        if len(topics) < self.classes:
            raise EnvironmentFault(
                f"classes={self.classes} is more than this level's language has room for, "
                f"{len(topics)}"
            )
        drawn = rng.sample(topics, self.classes)
        numbers = range(10, 32) if self.classes <= _FEW else range(100, 1000)
        labels = rng.sample(numbers, self.classes)
        return [
            _Class(relation, value, str(label), rng.sample(own, len(own)))
            for (relation, value), label in zip(drawn, labels, strict=True)
            if (own := forms[relation.name])
        ]


def _sentences(lexicon: Lexicon, relation: Relation) -> list[Form]:
    """Return the forms that can stand alone, whatever came before."""
    groups = (lexicon.forms(relation.name, group) for group in _GROUPS)
    pool = lexicon.pools.get(relation.values, ())
    return [form for forms in groups for form in forms if form.slots <= _SIMPLE and pool]


def _sentence(rng: random.Random, lexicon: Lexicon, subject: _Class, form: Form) -> str:
    person = rng.choice(lexicon.people)
    named = person if "name" in form.slots else None
    value = subject.value or rng.choice(lexicon.pools[subject.relation.values])
    return filled(form.text, words_for(named, person.name, value))


def _question(
    rng: random.Random,
    lexicon: Lexicon,
    subject: _Class,
    form: Form,
    tellings: Sequence[Telling],
) -> Asked:
    sentence = _sentence(rng, lexicon, subject, form)
    texts = [text for _, text in half(_QUESTIONS, held_out=lexicon.held_out)]
    tellings_of_class = [telling for telling in tellings if telling.subject == subject.topic]
    probe = Probe(
        id="q",
        question=rng.choice(texts).format(said=sentence),
        answers=(tellings_of_class[0].value,),
        evidence_turn_ids=tuple(telling.turn_id for telling in tellings_of_class),
        category=LABEL,
    )
    return probe, ProbeTruth(
        probe_id="q", ask="now", subject=subject.topic, relation=LABEL, form=form.id
    )
