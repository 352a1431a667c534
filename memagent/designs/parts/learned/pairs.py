"""Pairs of a new statement and a memory: how they compare, and what becomes of them.

The choices for a statement are: it is new, it repeats memory i, or it takes the place of
memory i. They are one categorical distribution: the logit of "new" is 0, each memory
has two more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from memagent.designs.parts.learned.labels import ACTS, KINDS
from memagent.designs.parts.learned.network import Network, pair_scores, softmax
from memagent.designs.parts.learned.reading import Clause
from memagent.designs.parts.learned.tokens import Floats

COMPARED: Final = 18
"""Features of the comparison itself; the classes of both statements follow."""
PAIR_FEATURES: Final = COMPARED + 2 * len(ACTS) + 2 * len(KINDS)
"""Width of a row of features."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair: the statement, who said it, and whom it is about."""

    clause: Clause
    speaker: str
    subject: str
    """In lower case; the speaker's name for the first person."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision about one statement: a place in the distribution."""

    probabilities: Floats
    """(1 + 2N,): new, then for each memory the same and replaced."""
    number: int
    """Which was chosen."""

    @property
    def target(self) -> int | None:
        """Place of the memory it is about; None for a new statement."""
        return None if self.number == 0 else (self.number - 1) // 2

    @property
    def replaces(self) -> bool:
        """Whether the statement takes the memory's place."""
        return self.number > 0 and self.number % 2 == 0

    @property
    def p(self) -> float:
        """Probability of the choice."""
        return float(self.probabilities[self.number])


def choose(network: Network, new: Side, memories: Sequence[Side]) -> Choice:
    """Return the likeliest choice; `memories` are in the order of saying."""
    probabilities = choice_probabilities(network, features_of(new, memories))
    return Choice(probabilities, int(probabilities.argmax()))


def choice_probabilities(network: Network, features: Floats) -> Floats:
    """Return the distribution (1 + 2N,) for rows of features (N, F)."""
    logits = np.zeros(1 + 2 * len(features), dtype=np.float32)
    if len(features):
        logits[1:] = pair_scores(network, features).reshape(-1)
    return softmax(logits)


def same_as(network: Network, new: Side, memories: Sequence[Side]) -> list[int]:
    """Return the places of the memories with the same value that say the same."""
    if not memories:
        return []
    logits = pair_scores(network, features_of(new, memories))[:, 0]
    value = _words(new.clause, "value")
    return [
        place
        for place, memory in enumerate(memories)
        if logits[place] > 0 and value and value == _words(memory.clause, "value")
    ]


def features_of(new: Side, memories: Sequence[Side]) -> Floats:
    """Return the features (N, F) of the pairs."""
    rows = np.zeros((len(memories), PAIR_FEATURES), dtype=np.float32)
    for place, memory in enumerate(memories):
        age = (len(memories) - place) / max(len(memories), 1)
        rows[place] = (
            *_compared(new, memory, age),
            *new.clause.output.act, *new.clause.output.kind,
            *memory.clause.output.act, *memory.clause.output.kind,
        )  # fmt: skip
    return rows


def _compared(new: Side, memory: Side, age: float) -> tuple[float, ...]:
    one, other = new.clause, memory.clause
    value, old = _words(one, "value"), _words(one, "old")
    before = _words(other, "value")
    shared = len(one.words & other.words)
    same = new.subject == memory.subject and bool(new.subject)
    parts = set(new.subject.split()) & set(memory.subject.split()) - {"my", "the", "der", "die"}
    return (
        float(one.output.key @ other.output.key),
        float(one.predicate @ other.predicate),
        float(one.vector @ other.vector),
        float(one.value @ other.value),
        float(bool(value) and value == before),
        float(bool(old) and old == before),
        _share(old, other.words),
        float(bool(old)),
        _share(value, other.words),
        _share(before, one.words),
        float(bool(value) and bool(before)),
        float(same),
        float(bool(parts)),
        float(not new.subject or not memory.subject),
        float(new.speaker == memory.speaker),
        shared / max(len(one.words | other.words), 1),
        age,
        float(one.output.kind @ other.output.kind),
    )


def _words(clause: Clause, role: str) -> frozenset[str]:
    span = clause.spans.get(role)
    return frozenset(span.text.lower().split()) if span is not None else frozenset()


def _share(words: frozenset[str], among: frozenset[str]) -> float:
    return len(words & among) / len(words) if words else 0.0
