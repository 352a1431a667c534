"""Rewards: pure terms of an outcome, and their weighted sum.

A term is a function of an `Outcome` with a name; `Weighted` adds terms up and keeps the
breakdown. A term that does not apply gives None, and so does any sum that it is part
of: a session without questions is left out of training, it is not a session that
failed. The surprise: costs are positive terms with negative weights, so the breakdown
shows amounts as they are.

    R = QA - 0.3 Comp        Weighted((AnswerTerm(), 1.0), (CompressionTerm(), -0.3))

Terms about evidence and time are in `grounding`, credit for single sessions in
`credit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, Protocol

from environments.errors import EnvironmentFault
from environments.records import Episode, ProbeScore
from environments.rewards.metrics import token_count
from memagent.core.ops import ParseStatus
from memagent.core.records import Session
from memagent.core.snapshot import IngestReport, MemorySnapshot

Measure = Literal["f1", "f1_memory_r2", "exact", "bleu1"]
"""The measure of an answer against the gold answers."""

OP_KINDS = ("ADD", "UPDATE", "DELETE", "NOOP")
"""The kinds of ops that a mix is about."""
UNREAD = frozenset({ParseStatus.FAILED, ParseStatus.EMPTY})
"""The parse states of an unreadable reply."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The material of a reward: the answers from one memory, its work and its size."""

    scores: tuple[ProbeScore, ...] = ()
    reports: tuple[IngestReport, ...] = ()
    """One for each session that the reward is about."""
    memory: MemorySnapshot | None = None
    memory_tokens: int = 0
    """Words and signs of the active items."""
    dialogue_tokens: int = 0
    """Words and signs of the turns heard so far."""
    turn_ids: frozenset[str] | None = None
    """Turns that it is about; None for all that were heard."""


def outcome_of(
    episode: Episode,
    memory: MemorySnapshot,
    *,
    scores: Iterable[ProbeScore] = (),
    reports: Iterable[IngestReport] = (),
    within: Session | None = None,
) -> Outcome:
    """Return the outcome of a memory of this episode, or of one session `within` it.

    Sizes are counted over its items and over the sessions it has heard.
    """
    return Outcome(
        scores=tuple(scores),
        reports=tuple(reports),
        memory=memory,
        memory_tokens=sum(token_count(item.text) for item in memory.items.values() if item.active),
        dialogue_tokens=sum(
            token_count(turn.said)
            for session in episode.sessions
            if session.id in memory.sessions
            for turn in session.turns
        ),
        turn_ids=None if within is None else frozenset(turn.id for turn in within.turns),
    )


class Term(Protocol):
    """One part of a reward."""

    @property
    def name(self) -> str:
        """Its name in a breakdown."""
        ...

    def __call__(self, outcome: Outcome, /) -> float | None:
        """Its amount, or None when it does not apply."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A weighted sum with its parts."""

    total: float | None
    """None when a weighted part is None."""
    parts: Mapping[str, float | None]
    """Amounts before weighting, by name."""


class Weighted:
    """Terms with weights; a weight of 0 reports a term without counting it."""

    def __init__(self, *terms: tuple[Term, float]) -> None:
        """Add up terms by weight. Raises `EnvironmentFault` for none or two of one name."""
        names = [term.name for term, _ in terms]
        if not names or len(set(names)) < len(names):
            raise EnvironmentFault(
                f"a reward needs terms with names of their own, these are {names}"
            )
        self.terms = terms

    def __call__(self, outcome: Outcome, /) -> Reward:
        """Return the sum and its parts."""
        parts = {term.name: term(outcome) for term, _ in self.terms}
        total = 0.0
        for term, weight in self.terms:
            amount = parts[term.name]
            if weight and amount is None:
                return Reward(total=None, parts=parts)
            total += weight * (amount or 0.0)
        return Reward(total=total, parts=parts)


def memory_r2_reward(
    *, measure: Measure = "f1", compression: float = 0.3, form: float = 0.05
) -> Weighted:
    """Return Memory-R2's reward, R = QA - 0.3 Comp.

    Unreadable replies and refused ops cost a little (0 in the paper); the op mix is
    reported.
    """
    return Weighted(
        (AnswerTerm(measure=measure), 1.0),
        (CompressionTerm(), -compression),
        (UnreadableTerm(), -form),
        (RejectedTerm(), -form),
        (OpEntropyTerm(), 0.0),
    )


# -- answers ---------------------------------------------------------------------------


def answer_value(score: ProbeScore, *, measure: Measure = "f1") -> float | None:
    """Return the value of one answer; None for a failed call.

    It is the measure or, where abstaining is right, 1 for abstaining and 0 for anything
    else.
    """
    if score.failure is not None:
        return None
    return float(score.abstained) if score.unanswerable else getattr(score, measure)


