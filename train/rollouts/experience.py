"""One step of experience, in three passes over values: collect, score, credit.

`Experience.gather` serves the trainer; it knows the agent, the environment's questions
and the credit rules, and nothing of torch or TRL. `collect` plays, `scoring` scores and
compares, and the credit pass here joins advantages to the sampled tokens.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from statistics import fmean
from time import perf_counter
from typing import Protocol

from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.rewards.scoring import Scoring
from memagent.core.exchange import Role, TokenTrace
from train.credit.advantages import Credit, logo_advantages
from train.credit.groups import (
    CreditGroup,
    EntropyReader,
    Sampled,
    ScoredGroup,
    TokenValues,
    is_flat,
    planned_rows,
)
from train.credit.objectives import marked
from train.rollouts.allocation import SuccessHistory
from train.rollouts.anchors import SessionSpread
from train.rollouts.collect import Collector, RolloutGroup
from train.rollouts.grading import Comparison, CreditPlan, Grading
from train.rollouts.scoring import score_runs
from train.rollouts.slots import Replay
from train.sampling.batcher import BatchStats
from train.sampling.policy import Call, PolicyModel

# Figures: the numbers that a step writes to the log.

_COUNTS = frozenset(
    {
        "rollouts/failed",
        "rollouts/reruns",
        "tokens/completion",
        "tokens/reruns_unscored",
        "rows/real",
        "rows/counted",
        "rows/padded",
    }
)
"""Figures that processes add up; those of groups are told by their names."""


def step_figures(
    rollouts: Sequence[RolloutGroup],
    comparisons: Sequence[Comparison],
    groups: Sequence[CreditGroup],
    credit: Credit,
    calls: Sequence[Call],
) -> dict[str, float]:
    """Return the figures of a step by name."""
    return (
        _rewards(comparisons, groups)
        | _groups(credit)
        | _ops(rollouts)
        | {
            "tokens/reruns_unscored": float(
                sum(
                    call.response.usage.completion_tokens
                    for comparison in comparisons
                    if comparison.branch == "local" and not comparison.rewards_G
                    for run in comparison.runs
                    for call in run.calls
                )
            ),
            "rollouts/failed": float(
                sum(rollout.failed for group in rollouts for rollout in group.rollouts)
            ),
            "rollouts/reruns": float(
                sum(len(local.reruns) for group in rollouts for local in group.locals)
            ),
            "tokens/completion": float(
                sum(call.response.usage.completion_tokens for call in calls)
            ),
            "tokens/cut": fmean([call.response.finish == "length" for call in calls] or [0.0]),
        }
    )


def joined_figures(processes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the figures of a step on all processes from those of each.

    Counts are added up; shares, means and seconds are averaged over the processes that
    have them.
    """
    names = dict.fromkeys(name for figures in processes for name in figures)
    joined: dict[str, float] = {}
    for name in names:
        values = [figures[name] for figures in processes if name in figures]
        counted = name in _COUNTS or (
            name.startswith("groups/") and not name.endswith(("_flat", "_spread"))
        )
        joined[name] = sum(values) if counted else fmean(values)
    return joined


def batch_figures(before: BatchStats, after: BatchStats) -> dict[str, float]:
    """Return how a step's model calls were batched.

    In each round some calls join; the width is the mean number under way then.
    """
    rounds = after.rounds - before.rounds
    return {
        "batches/rounds": float(rounds),
        "batches/width": (after.under_way - before.under_way) / max(1, rounds),
    }


def _rewards(comparisons: Sequence[Comparison], groups: Sequence[CreditGroup]) -> dict[str, float]:
    """Return the mean of every part of the rewards, and of the rewards, by branch."""
    values: dict[str, list[float]] = {}
    for comparison in comparisons:
        branch = comparison.branch
        if branch == "answer":
            values.setdefault("reward/answer/reward", []).extend(comparison.rewards_G)
        for run in comparison.runs:
            for name, amount in run.parts.items():
                values.setdefault(f"reward/{branch}/{name}", []).append(amount)
    for group in groups:
        branch = group.key.branch
        for name in {branch, branch if branch in ("local", "answer") else "global"}:
            values.setdefault(f"reward/{name}", []).extend(group.rewards_G)
    return {name: fmean(amounts) for name, amounts in values.items() if amounts}


