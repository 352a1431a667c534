"""Plans: a configuration becomes the plans of rollouts and credit.

Weights become terms.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, cast

from environments.base import Environment
from environments.datasets.synthetic import Synthetic
from environments.evaluation.fact_figures import right_facts
from environments.evaluation.play_figures import episode_figures, marked
from environments.play.rollout import MemoryAgent, answer_probes, play
from environments.records import Episode, Trajectory
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
from memagent.async_agent import AsyncAgent
from memagent.core.errors import ConfigError
from memagent.core.exchange import Sampling
from memagent.core.records import TimeSpan
from memagent.core.snapshot import EMPTY, MemorySnapshot
from train.rollouts.collect import EpisodeModel, RolloutPlan, policy_only
from train.rollouts.grading import CreditPlan, EpisodeTerms, answer_worth
from train.run.config import LoGoGRPOConfig
from train.sampling.policy import PolicyModel
from train.settings.options import MANAGER_ROLES

# Evaluation of a policy: episodes played greedily and scored one by one.
#
# Figures are kept by episode, so that intervals can be drawn over them.

REPLIES = 6
"""Replies kept of an episode."""


@dataclass(frozen=True, kw_only=True)
class EpisodeFigures:
    """Figures and samples of one episode."""

    episode_id: str
    figures: Mapping[str, float]
    """By name: f1, exact, reward, overwritten, facts (share of the world's present and ended
    facts that the memory holds right at the end), facts_as_of (the same after each
    session, of what was true then; mean over sessions), lost, memory_share, add, update,
    delete, noop, rejected, unreadable, failed.
    """
    memory: tuple[str, ...] = ()
    """Memories at the end, newest last."""
    replies: tuple[tuple[str, str], ...] = ()
    """(role, text) of the first replies while listening."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Means over episodes with their parts."""

    episodes: tuple[EpisodeFigures, ...]

    @property
    def figures(self) -> dict[str, float]:
        """Means over the episodes that have the figure."""
        names = sorted({name for episode in self.episodes for name in episode.figures})
        return {name: fmean(self._values(name)) for name in names}

    def interval(self, name: str, *, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
        """Return the 95 % percentile bootstrap interval of a mean over episodes.

        It is (nan, nan) without data.
        """
        return bootstrap(self._values(name), draws=draws, seed=seed)

    def _values(self, name: str) -> list[float]:
        return [episode.figures[name] for episode in self.episodes if name in episode.figures]


def bootstrap(values: Sequence[float], *, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean of independent values."""
    if not values:
        return float("nan"), float("nan")
    chance = random.Random(seed)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(draws))
    return means[int(0.025 * draws)], means[int(0.975 * draws) - 1]


async def evaluate_policy(
    policy: PolicyModel | None,
    agent: AsyncAgent,
    env: Environment,
    episodes: Sequence[Episode],
    *,
    answering: MemoryAgent | None = None,
    episode_model: EpisodeModel = policy_only,
) -> Evaluation:
    """Play the episodes greedily and score them.

    `policy` None plays the agent with its own model, `answering` None lets the played
    agent answer. `episode_model` makes an episode's model of the policy's view of it,
    as it did in training.
    """

    async def evaluated(episode: Episode) -> EpisodeFigures:
        view = None
        player = agent.at(EMPTY)
        if policy is not None:
            view = policy.bound(f"eval/{episode.id}", sampling=greedy(policy))
            player = player.with_model(episode_model(episode, view))
        with policy.participant() if policy is not None else nullcontext():
            trajectory = await play(player, episode, ask=False)
            answers = await answer_probes(answering or player, episode, trajectory)
        score = env.scoring.score(episode, replace(trajectory, answers=answers))
        figures = episode_figures(score)
        if isinstance(env, Synthetic):
            truth = env.truth(episode)
            figures = {**episode_figures(marked(score, truth)), **_facts(trajectory, truth)}
        return EpisodeFigures(
            episode_id=episode.id,
            figures=figures,
            memory=tuple(item.text for item in trajectory.end.items.values()),
            replies=tuple(
                (call.role.value, call.response.text)
                for call in (view.calls if view else ())[:REPLIES]
            ),
        )

    with policy.faults_raised() if policy is not None else nullcontext():
        return Evaluation(episodes=tuple(await asyncio.gather(*map(evaluated, episodes))))


def _facts(played: Trajectory, truth: Truth) -> dict[str, float]:
    """Return the share of facts that are right, at the end and as of each session."""
    heard = enumerate(played.traces, start=1)
    every = [facts_right(trace.after, truth.upto(sessions)) for sessions, trace in heard]
    shares = {"facts": [facts_right(played.end, truth)], "facts_as_of": every}
    known = {name: [one for one in some if one is not None] for name, some in shares.items()}
    return {name: fmean(some) for name, some in known.items() if some}


def facts_right(
    memory: MemorySnapshot, truth: Truth, *, turns: Collection[str] | None = None
) -> float | None:
    """Return the share of facts that are right: those that hold, and those that ended.

    With `turns` it is the share of those told there. None where there are none.
    """
    counts = right_facts(memory, truth, turns=turns)
    right, seen = (sum(counts[name][place] for name in ("now", "removed")) for place in (0, 1))
    return right / seen if seen else None


def greedy(policy: PolicyModel) -> Sampling:
    """Return the sampling of an evaluation: the likeliest token each time."""
    return Sampling(temperature=0.0, max_tokens=policy.sampling.max_tokens)


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
        forks=args.forks,
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
        further.append(lambda episode: [(FactsTerm(truth(episode)), args.facts)])
    terms: list[tuple[Term, float]] = [
        (AnswerTerm(measure=cast(Any, args.measure)), args.answers),
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
        answer_reward=answer_worth(args.worth, *evidence, measure=cast(Any, args.measure)),
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
