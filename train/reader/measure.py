"""What a reader is worth: figures on talks that no fit has seen.

A dialogue is played turn by turn, each against all earlier turns that still stand, as a
memory would. Found is an ended or replaced statement that the right turn or a later one
ended; wrong is one that nothing ends and that was ended all the same. Statements whose
state the labels leave open count for neither.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memagent.designs.parts.rules.statements import context_reason
from memagent.language.reader import (
    Reader,
    Thresholds,
)
from train.reader.examples import UNKNOWN, Talk
from train.reader.fit import strangers

_BESIDE = 60
"""Turns of other talks beside each turn."""


@dataclass(frozen=True)
class Played:
    """The fate of the statements of dialogues that were played."""

    updates: int
    found: int
    kept: int
    """Statements that must stay."""
    wrong: int
    """Of them, those that were ended."""
    faults: tuple[str, ...]
    """Wrong changes in words."""
    missed: tuple[str, ...]


def read_vectors(reader: Reader, talks: Sequence[Talk]) -> list[Talk]:
    """Return talks whose statements carry their vectors."""
    known = iter(reader.read([turn.said for talk in talks for turn in talk.turns]))
    return [
        replace(talk, turns=tuple(replace(turn, said=next(known)) for turn in talk.turns))
        for talk in talks
    ]


def play(reader: Reader, talks: Sequence[Talk]) -> Played:
    """Play dialogues through `Reader.changes`, turn by turn."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    missed: list[str] = []
    for talk in talks:
        ended = _changes(reader, talk)
        truth = talk.ended()
        kept = talk.lasting_turns()
        for place in range(len(talk.turns)):
            by = ended.get(place)
            if place in truth:
                counts["updates"] += 1
                counts["found"] += by is not None and by >= truth[place]
                if by is None:
                    missed.append(_line(talk, place, truth[place]))
            elif place in kept:
                counts["kept"] += 1
                if by is not None:
                    counts["wrong"] += 1
                    faults.append(_line(talk, place, by))
    return Played(
        updates=counts["updates"],
        found=counts["found"],
        kept=counts["kept"],
        wrong=counts["wrong"],
        faults=tuple(faults),
        missed=tuple(missed),
    )


@dataclass(frozen=True)
class Decision:
    """A pair that the reader decides about, with its label."""

    talk: str
    old: int
    numbers: tuple[float, ...]
    """See `change_numbers`."""
    ends: bool
    """Whether the new statement ends the old one, by the labels."""
    keeps: bool
    """Whether nothing ends the old one, by the labels, and it states something."""


def decisions(reader: Reader, talks: Sequence[Talk], seed: int = 0) -> list[Decision]:
    """Return what may be decided in talks, each turn beside its speaker's earlier ones.

    Turns that the rules leave out, and pairs whose relation the labels leave open, are
    none of it. Each turn also stands beside turns of other talks, as it does in a memory
    that has grown: what the light head proposes of them is no change.
    """
    every = Reader(reader.network, Thresholds(states=0.0, light=0.0, proposals=99))
    rng = random.Random(seed)
    known = read_vectors(reader, talks)
    turns = [(talk, turn) for talk in known for turn in talk.turns]
    decided: list[Decision] = []
    for talk in known:
        names = {turn.said.speaker for turn in talk.turns}
        truth = talk.ended()
        kept = talk.lasting_turns()
        unsure = {(old, new) for old, new, relation in talk.pairs if relation == UNKNOWN}
        left_out = [bool(context_reason(turn.said.text, names=names)) for turn in talk.turns]
        for new, turn in enumerate(talk.turns):
            if left_out[new]:
                continue
            said = turn.said
            earlier = [
                old
                for old in range(new)
                if talk.turns[old].said.speaker == said.speaker and not left_out[old]
            ]
            for own in every.weigh(said, [talk.turns[old].said for old in earlier]):
                old = earlier[own.index]
                ends = truth.get(old) == new
                if ends or (old, new) not in unsure:
                    decided.append(Decision(talk.id, old, own.numbers, ends, old in kept))
            others = [
                replace(other.said, speaker=said.speaker, at=pair.old.at)
                for there, other in rng.sample(turns, min(_BESIDE, len(turns)))
                if (pair := strangers(there, other, talk, turn, rng)) is not None
            ]
            decided += [
                Decision(talk.id, -1, own.numbers, ends=False, keeps=False)
                for own in reader.weigh(said, others)
            ]
    return decided


def turn_scores(talks: Sequence[Talk]) -> dict[str, float]:
    """Return how often it is told whether a turn states something, of talks that were read."""
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for talk in talks:
        for turn in talk.turns:
            name = "states nothing" if turn.label is None else "states"
            name = "small talk" if talk.is_chat else name
            seen[name] += 1
            right[name] += ((turn.said.states or 0.0) >= 0.5) == (turn.label is not None)
    return {name: right[name] / total for name, total in seen.items()}


def _changes(reader: Reader, talk: Talk) -> dict[int, int]:
    """Return the turns that were ended, by their place, and the turn that ended each."""
    ended: dict[int, int] = {}
    for new in range(1, len(talk.turns)):
        standing = [old for old in range(new) if old not in ended]
        for change in reader.changes(
            talk.turns[new].said, [talk.turns[old].said for old in standing]
        ):
            ended[standing[change.index]] = new
    return ended


def _line(talk: Talk, old: int, new: int) -> str:
    first, second = talk.turns[old].said, talk.turns[new].said
    return f"{talk.id}: {first.speaker}: {first.text} -> {second.speaker}: {second.text}"