def _groups(credit: Credit) -> dict[str, float]:
    figures: dict[str, float] = {}
    for branch, count in credit.groups.items():
        figures[f"groups/{branch}"] = float(count)
        figures[f"groups/{branch}_flat"] = credit.flat.get(branch, 0) / count
        figures[f"groups/{branch}_spread"] = credit.spread.get(branch, 0.0)
    figures["groups/unscored"] = float(credit.unscored)
    return figures


def _ops(rollouts: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return the share of each kind of op, and the ops a session."""
    reports = [
        trace.report
        for group in rollouts
        for rollout in group.rollouts
        for trace in rollout.trajectory.traces
    ]
    mix: Counter[str] = Counter()
    for report in reports:
        mix.update(report.op_counts)
    total = sum(mix.values()) or 1
    return {f"ops/{kind.lower()}": count / total for kind, count in mix.items()} | {
        "ops/session": total / max(1, len(reports))
    }


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
    marks: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Responses that objectives marked, by the objective; rows with or without advantage."""
    replayed: frozenset[str] = frozenset()
    """Responses of earlier steps that are learned from once more."""
    counted: int | None = None
    """Rows that the mean is over, where it is not those that have an advantage."""

    @property
    def rows(self) -> int:
        """Rows that the mean is over."""
        return len(self.credit.advantages) if self.counted is None else self.counted


class Histories(Protocol):
    """Knowledge of a source of steps about its episodes; a checkpoint keeps it."""

    read_entropies: EntropyReader | None
    """Reads the entropies of a step's tokens; set by the trainer."""

    spread: SessionSpread
    """The spread of rewards by session."""
    history: SuccessHistory
    """The successes by kind of session or question."""


class StepSource(Protocol):
    """A source of steps for the trainer: conversations, or tasks that are acted in."""

    read_logps: EntropyReader | None
    """Reads their log-probabilities; set by the trainer."""

    @property
    def collector(self) -> Histories:
        """The part that a checkpoint keeps."""
        ...

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Play, score and credit the episodes of one step."""
        ...


@dataclass(kw_only=True)
class Experience:
    """Gathers steps.

    `answering` scores the memories; None lets the policy itself answer, greedily.
    """

    collector: Collector
    plan: CreditPlan
    answering: MemoryAgent | None = None
    scoring: Scoring = field(default_factory=Scoring)
    read_logps: EntropyReader | None = None
    """Reads log-probabilities, for a teacher's."""

    @property
    def policy(self) -> PolicyModel:
        """The policy that is trained."""
        return self.collector.policy

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Collect, score and credit the episodes of one step."""
        began, before = perf_counter(), replace(self.policy.stats)
        rollouts = await self.collector.collect(episodes, step=step)
        played = perf_counter()
        with self.policy.faults_raised():
            comparisons = await self.score(rollouts)
        scored = perf_counter()
        batch = GroupBatch.of(rollouts, comparisons, self.plan.roles)
        seed = f"{self.collector.plan.seed}/{step}"
        traces = {
            key: call.response.tokens
            for key, call in batch.calls.items()
            if call.response.tokens is not None
        }
        roles = {key: batch.calls[key].role for key in traces}
        sampled = sampled_of(traces, roles, entropies=self.collector.read_entropies)
        sampled = replace(sampled, taught=lru_cache(partial(self._taught, traces, roles)))
        groups = [replace(group, sampled=sampled) for group in batch.all]
        credit, marks = credit_groups(groups, self.plan, seed=seed)
        fresh = Replay(
            advantages=credit.advantages,
            traces={key: traces[key] for key in credit.advantages if key in traces},
            roles={key: batch.calls[key].role for key in credit.advantages if key in batch.calls},
        )
        replay = self.plan.source.draw(fresh, groups, self.collector.draws(step, "replay"))
        counted = planned_rows(batch.groups) if self.plan.selector.refills else None
        done = perf_counter()
        return Step(
            credit=replace(credit, advantages={**credit.advantages, **replay.advantages}),
            traces={**fresh.traces, **replay.traces},
            roles={**fresh.roles, **replay.roles},
            groups=batch.all,
            rollouts=tuple(rollouts),
            metrics=step_figures(
                rollouts, comparisons, batch.all, credit, list(batch.calls.values())
            )
            | batch_figures(before, self.policy.stats)
            | {"groups/refilled": float(len(batch.refills))}
            | ({"rows/replayed": float(len(replay.advantages))} if replay.advantages else {}),
            marks=marks,
            replayed=frozenset(replay.advantages),
            counted=None if counted is None else counted + len(replay.advantages),
            seconds={"rollout": played - began, "score": scored - played, "credit": done - scored},
        )

    def _taught(self, traces: Mapping[str, TokenTrace], roles: Mapping[str, Role]) -> TokenValues:
        """Return what the teacher thinks of a step's tokens; {} where there is none."""
        prompts = self.collector.taught
        shown = {
            key: trace.model_copy(update={"prompt_ids": prompts[key]})
            for key, trace in traces.items()
            if key in prompts
        }
        if self.read_logps is None or not shown:
            return {}
        return self.read_logps(shown, {key: roles[key] for key in shown})

    async def score(self, rollouts: Sequence[RolloutGroup]) -> list[Comparison]:
        """Score the runs and take their rewards into the statistics of later steps."""
        grading = Grading(
            collector=self.collector, plan=self.plan, answering=self.answering, scoring=self.scoring
        )
        scored = [(group, each) for group in rollouts for each in await score_runs(grading, group)]
        for group, comparison in scored:
            if comparison.branch == "local" and comparison.session is not None:
                self.collector.spread.see(comparison.session, comparison.rewards_G)
            if comparison.name is not None:
                self.collector.history.see(comparison.name, comparison.rewards_G)
            if comparison.session is not None:
                kind = self.collector.session_kind(group.episode, comparison.session)
                self.collector.plan.hinter.see(kind, comparison.rewards_G)
        return [comparison for _, comparison in scored]


def sampled_of(
    traces: Mapping[str, TokenTrace],
    roles: Mapping[str, Role],
    *,
    entropies: EntropyReader | None,
) -> Sampled:
    """Return the tokens of a step, whose entropies are read once, when they are asked for."""
    if entropies is None:
        return Sampled(traces=traces)
    return Sampled(traces=traces, entropies=lru_cache(partial(entropies, traces, roles)))


def credit_groups(
    groups: Sequence[CreditGroup], plan: CreditPlan, *, seed: str
) -> tuple[Credit, dict[str, frozenset[str]]]:
    """Return the advantages, and the responses that objectives marked by the objective."""
    credit = logo_advantages(
        groups,
        weights={**plan.branches, "local": plan.local_weight},
        estimator=plan.estimator,
        balance=plan.balance,
        selector=plan.selector,
        tolerance=plan.flat_tolerance,
    )
    marks = marked(plan.objectives, groups, seed)
    noted = frozenset[str]().union(*marks.values())
    advantages = dict(credit.advantages)
    if plan.control == "shuffled_advantage":
        values = list(advantages.values())
        random.Random(f"{seed}/shuffled_advantage").shuffle(values)
        advantages = dict(zip(advantages, values, strict=True))
        credit = replace(credit, offsets={})
    kept = noted | {
        response_id
        for group in groups
        if plan.selector.keeps(
            ScoredGroup(group), flat=is_flat(group, tolerance=plan.flat_tolerance)
        )
        for member in group.members
        for response_id in member.response_ids
    }
    advantages = {key: value for key, value in advantages.items() if key in kept}
    advantages |= {key: 0.0 for key in sorted(noted) if key not in advantages}
    return replace(credit, advantages=advantages), marks
