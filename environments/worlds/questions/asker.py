"""Questions in words, drawn evenly over the eight categories.

A person whom the dialogue calls "my sister" but the question calls by name (or the other
way round) is reached by way of the turn that says who the sister is: that makes the
question `multi_hop`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from environments.records import Probe
from environments.worlds.language.days import on_day
from environments.worlds.language.lexicon import PRONOUNS, Lexicon, filled, pick, with_article
from environments.worlds.questions.candidates import CATEGORIES, Candidate, Category, candidates
from environments.worlds.truth import Act, ProbeTruth, Truth

Reached = tuple[Candidate, str, tuple[str, ...]]
"""A candidate, the phrase that stands for the person (empty: the name) and the turns that
say who that is.
"""


def ask_questions(
    rng: random.Random,
    truth: Truth,
    lexicon: Lexicon,
    *,
    most: int,
    prefix: str,
    absent: bool = True,
) -> tuple[tuple[Probe, ProbeTruth], ...]:
    """Draw at most `most` probes, evenly over the categories that have any.

    Their ids are `prefix` + a number from 1. Without `absent` all can be answered.
    """
    worded: list[tuple[Probe, ProbeTruth]] = []
    asker = _Asker(rng, truth, lexicon)
    for candidate in _evenly(rng, _reached(truth, candidates(truth, lexicon, absent=absent), rng)):
        if len(worded) == most:
            break
        probe = asker.word(*candidate, probe_id=f"{prefix}{len(worded) + 1}")
        if probe is not None:
            worded.append(probe)
    return tuple(worded)


def _reached(truth: Truth, questions: Iterable[Candidate], rng: random.Random) -> Iterator[Reached]:
    """Draw the phrase by which each question calls its person."""
    bonds = {
        telling.value: telling
        for telling in truth.tellings
        if telling.kind == "bond" and telling.act is Act.ADD
    }
    for candidate in questions:
        tellings = [truth.by_id[name] for held in candidate.rests for name in held.tellings]
        bond = bonds.get(candidate.key[0])
        chained = rng.random() < 0.5
        if bond is None or not tellings or not tellings[0].role:
            yield candidate, "", ()
            continue
        role = tellings[0].role
        phrase = f"{bond.subject}'s {role}" if chained and candidate.ask != "who" else ""
        crossing = any((telling.mention == "name") == bool(phrase) for telling in tellings)
        reached = replace(candidate, category="multi_hop") if crossing else candidate
        yield reached, phrase, (bond.turn_id,) * crossing


def _evenly(rng: random.Random, questions: Iterable[Reached]) -> Iterator[Reached]:
    """Draw one of each category in turn."""
    by_category: dict[Category, list[Reached]] = {name: [] for name in CATEGORIES}
    for reached in questions:
        by_category[reached[0].category].append(reached)
    for group in by_category.values():
        rng.shuffle(group)
    while any(by_category.values()):
        for group in by_category.values():
            if group:
                yield group.pop()


class _Asker:
    """Puts candidates into words."""

    def __init__(self, rng: random.Random, truth: Truth, lexicon: Lexicon) -> None:
        self.rng, self.truth, self.lexicon = rng, truth, lexicon
        self.pronouns = {person.name: person.he for person in lexicon.people}
        self.places = {telling.turn_id: place for place, telling in enumerate(truth.tellings)}

    def word(
        self, candidate: Candidate, phrase: str, bond_turns: tuple[str, ...], *, probe_id: str
    ) -> tuple[Probe, ProbeTruth] | None:
        """Return the probe and its origin; None when the split has no form for it."""
        form = pick(self.rng, self.lexicon.forms(candidate.key[1], f"ask_{candidate.ask}"))
        if form is None:
            return None
        calendar = self.lexicon.grammar.calendar
        values = [candidate.value, candidate.other]
        if candidate.other:
            self.rng.shuffle(values)
        # A compound name ("Ana-Maria") goes by its first one.
        name = candidate.key[0]
        pronouns = PRONOUNS[self.pronouns.get(name) or self.pronouns[name.partition("-")[0]]]
        slots = {
            **pronouns,
            "name": phrase or candidate.key[0],
            "value": values[0],
            "a_value": with_article(values[0]),
            "other": values[1],
            "a_other": with_article(values[1]),
            "when": "" if candidate.day is None else on_day(calendar, candidate.day),
        }
        turns = dict.fromkeys(
            (*bond_turns, *(turn for held in candidate.rests for turn in held.turn_ids))
        )
        probe = Probe.model_construct(
            id=probe_id,
            question=filled(form.text, slots),
            answers=candidate.answers,
            evidence_turn_ids=tuple(sorted(turns, key=self.places.__getitem__)),
            category=candidate.category,
            after_session=None,
            asked_at=None,
            unanswerable=not candidate.answers,
            adversarial_answer=candidate.invites or None,
        )
        origin = ProbeTruth(
            probe_id=probe_id,
            ask=candidate.ask,
            subject=candidate.key[0],
            relation=candidate.key[1],
            value=candidate.value,
            other=candidate.other,
            chain=phrase,
            day=candidate.day,
            form=form.id,
        )
        return probe, origin