def mean_value(scores: Iterable[ProbeScore], *, measure: Measure = "f1") -> float | None:
    """Mean worth of the answers that have one; None when none has."""
    values = [
        value for score in scores if (value := answer_value(score, measure=measure)) is not None
    ]
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, kw_only=True)
class AnswerTerm:
    """QA: the mean worth of the answers, in [0, 1]."""

    measure: Measure = "f1"
    name: str = "answers"

    def __call__(self, outcome: Outcome, /) -> float | None:
        """None without an answer that has a worth."""
        return mean_value(outcome.scores, measure=self.measure)


# -- size ------------------------------------------------------------------------------


def compression_cost(*, memory_tokens: int, dialogue_tokens: int, free_share: float = 0.7) -> float:
    """Return max(0, memory - 0.7 W) / W with W the tokens of the dialogue so far.

    It is the excess of a memory over a share of what was said.
    """
    if not dialogue_tokens:
        return 0.0
    return max(0.0, memory_tokens - free_share * dialogue_tokens) / dialogue_tokens


@dataclass(frozen=True, kw_only=True)
class CompressionTerm:
    """Comp: how far the memory outgrows its share of the dialogue.

    A cost: give it a negative weight.
    """

    free_share: float = 0.7
    name: str = "compression"

    def __call__(self, outcome: Outcome, /) -> float:
        """At least 0."""
        return compression_cost(
            memory_tokens=outcome.memory_tokens,
            dialogue_tokens=outcome.dialogue_tokens,
            free_share=self.free_share,
        )


# -- form ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UnreadableTerm:
    """Share of model calls of which nothing could be read; 0 without calls. A cost."""

    name: str = "unreadable"

    def __call__(self, outcome: Outcome, /) -> float:
        """In [0, 1]."""
        statuses = [
            status
            for report in outcome.reports
            for chunk in report.chunks
            for status in chunk.parse
        ]
        return _share(sum(status in UNREAD for status in statuses), len(statuses))


@dataclass(frozen=True, kw_only=True)
class RejectedTerm:
    """Share of proposed ops and facts that were refused; 0 without any.

    Reasons are unreadable entries, unknown ids and foreign turns.

    A cost.
    """

    name: str = "rejected"

    def __call__(self, outcome: Outcome, /) -> float:
        """In [0, 1]."""
        chunks = [chunk for report in outcome.reports for chunk in report.chunks]
        refused = sum(len(chunk.rejected) for chunk in chunks)
        return _share(refused, refused + sum(len(chunk.applied) for chunk in chunks))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


# -- op mix ----------------------------------------------------------------------------


def op_rates(reports: Sequence[IngestReport]) -> dict[str, float]:
    """Share of each kind among the ops applied; all 0 when there are none."""
    counts = dict.fromkeys(OP_KINDS, 0)
    for report in reports:
        for chunk in report.chunks:
            for applied in chunk.applied:
                counts[applied.op.op] += 1
    total = sum(counts.values())
    return {kind: _share(count, total) for kind, count in counts.items()}


@dataclass(frozen=True, kw_only=True)
class OpEntropyTerm:
    """The entropy of the op mix over that of an even one, in [0, 1].

    0 for a policy that only ever adds.
    """

    name: str = "op_entropy"

    def __call__(self, outcome: Outcome, /) -> float:
        """0 without ops."""
        rates = op_rates(outcome.reports).values()
        return sum(-rate * log(rate) for rate in rates if rate) / log(len(OP_KINDS))


class OpTargetTerm:
    """The nearness of the op mix to a wanted one, in [0, 1].

    It is 1 minus half the sum of absolute differences.
    """

    def __init__(self, target: Mapping[str, float], *, name: str = "op_target") -> None:
        """`target` gives the wanted shares by kind, those left out being 0.

        Raises `EnvironmentFault` unless they add up to 1.
        """
        if (
            set(target) - set(OP_KINDS)
            or min(target.values(), default=0.0) < 0
            or abs(sum(target.values()) - 1) > 1e-9
        ):
            raise EnvironmentFault(
                f"an op mix gives shares of {', '.join(OP_KINDS)} that add up to 1, not {target}"
            )
        self.target = {kind: target.get(kind, 0.0) for kind in OP_KINDS}
        self.name = name

    def __call__(self, outcome: Outcome, /) -> float | None:
        """None without ops: a session in which nothing was decided has no mix."""
        rates = op_rates(outcome.reports)
        if not any(rates.values()):
            return None
        return 1.0 - 0.5 * sum(abs(rates[kind] - self.target[kind]) for kind in OP_KINDS)
