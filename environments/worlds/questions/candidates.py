"""From the truth to questions: those that the tellings answer, and some they cannot.

`candidates` is a pure function of a truth. The evidence of a question is the turns of
all tellings that its answer rests on, those that ended the value included, so a view of
an episode that lacks one of them does not ask.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Final, Literal, get_args

from environments.records import Probe
from environments.worlds.language.days import Calendar, count_answers, day_answers, on_day
from environments.worlds.language.lexicon import PRONOUNS, Lexicon, filled, pick, with_article
from environments.worlds.language.spec import Ask, Kind
from environments.worlds.truth import Act, HeldValue, Key, ProbeTruth, State, Truth

Category = Literal[
    "single_hop", "multi_hop", "temporal", "count", "update", "preference", "order", "unanswerable"
]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
"""Kinds of probes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A question before it is worded."""

    category: Category
    ask: Ask
    key: Key
    answers: tuple[str, ...] = ()
    rests: tuple[HeldValue, ...] = ()
    """The values that hold the answer."""
    value: str = ""
    other: str = ""
    day: date | None = None
    invites: str = ""
    """The wrong answer to an unanswerable question."""


def candidates(truth: Truth, lexicon: Lexicon, *, absent: bool = True) -> Iterator[Candidate]:
    """Return every question about the state after the last session, answerable ones first.

    Without `absent` there are no others: their number grows with the square of people.
    """
    state = truth.state(-1)
    owners = _owners(lexicon, state)
    shadowed = _shadowed(lexicon, state)
    for key, values in state.items():
        if key in shadowed:
            continue
        relation = lexicon.relations[key[1]]
        topic = _Topic(truth, lexicon.grammar.calendar, key, relation.kind, values)
        for candidate in topic.questions():
            if relation.asks.get(candidate.ask):
                yield candidate
        for held in values if relation.asks.get("who") else ():
            if held.current and not held.company and len(owners[relation.values, held.value]) == 1:
                yield Candidate(
                    category="single_hop",
                    ask="who",
                    key=key,
                    answers=(key[0],),
                    rests=(held,),
                    value=held.value,
                )
    for candidate in _absent(truth, lexicon, state) if absent else ():
        person, name = candidate.key
        pool = lexicon.relations[name].values
        owned = person in owners.get((pool, candidate.value), ())
        if candidate.key not in shadowed and not owned:
            yield candidate


def _owners(lexicon: Lexicon, state: State) -> dict[tuple[str, str], set[str]]:
    """Return the people who have or had a value, by pool and value.

    A concert planned and a concert heard have their bands from one pool.
    """
    owners: dict[tuple[str, str], set[str]] = {}
    for (person, name), values in state.items():
        for held in values:
            owners.setdefault((lexicon.relations[name].values, held.value), set()).add(person)
    return owners


def _shadowed(lexicon: Lexicon, state: State) -> set[Key]:
    """Return events of which a person may have had more than was told as such.

    They had them as somebody's company, or as a plan that came true.
    """
    shadowed = {(held.company, name) for (_, name), values in state.items() for held in values}
    done = {
        (person, lexicon.relations[name].values)
        for (person, name), values in state.items()
        if any(held.outcome for held in values)
    }
    events = [relation for relation in lexicon.relations.values() if relation.kind == "event"]
    return shadowed | {
        (person, event.name) for person, pool in done for event in events if event.values == pool
    }


@dataclass(frozen=True)
class _Topic:
    """All values of a person's relation, and the questions about them."""

    truth: Truth
    calendar: Calendar
    key: Key
    kind: Kind
    values: tuple[HeldValue, ...]

    def questions(self) -> Iterator[Candidate]:
        """Return the answerable questions, those of the kind first."""
        if self.kind in ("state", "preference", "bond"):
            yield from self._about_state()
        elif self.kind == "set":
            yield from self._about_set()
        elif self.kind == "event":
            yield from self._about_events()
        counts = Counter(held.value for held in self.values)
        single = [held for held in self.values if counts[held.value] == 1]
        for held in single:
            yield from self._about_value(held)
        yield from self._orders(single)

    def _about_state(self) -> Iterator[Candidate]:
        *_, last = self.values
        revised = len(self.values) > 1 or Act.CORRECT in self._acts(last)
        plain: Category = "update" if revised else "single_hop"
        now: Category = "preference" if self.kind == "preference" else plain
        yield Candidate(category=now, ask="now", key=self.key, answers=(last.value,), rests=(last,))
        if len(self.values) > 1 and self.kind != "bond":
            for held in self.values:
                day = self.truth.by_id[held.tellings[0]].said_on
                yield self._single("update", "then", held, held.value, day=day)

    def _about_set(self) -> Iterator[Candidate]:
        members = [held.value for held in self.values if held.current]
        if not members:
            return
        listed = ", ".join(members)
        category: Category = "multi_hop"
        if len(self.values) == 1:
            category = "single_hop"
        elif len(members) < len(self.values):
            category = "update"
        yield Candidate(
            category=category,
            ask="now",
            key=self.key,
            answers=tuple(dict.fromkeys((listed, " and ".join(listed.rsplit(", ", 1))))),
            rests=self.values,
        )
        yield self._count(len(members))

    def _about_events(self) -> Iterator[Candidate]:
        yield self._count(len(self.values))
        days = Counter(held.start for held in self.values)
        for held in self.values:
            if days[held.start] == 1:
                yield self._single("temporal", "then", held, held.value, day=held.start)
            if held.place:
                yield self._single("single_hop", "where", held, held.place)
            if held.company:
                yield self._single("single_hop", "with", held, held.company)

    def _about_value(self, held: HeldValue) -> Iterator[Candidate]:
        """Return the questions that name a value which the person has once."""
        if held.dated and held.outcome is not False:
            moved = Act.MOVE in self._acts(held)
            answers = day_answers(self.calendar, held.start)
            yield self._single("update" if moved else "temporal", "when", held, *answers)
        if held.outcome is not None:
            yield self._single("update", "outcome", held, "yes" if held.outcome else "no")
        if held.cause:
            yield self._single("multi_hop", "why", held, held.cause)

    def _orders(self, values: Sequence[HeldValue]) -> Iterator[Candidate]:
        """Return questions about neighbours in time.

        Days must have been told, but a state's values follow each other anyway.
        """
        known = [held for held in values if held.dated or self.kind == "state"]
        for first, second in pairwise(sorted(known, key=lambda held: held.start)):
            if first.start < second.start:
                yield Candidate(
                    category="order",
                    ask="order",
                    key=self.key,
                    answers=(first.value,),
                    rests=(first, second),
                    value=first.value,
                    other=second.value,
                )

    def _acts(self, held: HeldValue) -> set[Act]:
        return {self.truth.by_id[telling_id].act for telling_id in held.tellings}

    def _single(
        self, category: Category, ask: Ask, held: HeldValue, *answers: str, day: date | None = None
    ) -> Candidate:
        """Return a question about one value; it names the day, if given, else the value."""
        return Candidate(
            category=category,
            ask=ask,
            key=self.key,
            answers=answers,
            rests=(held,),
            value="" if day else held.value,
            day=day,
        )

    def _count(self, count: int) -> Candidate:
        answers = count_answers(self.calendar, count)
        return Candidate(
            category="count", ask="count", key=self.key, answers=answers, rests=self.values
        )


def _absent(truth: Truth, lexicon: Lexicon, state: State) -> Iterator[Candidate]:
    """Return questions about what was told of others only; each invites a wrong answer."""
    for (owner, name), values in state.items():
        relation = lexicon.relations[name]
        for person in truth.people:
            if person == owner:
                continue
            key, mine = (person, name), state.get((person, name), ())
            if relation.kind in ("state", "preference") and not mine:
                yield Candidate(
                    category="unanswerable", ask="now", key=key, invites=values[-1].value
                )
            if relation.kind not in ("event", "plan", "cause"):
                continue
            had = {held.value for held in mine}
            for held in values:
                if held.value in had or (relation.kind == "cause" and not held.cause):
                    continue
                ask: Ask = "why" if relation.kind == "cause" else "when"
                invites = held.cause or day_answers(lexicon.grammar.calendar, held.start)[0]
                yield Candidate(
                    category="unanswerable", ask=ask, key=key, value=held.value, invites=invites
                )


# Questions in words, drawn evenly over the eight categories.
#
# A person whom the dialogue calls "my sister" but the question calls by name (or the other
# way round) is reached by way of the turn that says who the sister is: that makes the
# question `multi_hop`.

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
