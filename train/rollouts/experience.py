"""One step of experience: rollouts, reruns and answers, scored, credited, and joined to
the tokens that were said.

`Experience.gather` is what the trainer asks for; it knows the agent, the environment's
questions and the credit rules, and nothing of torch or TRL. `grading` says what a
memory earns, `groups` who is compared with whom.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter

from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.rewards.scoring import Scoring
from memagent.core.exchange import Role, TokenTrace
from train.credit.advantages import Credit, CreditGroup, logo_advantages
from train.rollouts.collect import Collector, RolloutGroup
from train.rollouts.grading import MANAGER_ROLES, CreditPlan, Grading, Made
from train.rollouts.groups import answer_groups, global_groups, local_groups
from train.sampling.batcher import BatchStats
from train.sampling.policy import Call, PolicyModel
from train.techniques.dynamic_sampling import is_flat, planned_rows
from train.techniques.echo import echoed


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step has to teach."""

    credit: Credit
    traces: Mapping[str, TokenTrace]
    """Token traces of the credited responses by id."""
    roles: Mapping[str, Role]
    """Who said each of them."""
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
        """Who is trained."""
        return self.collector.policy

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Play, score and credit the episodes of one step."""
        began, before = perf_counter(), replace(self.policy.stats)
        rollouts = await self.collector.collect(episodes, step=step)
        played = perf_counter()
        made = Made()
        grading = Grading(
            collector=self.collector, plan=self.plan, answering=self.answering, scoring=self.scoring
        )
        for rollout in rollouts:
            made.add(Made(calls=[call for one in rollout.rollouts for call in one.calls]))
            if self.plan.roles & MANAGER_ROLES:
                made.add(Made(groups=await global_groups(grading, rollout)))
                made.add(await local_groups(grading, rollout))
            if Role.ANSWERER in self.plan.roles:
                made.add(await answer_groups(grading, rollout))
        scored = perf_counter()
        groups, calls = (
            [*made.groups, *made.refills],
            list({call.response.id: call for call in made.calls}.values()),
        )
        credit, echo = self._credit(groups, step)
        by_id = {call.response.id: call for call in calls if call.response.id in credit.advantages}
        done = perf_counter()
        return Step(
            credit=credit,
            traces={
                key: call.response.tokens
                for key, call in by_id.items()
                if call.response.tokens is not None
            },
            roles={key: call.role for key, call in by_id.items()},
            groups=tuple(groups),
            rollouts=tuple(rollouts),
            metrics=_metrics(rollouts, groups, credit, grading.parts, calls)
            | _widths(before, self.policy.stats)
            | {"groups/refilled": float(len(made.refills))},
            echo=echo,
            counted=planned_rows(made.groups) if self.plan.dynamic_sampling else None,
            seconds={"rollout": played - began, "score": scored - played, "credit": done - scored},
        )

    def _credit(self, groups: Sequence[CreditGroup], step: int) -> tuple[Credit, frozenset[str]]:
        """Advantages, and the responses to be repeated."""
        plan, seed = self.plan, f"{self.collector.plan.seed}/{step}"
        credit = logo_advantages(
            groups,
            local_weight=plan.local_weight,
            estimator=plan.estimator,
            balance=plan.balance,
            keep=plan.keep,
        )
        echo = echoed(groups, seed=f"{seed}/echo") if plan.echo else frozenset[str]()
        advantages = dict(credit.advantages)
        if plan.control == "shuffled_advantage":
            values = list(advantages.values())
            random.Random(f"{seed}/shuffled_advantage").shuffle(values)
            advantages = dict(zip(advantages, values, strict=True))
        if plan.dynamic_sampling:
            lively = {
                key
                for group in groups
                if not is_flat(group)
                for one in group.members
                for key in one.response_ids
            }
            advantages = {
                key: value for key, value in advantages.items() if key in lively or key in echo
            }
        advantages |= {key: 0.0 for key in sorted(echo) if key not in advantages}
        return replace(credit, advantages=advantages), echo


def _metrics(
    rollouts: Sequence[RolloutGroup],
    groups: Sequence[CreditGroup],
    credit: Credit,
    parts: Mapping[str, Sequence[float]],
    calls: Sequence[Call],
) -> dict[str, float]:
    """Flat figures of a step for the log."""
    found = {f"reward/{name}": fmean(values) for name, values in parts.items() if values}
    for branch in ("global", "local", "answer"):
        rewards = [
            member.reward
            for group in groups
            if group.key.branch == branch
            for member in group.members
            if member.reward is not None
        ]
        if rewards:
            found[f"reward/{branch}"] = fmean(rewards)
    for branch, count in credit.groups.items():
        found[f"groups/{branch}"] = float(count)
        found[f"groups/{branch}_flat"] = credit.flat.get(branch, 0) / count
        found[f"groups/{branch}_spread"] = credit.spread.get(branch, 0.0)
    found["groups/unscored"] = float(credit.unscored)
    reports = [
        trace.report
        for group in rollouts
        for one in group.rollouts
        for trace in one.trajectory.traces
    ]
    mix: dict[str, int] = {}
    for report in reports:
        for kind, count in report.op_counts.items():
            mix[kind] = mix.get(kind, 0) + count
    total = sum(mix.values()) or 1
    found |= {f"ops/{kind.lower()}": count / total for kind, count in mix.items()}
    found["ops/session"] = total / max(1, len(reports))
    found["rollouts/failed"] = float(
        sum(one.trajectory.failure is not None for group in rollouts for one in group.rollouts)
    )
    found["rollouts/reruns"] = float(
        sum(len(local.reruns) for group in rollouts for local in group.locals)
    )
    found["tokens/completion"] = float(sum(call.response.usage.completion_tokens for call in calls))
    found["tokens/cut"] = fmean([call.response.finish == "length" for call in calls] or [0.0])
    return found


def _widths(before: BatchStats, after: BatchStats) -> dict[str, float]:
    """How a step's model calls were batched: rounds one after the other, and calls a batch."""
    batches = after.batches - before.batches
    return {
        "batches/rounds": float(after.rounds - before.rounds),
        "batches/width": (after.jobs - before.jobs) / max(1, batches),
    }
