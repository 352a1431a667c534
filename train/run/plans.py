"""Plans: a configuration becomes the plans of rollouts and credit.

Weights become terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from environments.records import Episode
from environments.rewards.grounding import EvidenceTerm, TemporalTerm, day_span
from environments.rewards.terms import (
    AnswerTerm,
    CompressionTerm,
    OpEntropyTerm,
    Outcome,
    RejectedTerm,
    Term,
    UnreadableTerm,
    Weighted,
)
from environments.worlds.truth import Truth
from memagent.core.errors import ConfigError
from memagent.core.records import TimeSpan
from train.rollouts.collect import RolloutPlan
from train.rollouts.grading import CreditPlan, EpisodeTerms, answer_worth
from train.run.config import LoGoGRPOConfig
from train.run.evaluation import facts_right
from train.settings.options import MANAGER_ROLES

TruthOf = Callable[[Episode], Truth]
"""Gives what holds after the last session of an episode."""


def rollout_plan(args: LoGoGRPOConfig) -> RolloutPlan:
    """Return the plan of rollouts; one memory an episode when answers alone are trained."""
    compared = bool(args.trained_roles & MANAGER_ROLES)
    return RolloutPlan(
        members=(args.num_generations or 1) if compared else 1,
        local_probability=args.local_probability if args.weight_of_local and compared else 0.0,
        reruns=args.reruns,
        sessions=args.sessions,
        seed=args.seed,
        selector=args.plugins.anchor_selector,
        allocator=args.plugins.allocator,
        hinter=args.plugins.hinter,
        teacher=bool(getattr(args.plugins.estimator, "needs_teacher", False)),
    )


def credit_plan(args: LoGoGRPOConfig, truth: TruthOf | None = None) -> CreditPlan:
    """Return the plan of questions and credit.

    `truth` gives the truth of a generated world. Raises `ConfigError` for `facts`
    without it.
    """
    if args.facts and truth is None:
        raise ConfigError("trainer.facts: only a synthetic environment knows its facts")
    further: list[EpisodeTerms] = [Temporal(args.temporal)] if args.temporal else []
    if args.facts and truth is not None:
        further.append(Facts(args.facts, truth))
    terms: list[tuple[Term, float]] = [
        (AnswerTerm(), args.answers),
        (CompressionTerm(), -args.compression),
        (UnreadableTerm(), -args.unreadable),
        (RejectedTerm(), -args.rejected),
        (OpEntropyTerm(), 0.0),
    ]
    evidence: list[tuple[Term, float]] = [(EvidenceTerm(), args.evidence)] if args.evidence else []
    return CreditPlan(
        credit=args.credit if isinstance(args.credit, str) else args.global_credit,
        asks=bool(args.answers or args.evidence or args.temporal),
        asked_share=args.asked_share,
        unit=cast(Any, args.credit_unit),
        reward=Weighted(*terms, *evidence),
        answer_reward=answer_worth(args.worth, *evidence),
        episode_terms=(
            (lambda episode: [term for terms in further for term in terms(episode)])
            if further
            else None
        ),
        questions=args.questions,
        rehearsal=args.rehearsal,
        local_weight=args.weight_of_local,
        estimator=args.plugins.estimator,
        balance=cast(Any, args.balance),
        flat_tolerance=args.flat_tolerance,
        anchor_in_group=args.anchor_in_group,
        roles=args.trained_roles,
        answer_members=args.answer_members,
        answer_questions=args.answer_questions,
        selector=args.plugins.selector,
        objectives=args.plugins.objectives.parts,
        source=args.plugins.source,
        control=cast(Any, args.control),
    )


@dataclass(frozen=True)
class FactsTerm:
    """The share of a world's facts that the memory holds right, as the tests measure it."""

    truth: Truth
    name: str = "facts"

    def __call__(self, outcome: Outcome, /) -> float | None:
        """None where there is no fact to hold."""
        assert outcome.memory is not None
        return facts_right(outcome.memory, self.truth, turns=outcome.turn_ids)


@dataclass(frozen=True)
class Facts:
    """The facts that hold after the sessions of an episode, as a term."""

    weight: float
    truth: TruthOf

    def __call__(self, episode: Episode) -> Sequence[tuple[Term, float]]:
        """Return the term and its weight."""
        return ((FactsTerm(self.truth(episode)), self.weight),)


@dataclass(frozen=True)
class Temporal:
    """Memory-T1's reward as a term of every episode.

    The range in question is where the evidence lies (`evidence_ranges`).
    """

    weight: float

    def __call__(self, episode: Episode) -> Sequence[tuple[Term, float]]:
        """Return the term and its weight; none for an episode whose evidence has no dates."""
        ranges = evidence_ranges(episode)
        return ((TemporalTerm(episode, ranges, told=True), self.weight),) if ranges else ()


def evidence_ranges(episode: Episode) -> dict[str, TimeSpan]:
    """Return by probe id the days of the sessions that hold its evidence.

    A range goes from the first to the last of these days, both included. The paper's
    data names the range that a question asks about; ours name its evidence, so this is
    our reading. Probes without dated evidence are left out.
    """
    dates = {
        turn.id: session.at
        for session in episode.sessions
        for turn in session.turns
        if session.at is not None
    }
    ranges: dict[str, TimeSpan] = {}
    for probe in episode.probes:
        heard = [dates[turn_id] for turn_id in probe.evidence_turn_ids if turn_id in dates]
        if heard:
            ranges[probe.id] = day_span(min(heard), max(heard))
    return ranges
