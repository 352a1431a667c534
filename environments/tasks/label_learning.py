"""Test-time learning: sentences with labels, and then sentences to be labelled.

A label stands for what a sentence is about (a relation of the world); the labels are
numbers, drawn anew for each episode, so nobody can know them without the examples. The
sentences asked about are in forms that no example of the episode has. Every label has
as many examples and as many questions as any other: always saying the commonest is
right once in `classes` times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final, Unpack

from environments.errors import EnvironmentFault
from environments.records import Probe
from environments.tasks.generated import (
    Asked,
    Draw,
    Generated,
    Shared,
    World,
    asking,
    at_least,
    written,
)
from environments.worlds.lexicon import Form, Lexicon, filled
from environments.worlds.spec import Relation, half
from environments.worlds.truth import Act, ProbeTruth, Telling
from environments.worlds.units import words_for

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
LABEL: Final = "label"
"""Name of the relation between a kind of sentence and its label, in the truth."""


class LabelLearning(Generated):
    """`classes` labels with `shots` examples each, one a session, and two questions a label."""

    name = "label_learning"

    def __init__(self, *, classes: int = 4, shots: int = 4, **shared: Unpack[Shared]) -> None:
        """Raises `EnvironmentFault` for fewer than two classes, or more than the
        language has room for.
        """
        super().__init__(**shared)
        at_least(2, classes=classes)
        at_least(1, shots=shots)
        self.classes, self.shots = classes, shots

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """One episode."""
        rng = draw("story")
        found = [(one, _sentences(lexicon, one)) for one in lexicon.relations.values()]
        fitting = [pair for pair in found if len(pair[1]) >= 4]
        if len(fitting) < self.classes or self.classes > 20:
            raise EnvironmentFault(
                f"classes={self.classes} is more than this level's language has room for, {min(20, len(fitting))}"
            )
        chosen = rng.sample(fitting, self.classes)
        labels = dict(
            zip(
                (one.name for one, _ in chosen),
                rng.sample(range(10, 32), self.classes),
                strict=True,
            )
        )
        shown = {one.name: rng.sample(forms, len(forms)) for one, forms in chosen}
        teller = rng.choice(lexicon.people).name
        start = date(2024, 1, 2) + timedelta(rng.randrange(60))
        dates = [start + timedelta(2 * number) for number in range(self.shots)]
        templates = [text for _, text in half(_EXAMPLES, held_out=lexicon.held_out)]
        turns: list[list[tuple[str, str, str]]] = []
        tellings: list[Telling] = []
        first: dict[str, str] = {}
        for number, day in enumerate(dates):
            said: list[tuple[str, str, str]] = []
            for relation, _ in rng.sample(chosen, len(chosen)):
                forms = shown[relation.name][2:]
                sentence = _sentence(rng, lexicon, relation, forms[number % len(forms)])
                turn_id, label = f"D{number + 1}:{len(said) + 1}", str(labels[relation.name])
                said.append(
                    (
                        turn_id,
                        teller,
                        _capital(rng.choice(templates).format(said=sentence, label=label)),
                    )
                )
                name_of_it = f"T{len(tellings) + 1}"
                older = first.setdefault(relation.name, name_of_it)
                tellings.append(
                    Telling(
                        id=name_of_it,
                        turn_id=turn_id,
                        session=number,
                        speaker=teller,
                        subject=relation.name,
                        relation=LABEL,
                        kind="state",
                        act=Act.ADD if older == name_of_it else Act.REPEAT,
                        value=label,
                        said_on=day,
                        supersedes="" if older == name_of_it else older,
                    )
                )
            turns.append(said)
        world = written(name, dates, turns, tellings, speakers=[teller])
        asked = [
            _asked(rng, lexicon, relation, form, tellings)
            for relation, _ in chosen
            for form in shown[relation.name][:2]
        ]
        rng.shuffle(asked)
        return asking(world, asked)


def _sentences(lexicon: Lexicon, relation: Relation) -> list[Form]:
    """Forms that can stand alone, whatever came before."""
    groups = (lexicon.forms(relation.name, group) for group in _GROUPS)
    pool = lexicon.pools.get(relation.values, ())
    return [form for forms in groups for form in forms if form.slots <= _SIMPLE and pool]


def _sentence(rng: random.Random, lexicon: Lexicon, relation: Relation, form: Form) -> str:
    person = rng.choice(lexicon.people)
    subject = person if "name" in form.slots else None
    return filled(
        form.text, words_for(subject, person.name, rng.choice(lexicon.pools[relation.values]))
    )


def _asked(
    rng: random.Random,
    lexicon: Lexicon,
    relation: Relation,
    form: Form,
    tellings: Sequence[Telling],
) -> Asked:
    said = _sentence(rng, lexicon, relation, form)
    texts = [text for _, text in half(_QUESTIONS, held_out=lexicon.held_out)]
    mine = [one for one in tellings if one.subject == relation.name]
    probe = Probe(
        id="q",
        question=rng.choice(texts).format(said=said),
        answers=(mine[0].value,),
        evidence_turn_ids=tuple(one.turn_id for one in mine),
        category=LABEL,
    )
    return probe, ProbeTruth(
        probe_id="q", ask="now", subject=relation.name, relation=LABEL, form=form.id
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
