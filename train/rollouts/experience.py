"""One step of experience, in three passes over values: collect, score, credit.

`Experience.gather` serves the trainer; it knows the agent, the environment's questions
and the credit rules, and nothing of torch or TRL. `collect` plays, `scoring` scores and
compares, and the credit pass here joins advantages to the sampled tokens.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.rewards.scoring import Scoring
from memagent.core.exchange import Role, TokenTrace
from train.credit.advantages import Credit, logo_advantages
from train.credit.groups import CreditGroup, is_flat, planned_rows
from train.rollouts.collect import Collector, RolloutGroup
from train.rollouts.comparisons import Comparison
from train.rollouts.figures import batch_figures, step_figures
from train.rollouts.grading import CreditPlan, Grading
from train.rollouts.scoring import score_runs
from train.sampling.policy import Call, PolicyModel


@dataclass(frozen=True, kw_only=True)
class GroupBatch:
    """The credit groups of a step with the calls of all its runs."""

    groups: tuple[CreditGroup, ...]
    refills: tuple[CreditGroup, ...]
    """Groups that were run in the place of flat ones."""
    calls: Mapping[str, Call]
    """Every call by its response id."""

    @classmethod
    def of(
        cls,
        rollouts: Sequence[RolloutGroup],
        comparisons: Sequence[Comparison],
        roles: frozenset[Role],
    ) -> GroupBatch:
        """Split the comparisons by role and gather the calls."""
        calls = [call for group in rollouts for run in group.rollouts for call in run.calls]
        calls += [call for each in comparisons for run in each.runs for call in run.calls]
        groups, refills = (
            tuple(
                group
                for comparison in comparisons
                if comparison.refill == refill
                for group in comparison.groups(roles)
            )
            for refill in (False, True)
        )
        return cls(groups=groups, refills=refills, calls={call.response.id: call for call in calls})

    @property
    def all(self) -> tuple[CreditGroup, ...]:
        """The groups and their refills."""
        return self.groups + self.refills


@dataclass(frozen=True, kw_only=True)
class Step:
    """The rows of one step with their credit."""

    credit: Credit
    traces: Mapping[str, TokenTrace]
    """Token traces of the credited responses by id."""
    roles: Mapping[str, Role]
    """Roles of the credited responses by id."""
    groups: tuple[CreditGroup, ...]
    rollouts: tuple[RolloutGroup, ...]
    metrics: Mapping[str, float]
    seconds: Mapping[str, float]
    """Time by phase: rollout (generation within), score, credit."""
    echo: frozenset[str] = frozenset()
    """Responses of which part is repeated, advantage or not."""
    counted: int | None = None
    """Rows that the mean is over, where it is not those that have an advantage."""

    @property
    def rows(self) -> int:
        """Rows that the mean is over."""
        return len(self.credit.advantages) if self.counted is None else self.counted


@dataclass(kw_only=True)
class Experience:
    """Gathers steps.

    `answering` scores the memories; None lets the policy itself answer, greedily.
    """

    collector: Collector
    plan: CreditPlan
    answering: MemoryAgent | None = None
    scoring: Scoring = field(default_factory=Scoring)

    @property
    def policy(self) -> PolicyModel:
        """The policy that is trained."""
        return self.collector.policy

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Collect, score and credit the episodes of one step."""
        began, before = perf_counter(), replace(self.policy.stats)
        rollouts = await self.collector.collect(episodes, step=step)
        played = perf_counter()
        comparisons = await self._score(rollouts)
        scored = perf_counter()
        batch = GroupBatch.of(rollouts, comparisons, self.plan.roles)
        seed = f"{self.collector.plan.seed}/{step}"
        credit, echo = credit_groups(batch.all, self.plan, seed=seed)
        calls = {key: call for key, call in batch.calls.items() if key in credit.advantages}
        done = perf_counter()
        return Step(
            credit=credit,
            traces={
                key: call.response.tokens
                for key, call in calls.items()
                if call.response.tokens is not None
            },
            roles={key: call.role for key, call in calls.items()},
            groups=batch.all,
            rollouts=tuple(rollouts),
            metrics=step_figures(
                rollouts, comparisons, batch.all, credit, list(batch.calls.values())
            )
            | batch_figures(before, self.policy.stats)
            | {"groups/refilled": float(len(batch.refills))},
            echo=echo,
            counted=planned_rows(batch.groups) if self.plan.dynamic_sampling else None,
            seconds={"rollout": played - began, "score": scored - played, "credit": done - scored},
        )

    async def _score(self, rollouts: Sequence[RolloutGroup]) -> list[Comparison]:
        """Score the runs and take their rewards into the statistics of later steps."""
        grading = Grading(
            collector=self.collector, plan=self.plan, answering=self.answering, scoring=self.scoring
        )
        comparisons = [each for group in rollouts for each in await score_runs(grading, group)]
        for comparison in comparisons:
            if comparison.branch == "local" and comparison.session is not None:
                self.collector.spread.see(comparison.session, comparison.rewards_G)
            if comparison.name is not None:
                self.collector.history.see(comparison.name, comparison.rewards_G)
        return comparisons


def credit_groups(
    groups: Sequence[CreditGroup], plan: CreditPlan, *, seed: str
) -> tuple[Credit, frozenset[str]]:
    """Return the advantages and the responses to be repeated."""
    credit = logo_advantages(
        groups,
        local_weight=plan.local_weight,
        estimator=plan.estimator,
        balance=plan.balance,
        select=plan.select,
        tolerance=plan.flat_tolerance,
    )
    echo = plan.echo(groups, f"{seed}/echo") if plan.echo else frozenset[str]()
    advantages = dict(credit.advantages)
    if plan.control == "shuffled_advantage":
        values = list(advantages.values())
        random.Random(f"{seed}/shuffled_advantage").shuffle(values)
        advantages = dict(zip(advantages, values, strict=True))
    if plan.dynamic_sampling:
        kept = echo | {
            response_id
            for group in groups
            if not is_flat(group, tolerance=plan.flat_tolerance)
            for member in group.members
            for response_id in member.response_ids
        }
        advantages = {key: value for key, value in advantages.items() if key in kept}
    advantages |= {key: 0.0 for key in sorted(echo) if key not in advantages}
    return replace(credit, advantages=advantages), echo
