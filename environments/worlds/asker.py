"""From the truth to questions: every question that the tellings so far can answer, and
some that they cannot.

`candidates` is a pure function of a truth; `ask_questions` draws from it, evenly over
the eight categories, and words them. The evidence of a question is the turns of all
tellings that the value asked for rests on, those that ended it included, so a view of
an episode that lacks one of them does not ask. A person whom the dialogue calls "my
sister" but the question calls by name (or the other way round) is reached by way of the
turn that says who the sister is: that makes it `multi_hop`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Final, Literal

from environments.records import Probe
from environments.worlds.days import count_answers, day_answers, on_day
from environments.worlds.lexicon import PRONOUNS, Lexicon, filled, pick, with_article
from environments.worlds.spec import Ask, Relation
from environments.worlds.truth import Act, Held, Key, ProbeTruth, State, Truth

Category = Literal[
    "single_hop", "multi_hop", "temporal", "count", "update", "preference", "order", "unanswerable"
]
CATEGORIES: Final[tuple[Category, ...]] = (
    "single_hop", "multi_hop", "temporal", "count", "update", "preference", "order", "unanswerable",
)  # fmt: skip
"""Kinds of probes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A question before it is worded."""

    category: Category
    ask: Ask
    key: Key
    answers: tuple[str, ...] = ()
    rests: tuple[Held, ...] = ()
    """The values that hold the answer."""
    value: str = ""
    other: str = ""
    day: date | None = None
    invites: str = ""
    """The wrong answer to an unanswerable question."""


def candidates(truth: Truth, lexicon: Lexicon) -> Iterator[Candidate]:
    """Every question about the state after the last session of `truth`, answerable ones first."""
    state = truth.state(-1)
    owned = _owned(lexicon, state)
    shadowed = _shadowed(lexicon, state)
    for key, values in state.items():
        if key in shadowed:
            continue
        relation = lexicon.relations[key[1]]
        for one in _of_key(truth, lexicon, key, relation, values):
            if relation.asks.get(one.ask):
                yield one
        for held in values if relation.asks.get("who") else ():
            if held.current and not held.company and len(owned[relation.values, held.value]) == 1:
                yield Candidate(
                    category="single_hop",
                    ask="who",
                    key=key,
                    answers=(key[0],),
                    rests=(held,),
                    value=held.value,
                )
    for one in _absent(truth, lexicon, state):
        pool = lexicon.relations[one.key[1]].values
        if one.key not in shadowed and one.key[0] not in owned.get((pool, one.value), ()):
            yield one


def _owned(lexicon: Lexicon, state: State) -> dict[tuple[str, str], set[str]]:
    """Whoever has or had a value, by pool and value: a concert planned and a concert
    heard have their bands from one pool.
    """
    owned: dict[tuple[str, str], set[str]] = {}
    for (person, name), values in state.items():
        for held in values:
            owned.setdefault((lexicon.relations[name].values, held.value), set()).add(person)
    return owned


def _shadowed(lexicon: Lexicon, state: State) -> set[Key]:
    """Events of which a person may have had more than was told as such: as somebody's
    company, or as a plan that came true.
    """
    shadowed = {(held.company, name) for (_, name), values in state.items() for held in values}
    done = {
        (person, lexicon.relations[name].values)
        for (person, name), values in state.items()
        if any(held.outcome for held in values)
    }
    events = [relation for relation in lexicon.relations.values() if relation.kind == "event"]
    return shadowed | {
        (person, one.name) for person, pool in done for one in events if one.values == pool
    }


def _of_key(
    truth: Truth, lexicon: Lexicon, key: Key, relation: Relation, values: tuple[Held, ...]
) -> Iterator[Candidate]:
    kind, calendar = relation.kind, lexicon.grammar.calendar
    if kind in ("state", "preference", "bond"):
        last = values[-1]
        revised = len(values) > 1 or any(
            truth.by_id[name].act is Act.CORRECT for name in last.tellings
        )
        plain: Category = "update" if revised else "single_hop"
        now: Category = "preference" if kind == "preference" else plain
        yield Candidate(category=now, ask="now", key=key, answers=(last.value,), rests=(last,))
        if len(values) > 1 and kind != "bond":
            for held in values:
                day = truth.by_id[held.tellings[0]].said_on
                yield Candidate(
                    category="update",
                    ask="then",
                    key=key,
                    answers=(held.value,),
                    rests=(held,),
                    day=day,
                )
    if kind == "set":
        kept = tuple(held for held in values if held.current)
        if kept:
            listed = ", ".join(held.value for held in kept)
            yield Candidate(
                category="single_hop"
                if len(values) == 1
                else "update"
                if len(kept) < len(values)
                else "multi_hop",
                ask="now",
                key=key,
                answers=tuple(dict.fromkeys((listed, " and ".join(listed.rsplit(", ", 1))))),
                rests=values,
            )
            yield _count(lexicon, key, len(kept), values)
    if kind == "event":
        yield _count(lexicon, key, len(values), values)
        days = Counter(held.start for held in values)
        for held in values:
            if days[held.start] == 1:
                yield Candidate(
                    category="temporal",
                    ask="then",
                    key=key,
                    answers=(held.value,),
                    rests=(held,),
                    day=held.start,
                )
            for ask, answer in (("where", held.place), ("with", held.company)):
                if answer:
                    wanted: Ask = "where" if ask == "where" else "with"
                    yield Candidate(
                        category="single_hop",
                        ask=wanted,
                        key=key,
                        answers=(answer,),
                        rests=(held,),
                        value=held.value,
                    )
    told = Counter(held.value for held in values)
    for held in values:
        if told[held.value] > 1:
            continue
        acts = {truth.by_id[name].act for name in held.tellings}
        if held.dated and held.outcome is not False:
            yield Candidate(
                category="update" if Act.MOVE in acts else "temporal",
                ask="when",
                key=key,
                answers=day_answers(calendar, held.start),
                rests=(held,),
                value=held.value,
            )
        if held.outcome is not None:
            answer = "yes" if held.outcome else "no"
            yield Candidate(
                category="update",
                ask="outcome",
                key=key,
                answers=(answer,),
                rests=(held,),
                value=held.value,
            )
        if held.cause:
            yield Candidate(
                category="multi_hop",
                ask="why",
                key=key,
                answers=(held.cause,),
                rests=(held,),
                value=held.value,
            )
    yield from _orders(key, kind, [held for held in values if told[held.value] == 1])


def _count(lexicon: Lexicon, key: Key, count: int, values: tuple[Held, ...]) -> Candidate:
    answers = count_answers(lexicon.grammar.calendar, count)
    return Candidate(category="count", ask="count", key=key, answers=answers, rests=values)


def _orders(key: Key, kind: str, values: Sequence[Held]) -> Iterator[Candidate]:
    """Neighbours in time; days must have been told, but a state's values follow each other anyway."""
    known = sorted(
        (held for held in values if held.dated or kind == "state"), key=lambda held: held.start
    )
    for first, second in pairwise(known):
        if first.start < second.start:
            yield Candidate(
                category="order",
                ask="order",
                key=key,
                answers=(first.value,),
                rests=(first, second),
                value=first.value,
                other=second.value,
            )


