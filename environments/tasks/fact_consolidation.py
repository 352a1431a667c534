"""Conflict resolution: a numbered list of facts in which newer ones contradict older ones.

The newer fact wins, and only its number says that it is newer. One-hop questions ask
for a value that was contradicted; multi-hop ones go by way of a bond ("Ana's sister")
that was contradicted too. A reader of first facts is wrong about all of them, and so is
one that follows a contradicted bond. Where there are fewer people than facts need,
people with compound names ("Ana-Maria") join them. After
FactConsolidation of MemoryAgentBench (Hu et al. 2025), over the facts of this world.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import islice, permutations
from math import ceil
from typing import Unpack

from environments.errors import EnvironmentFault
from environments.records import Probe
from environments.tasks.generated import (
    Asked,
    Draw,
    Generated,
    Shared,
    build_world,
    draw_questions,
    require_at_least,
    with_questions,
)
from environments.worlds.language.lexicon import Lexicon, filled, pick
from environments.worlds.language.spec import Person, Relation
from environments.worlds.story.beats import words_for
from environments.worlds.truth import Act, Key, ProbeTruth, Telling
from environments.worlds.world import World

_TIMELESS = frozenset(("when", "old"))


@dataclass(frozen=True)
class _Fact:
    """One line of the list: a value of a key, the first or the second."""

    subject: Person
    relation: Relation
    value: str


class FactConsolidation(Generated):
    """`conflicts` contradicted facts and as many bonds as fit, in `sessions` sessions.

    Categories are `one_hop` and `multi_hop`.
    """

    name = "fact_consolidation"

    def __init__(self, *, sessions: int = 4, conflicts: int = 8, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` below four conflicts, or for too many."""
        super().__init__(**shared)
        require_at_least(1, sessions=sessions)
        require_at_least(4, conflicts=conflicts)
        self.sessions, self.conflicts = sessions, conflicts

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        rng = draw("story")
        facts = _listed(rng, self._pairs(rng, lexicon))
        start = date(2024, 1, 2) + timedelta(rng.randrange(60))
        dates = [start + timedelta(3 * number) for number in range(self.sessions)]
        bounds = [round(part * len(facts) / self.sessions) for part in range(self.sessions + 1)]
        teller = rng.choice(lexicon.people).name
        turns: list[list[tuple[str, str, str]]] = [[] for _ in dates]
        tellings: list[Telling] = []
        latest: dict[tuple[str, str], str] = {}
        for number, fact in enumerate(facts, start=1):
            session = next(place for place in range(self.sessions) if number <= bounds[place + 1])
            turn_id = f"D{session + 1}:{len(turns[session]) + 1}"
            form = pick(rng, lexicon.forms(fact.relation.name, "third"), without=_TIMELESS)
            assert form is not None
            slots = words_for(fact.subject, fact.subject.name, fact.value)
            turns[session].append((turn_id, teller, f"{number}. {filled(form.text, slots)}"))
            key = fact.subject.name, fact.relation.name
            older = latest.get(key, "")
            latest[key] = f"T{number}"
            tellings.append(
                Telling(
                    id=latest[key],
                    turn_id=turn_id,
                    session=session,
                    speaker=teller,
                    subject=fact.subject.name,
                    relation=fact.relation.name,
                    kind=fact.relation.kind,
                    act=Act.CHANGE if older else Act.ADD,
                    value=fact.value,
                    said_on=dates[session],
                    supersedes=older,
                    mention="name",
                    form=form.id,
                )
            )
        world = build_world(name, dates, turns, tellings, speakers=[teller])
        return with_questions(world, _questions(draw("questions"), world, lexicon))

    def _pairs(self, rng: random.Random, lexicon: Lexicon) -> list[tuple[_Fact, _Fact]]:
        """Draw the older and the newer fact of every key, bonds last."""
        relations = [
            relation
            for relation in lexicon.relations.values()
            if relation.kind in ("state", "preference")
        ]
        people = rng.sample(lexicon.people, min(len(lexicon.people), max(4, self.conflicts // 2)))
        wanted = ceil(self.conflicts / len(relations))
        people += islice(_compounds(lexicon.people), max(0, wanted - len(people)))
        room = len(people) * len(relations)
        if room < self.conflicts:
            raise EnvironmentFault(
                f"conflicts={self.conflicts} is more than this level's language has room for, "
                f"{room}"
            )
        # Everybody gets a contradicted fact before anybody gets a second, so that bonds
        # have somewhere to lead.
        mine = {who: rng.sample(relations, len(relations)) for who in people}
        keys = [(who, mine[who][turn]) for turn in range(len(relations)) for who in people]
        pairs: list[tuple[_Fact, _Fact]] = []
        for who, relation in keys[: self.conflicts]:
            old, new = rng.sample(lexicon.pools[relation.values], 2)
            pairs.append((_Fact(who, relation, old), _Fact(who, relation, new)))
        bonds = [
            relation
            for relation in lexicon.relations.values()
            if relation.kind == "bond" and relation.role
        ]
        for who in people:
            bond = rng.choice(bonds)
            fitting = [
                person.name for person in people if person != who and bond.gender in ("", person.he)
            ]
            if len(fitting) > 1:
                old, new = rng.sample(fitting, 2)
                pairs.append((_Fact(who, bond, old), _Fact(who, bond, new)))
        return pairs


def _compounds(people: Sequence[Person]) -> Iterator[Person]:
    """Yield people with names of two to four names, the short ones first."""
    for size in (2, 3, 4):
        for parts in permutations(people, size):
            if len({person.he for person in parts}) == 1:
                yield replace(parts[0], name="-".join(person.name for person in parts))


def _listed(rng: random.Random, pairs: list[tuple[_Fact, _Fact]]) -> list[_Fact]:
    """Return all facts in a drawn order that keeps older ones before newer ones."""
    places = rng.sample(range(2 * len(pairs)), 2 * len(pairs))
    line = sorted(
        (place, fact)
        for pair, first, second in zip(range(len(pairs)), places[::2], places[1::2], strict=True)
        for place, fact in ((min(first, second), (pair, 0)), (max(first, second), (pair, 1)))
    )
    return [pairs[pair][which] for _, (pair, which) in line]


def _questions(rng: random.Random, world: World, lexicon: Lexicon) -> list[Asked]:
    """Return a one-hop question for each contradicted fact, then multi-hop questions.

    The latter go by way of the bonds and are at most as many.
    """
    truth = world[1]
    bonds = {
        telling.value: telling
        for telling in truth.tellings
        if lexicon.relations[telling.relation].kind == "bond"
    }
    state = truth.state(-1)
    facts = {key for key in state if lexicon.relations[key[1]].kind != "bond"}
    plain, again = (
        [
            (probe, origin)
            for probe, origin in draw_questions(rng, truth, lexicon, "now", absent=False)
            if (origin.subject, origin.relation) in facts
        ]
        for _ in range(2)
    )
    held: dict[Key, set[str]] = {}
    for telling in truth.tellings:
        held.setdefault(telling.key, set()).add(telling.value)
    valid = {bond.value: bond for bond in bonds.values() if state[bond.key][-1].value == bond.value}
    return [
        *((probe.model_copy(update={"category": "one_hop"}), origin) for probe, origin in plain),
        *(
            _by_way_of(valid[origin.subject], lexicon, probe, origin)
            for probe, origin in again
            if origin.subject in valid
            and not _stale_shortcut(held, valid[origin.subject], probe, origin)
        ),
    ]


def _stale_shortcut(
    held: Mapping[Key, Collection[str]], bond: Telling, probe: Probe, how: ProbeTruth
) -> bool:
    """Tell whether the person of a contradicted bond has or had the right value too."""
    stale = set(held[bond.key]) - {bond.value}
    return any(
        answer in held.get((person, how.relation), ())
        for person in stale
        for answer in probe.answers
    )


def _by_way_of(bond: Telling, lexicon: Lexicon, probe: Probe, how: ProbeTruth) -> Asked:
    """Return the question with the person called by the role that a bond gives."""
    phrase = f"{bond.subject}'s {lexicon.relations[bond.relation].role}"
    changed = {
        "question": probe.question.replace(how.subject, phrase),
        "evidence_turn_ids": (bond.turn_id, *probe.evidence_turn_ids),
        "category": "multi_hop",
    }
    return probe.model_copy(update=changed), replace(how, chain=phrase)
