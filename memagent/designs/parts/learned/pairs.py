"""Pairs of a new statement and a memory: how they compare, and what becomes of them.

The choices for a statement are: it is new, it repeats memory i, or it takes the place of
memory i. They are one categorical distribution: the logit of "new" is 0, each memory
has two more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from memagent.designs.parts.learned.labels import ACTS, KINDS, SUBJECTS
from memagent.designs.parts.learned.network import Network, pair_scores, softmax
from memagent.designs.parts.learned.reading import Clause
from memagent.designs.parts.learned.tokens import Floats
from memagent.state.effects import tokenize

COMPARED: Final = 18
"""Features of the comparison itself; the classes of both statements follow."""
NAMED: Final = 2.0
"""Added to the logit of replacing a memory that holds the value which a statement names as
over. A rule: a new kind of statement names its old value more surely than it is like it.
"""
SURE_ACT: Final = 0.5
"""Least probability that a statement ends or changes something, for it to replace a memory."""
LEAST_VALUE: Final = 0.4
"""Least probability of the value of a statement that replaces what it does not name."""
OWN_VALUE: Final = 0.6
"""Least probability of the value of a statement that cannot repeat a memory without it."""
STATING: Final = 0.3
"""Least probability that a text states something, for it to replace a memory."""
NEAR: Final = 0.3
"""Least likeness of the keys of a statement and a memory in whose place it is put."""
ALIKE: Final = 0.7
"""Least likeness of the keys of two values of one thing, where the act is not sure."""
_SINGLE: Final = ("state", "preference", "bond")
"""Kinds of which one value holds at a time."""
SHORT: Final = 16
"""Most words of statements that may replace each other without a named value. Training saw
short statements only; in long ones the network sees changes that are none.
"""
_ENDING_PLACES: Final = tuple(
    ACTS.index(act) for act in ("end", "done", "move", "change", "correct", "retract")
)
Decision = Literal["add", "skip", "same", "update", "delete"]
"""What becomes of a statement."""
UNTRUE: Final = 0.7
"""Least probability at which a joke or hearsay is left as context."""
REPLACE: Final = 0.3
"""Least probability at which a statement takes the place of a memory whose value it names."""
REPLACE_UNNAMED: Final = 0.4
"""The same where it does not name the old value."""
PAIR_FEATURES: Final = COMPARED + 2 * len(ACTS) + 2 * len(KINDS)
"""Width of a row of features."""
ALONE: Final = len(ACTS) + len(KINDS) + len(SUBJECTS) + 5
"""Numbers of a statement without its memories."""
WORTH: Final = "worth.weight"
"""The weights of a head that only fitted heads have: whether a statement is worth keeping."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair: the statement, who said it, and whom it is about."""

    clause: Clause
    speaker: str
    subject: str
    """In lower case; the speaker's name for the first person."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision about one statement."""

    op: Decision
    """`add` keeps it beside the memories, `skip` leaves it out, `same` says that a memory
    states it already, `update` writes it in a memory's place, `delete` ends a memory.
    """
    target: int | None
    """Place of the memory it is about; None for `add` and `skip`."""
    p: float
    """Probability of what it does, summed over the memories where it has several."""
    reason: str = ""
    """The rule or threshold that had a say; "" for the network alone."""

    @property
    def replaces(self) -> bool:
        """Whether a memory does not stay as it is."""
        return self.op in ("update", "delete")


def choose(network: Network, new: Side, memories: Sequence[Side]) -> Choice:
    """Return the choice of the shipped network; `memories` are in the order of saying.

    First it is decided what the statement does (new, the same, in a memory's place), by
    the sums over the memories; then to which memory.
    """
    clause = new.clause
    untrue = clause.act in ("joke", "hearsay") and clause.act_p >= UNTRUE
    if untrue and len(clause.words) <= SHORT:
        return Choice("skip", None, clause.act_p, "not known to be true")
    logits, named = _ruled_logits(network, new, memories)
    worth = unworthy(network, clause)
    probabilities = softmax(np.append(logits, worth))
    if probabilities[-1] == probabilities.max():
        return Choice("skip", None, float(probabilities[-1]), "not worth keeping")
    same, replaced = probabilities[1:-1:2], probabilities[2:-1:2]
    sums = (float(probabilities[0]), float(same.sum()), float(replaced.sum()))
    kept = Choice("add", None, sums[0])
    if sums[0] < max(sums) and sums[1] >= sums[2]:
        return Choice("same", int(same.argmax()), sums[1])
    if sums[0] < max(sums):
        target = int(replaced.argmax())
        op: Decision = "delete" if clause.act == "retract" else "update"
        if sums[2] >= (REPLACE if named[target] else REPLACE_UNNAMED):
            return Choice(op, target, sums[2])
        kept = Choice("add", None, sums[0], f"replaces too unsurely, {sums[2]:.2f}")
    if clause.act == "retract":
        return Choice("skip", None, sums[0], "takes back nothing that is known")
    return kept