def _absent(truth: Truth, lexicon: Lexicon, state: State) -> Iterator[Candidate]:
    """Questions about what was told of others only; each invites a wrong answer."""
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


# -- wording ---------------------------------------------------------------------------


def ask_questions(
    rng: random.Random, truth: Truth, lexicon: Lexicon, *, most: int, prefix: str
) -> tuple[tuple[Probe, ProbeTruth], ...]:
    """At most `most` probes, evenly over the categories that have any, in a drawn
    order; ids are `prefix` + a number from 1.
    """
    worded: list[tuple[Probe, ProbeTruth]] = []
    asker = _Asker(rng, truth, lexicon)
    for candidate in _evenly(rng, _reached(truth, candidates(truth, lexicon), rng)):
        if len(worded) == most:
            break
        probe = asker.word(*candidate, name=f"{prefix}{len(worded) + 1}")
        if probe is not None:
            worded.append(probe)
    return tuple(worded)


Reached = tuple[Candidate, str, tuple[str, ...]]
"""A candidate, the phrase that stands for the person (empty: the name) and the turns that
say who that is.
"""


def _reached(truth: Truth, found: Iterable[Candidate], rng: random.Random) -> Iterator[Reached]:
    """How each question calls its person."""
    bonds = {
        telling.value: telling
        for telling in truth.tellings
        if telling.kind == "bond" and telling.act is Act.ADD
    }
    for one in found:
        told = [truth.by_id[name] for held in one.rests for name in held.tellings]
        bond = bonds.get(one.key[0])
        chained = rng.random() < 0.5
        if bond is None or not told or not told[0].role:
            yield one, "", ()
            continue
        phrase = f"{bond.subject}'s {told[0].role}" if chained and one.ask != "who" else ""
        crossing = any((telling.mention == "name") == bool(phrase) for telling in told)
        yield (
            (replace(one, category="multi_hop") if crossing else one),
            phrase,
            (bond.turn_id,) * crossing,
        )


def _evenly(rng: random.Random, found: Iterable[Reached]) -> Iterator[Reached]:
    """One of each category in turn."""
    shelves: dict[Category, list[Reached]] = {name: [] for name in CATEGORIES}
    for one in found:
        shelves[one[0].category].append(one)
    for shelf in shelves.values():
        rng.shuffle(shelf)
    while any(shelves.values()):
        for name in CATEGORIES:
            if shelves[name]:
                yield shelves[name].pop()


class _Asker:
    def __init__(self, rng: random.Random, truth: Truth, lexicon: Lexicon) -> None:
        self.rng, self.truth, self.lexicon = rng, truth, lexicon
        self.pronouns = {person.name: person.he for person in lexicon.people}
        self.places = {telling.turn_id: place for place, telling in enumerate(truth.tellings)}

    def word(
        self, one: Candidate, phrase: str, reach: tuple[str, ...], *, name: str
    ) -> tuple[Probe, ProbeTruth] | None:
        """The probe and how it came about; None when the split has no form for it."""
        form = pick(self.rng, self.lexicon.forms(one.key[1], f"ask_{one.ask}"))
        if form is None:
            return None
        calendar = self.lexicon.grammar.calendar
        values = [one.value, one.other]
        if one.other:
            self.rng.shuffle(values)
        pronouns = PRONOUNS[self.pronouns[one.key[0]]]
        slots = {
            **pronouns,
            "name": phrase or one.key[0],
            "value": values[0],
            "a_value": with_article(values[0]),
            "other": values[1],
            "a_other": with_article(values[1]),
            "when": "" if one.day is None else on_day(calendar, one.day),
        }
        turns = dict.fromkeys((*reach, *(turn for held in one.rests for turn in held.turn_ids)))
        probe = Probe.model_construct(
            id=name,
            question=filled(form.text, slots),
            answers=one.answers,
            evidence_turn_ids=tuple(sorted(turns, key=self.places.__getitem__)),
            category=one.category,
            after_session=None,
            asked_at=None,
            unanswerable=not one.answers,
            adversarial_answer=one.invites or None,
        )
        told = ProbeTruth(
            probe_id=name,
            ask=one.ask,
            subject=one.key[0],
            relation=one.key[1],
            value=one.value,
            other=one.other,
            chain=phrase,
            day=one.day,
            form=form.id,
        )
        return probe, told
