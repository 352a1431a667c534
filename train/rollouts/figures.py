"""Figures: the numbers that a step writes to the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from train.credit.advantages import Credit
from train.credit.groups import CreditGroup
from train.rollouts.collect import RolloutGroup
from train.rollouts.comparisons import Comparison
from train.sampling.batcher import BatchStats
from train.sampling.policy import Call

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

    Rounds follow one another; the width is the number of calls a batch.
    """
    batches = after.batches - before.batches
    return {
        "batches/rounds": float(after.rounds - before.rounds),
        "batches/width": (after.jobs - before.jobs) / max(1, batches),
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