def _ruled_logits(
    network: Network, new: Side, memories: Sequence[Side]
) -> tuple[Floats, list[bool]]:
    """Return the logits (1 + 2N,) after the rules, and whether each memory is named."""
    clause = new.clause
    logits = choice_logits(network, features_of(new, memories))
    named = [names_old(clause, memory.clause) for memory in memories]
    for place, memory in enumerate(memories):
        if clause.keep < STATING or not (named[place] or _fits(new, memory)):
            logits[2 + 2 * place] = -np.inf
        elif named[place]:
            logits[2 + 2 * place] += NAMED
        if _gives_another(clause, memory.clause):
            logits[1 + 2 * place] = -np.inf
    return logits, named


def unworthy(network: Network, clause: Clause) -> float:
    """Return the logit that a statement is not worth keeping; -inf without that head."""
    if WORTH not in network.weights:
        return -np.inf
    numbers = np.concatenate([alone(clause), clause.output.key])
    return float(network.weights[WORTH][0] @ numbers + network.weights["worth.bias"][0])


def alone(clause: Clause) -> Floats:
    """Return the numbers (ALONE,) of a statement."""
    value, old = clause.spans.get("value"), clause.spans.get("old")
    output = clause.output
    own = (clause.keep, ends(clause), value.p if value else -1.0, old.p if old else -1.0,
           min(1.0, len(clause.words) / 32))  # fmt: skip
    return np.concatenate([output.act, output.kind, output.subject, own]).astype(np.float32)


def ends(clause: Clause) -> float:
    """Return the probability that a statement ends or replaces something."""
    return float(sum(clause.output.act[place] for place in _ENDING_PLACES))


def names_old(new: Clause, memory: Clause) -> bool:
    """Say whether a statement that ends or replaces something names it in the memory's words.

    What it names must be of the memory's value, unless both are short.
    """
    if ends(new) < SURE_ACT:
        return False
    before = _words(memory, "value")
    over = new.act not in ("change", "correct")
    span = new.spans.get("old") or (new.spans.get("value") if over else None)
    words = frozenset(span.text.lower().split()) if span is not None else frozenset[str]()
    if not words & memory.words and over and _short(new, memory):
        return bool(before) and before <= new.words
    if not words or not words <= memory.words or not tokenize(" ".join(words)):
        return False
    return bool(words & before) or _short(new, memory)


def _fits(new: Side, memory: Side) -> bool:
    """Say whether a statement that does not name the memory may take its place.

    Both must be short, and it must say that something is otherwise now and have a value
    to put there, or share words of content with the memory; or both must give one thing
    of one person a value, where only one holds at a time.
    """
    one, other = new.clause, memory.clause
    if not _short(one, other):
        return False
    value = one.spans.get("value")
    valued = value is not None and value.p >= LEAST_VALUE
    key = float(one.output.key @ other.output.key)
    if ends(one) >= SURE_ACT:
        shared = set(tokenize(one.text)) & set(tokenize(other.text))
        return key >= NEAR and (len(shared) > 1 or (valued and "value" in other.spans))
    single = one.kind in _SINGLE and other.kind in _SINGLE
    return (
        single
        and key >= ALIKE
        and valued
        and "value" in other.spans
        and new.subject == memory.subject
    )


def _gives_another(new: Clause, memory: Clause) -> bool:
    """Say whether a statement gives a value that a memory has no word of.

    It cannot be the same then. Without this rule, slight likenesses to many memories add
    up to a repetition, and the value is lost.
    """
    value = new.spans.get("value")
    if value is None or value.p < OWN_VALUE:
        return False
    words = frozenset(tokenize(value.text))
    return bool(words) and words.isdisjoint(tokenize(memory.text))


def _short(new: Clause, memory: Clause) -> bool:
    return max(len(new.words), len(memory.words)) <= SHORT


def choice_logits(network: Network, features: Floats) -> Floats:
    """Return the logits (1 + 2N,) for rows of features (N, F)."""
    logits = np.zeros(1 + 2 * len(features), dtype=np.float32)
    if len(features):
        logits[1:] = pair_scores(network, features).reshape(-1)
    return logits


def copies(network: Network, new: Side, gone: Side, memories: Sequence[Side]) -> list[int]:
    """Return the places of the memories that say what `gone` says, which `new` replaces.

    They say the same of the same value; or they hold that value, and `new` would replace
    them too.
    """
    value = _words(gone.clause, "value")
    if not memories or not value:
        return []
    same = pair_scores(network, features_of(gone, memories))[:, 0]
    replaced = pair_scores(network, features_of(new, memories))[:, 1]
    return [
        place
        for place, memory in enumerate(memories)
        if (same[place] > 0 and value == _words(memory.clause, "value"))
        or (
            replaced[place] > 0
            and value <= memory.clause.words
            and _short(new.clause, memory.clause)
        )
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
