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
from memagent.state.tokens import tokenize

COMPARED: Final = 18
"""Features of the comparison itself; the classes of both statements follow."""
NAMED: Final = 2.0
"""Added to the logit of replacing a memory that holds the value which a statement names as
over. A rule: a new kind of statement names its old value more surely than it is like it.
"""
SURE_ACT: Final = 0.75
"""Least probability of the act of a statement that takes a memory's place."""
LEAST_VALUE: Final = 0.6
"""Least probability of the value of a statement that replaces what it does not name."""
SHORT: Final = 16
"""Most words of statements that may replace each other without a named value. Training saw
short statements only; in long ones the network sees changes that are none.
"""
_OVER: Final = frozenset(("end", "done", "move"))
_ENDING: Final = _OVER | {"change", "correct", "retract"}
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
    p: float
    """Probability of what it does, summed over the memories."""

    @property
    def target(self) -> int | None:
        """Place of the memory it is about; None for a new statement."""
        return None if self.number == 0 else (self.number - 1) // 2

    @property
    def replaces(self) -> bool:
        """Whether the statement takes the memory's place."""
        return self.number > 0 and self.number % 2 == 0


def choose(network: Network, new: Side, memories: Sequence[Side]) -> Choice:
    """Return the choice; `memories` are in the order of saying.

    First it is decided what the statement does (new, the same, in a memory's place), by
    the sums over the memories; then to which memory.
    """
    features = features_of(new, memories)
    logits = choice_logits(network, features)
    for place, memory in enumerate(memories):
        named = _names(new.clause, memory.clause)
        if not named and not _fits(new.clause, memory.clause):
            logits[2 + 2 * place] = -np.inf
        elif named:
            logits[2 + 2 * place] += NAMED
    probabilities = softmax(logits)
    same, replaced = probabilities[1::2], probabilities[2::2]
    sums = (float(probabilities[0]), float(same.sum()), float(replaced.sum()))
    if sums[0] >= max(sums):
        return Choice(probabilities, 0, sums[0])
    if sums[1] >= sums[2]:
        return Choice(probabilities, 1 + 2 * int(same.argmax()), sums[1])
    return Choice(probabilities, 2 + 2 * int(replaced.argmax()), sums[2])


def _names(new: Clause, memory: Clause) -> bool:
    """Say whether a statement that ends or replaces something names it in the memory's words.

    What it names must be of the memory's value, unless both are short.
    """
    if new.act not in _ENDING or new.act_p < SURE_ACT:
        return False
    span = new.spans.get("old") or (new.spans.get("value") if new.act in _OVER else None)
    words = frozenset(span.text.lower().split()) if span is not None else frozenset[str]()
    if not words or not words <= memory.words or not tokenize(" ".join(words)):
        return False
    return bool(words & _words(memory, "value")) or _short(new, memory)


def _fits(new: Clause, memory: Clause) -> bool:
    """Say whether a statement that does not name the memory may take its place.

    Both must be short, and it must say that something is otherwise now and
    have a value to put there, or share words of content with the memory.
    """
    if new.act not in _ENDING or new.act_p < SURE_ACT or not _short(new, memory):
        return False
    value = new.spans.get("value")
    shared = set(tokenize(new.text)) & set(tokenize(memory.text))
    return len(shared) > 1 or (value is not None and value.p >= LEAST_VALUE)


def _short(new: Clause, memory: Clause) -> bool:
    return max(len(new.words), len(memory.words)) <= SHORT


def choice_logits(network: Network, features: Floats) -> Floats:
    """Return the logits (1 + 2N,) for rows of features (N, F)."""
    logits = np.zeros(1 + 2 * len(features), dtype=np.float32)
    if len(features):
        logits[1:] = pair_scores(network, features).reshape(-1)
    return logits


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
