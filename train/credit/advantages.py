"""Credit: from rewards of groups to one advantage for each model response.

Pure; no torch, no agent.

A *group* is a set of runs that may be compared because they began alike, and its
members answered the same questions. Global groups compare whole rollouts session by
session; local groups compare reruns of one session from one shared snapshot (LoGo-GRPO,
arXiv 2605.21768); answer groups compare answers to one question from one snapshot. A
response may stand in two groups: the anchor rollout's responses of a session belong to
the global group and, as a member for free, to the local one; its advantages add up.

    A(response) = g * A_global + w * A_local

where both are standardised inside their group and (g, w) come from `local_weight` and
`balance`. The surprise: a group whose members earn the same teaches nothing and is not
an error; it is counted.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, Literal

from memagent.core.exchange import Role
from train.errors import TrainFault
from train.techniques.d3s import most_varied

Branch = Literal["global", "local", "answer"]
"""What a group compares."""
Balance = Literal["rows", "branches"]
"""`rows`: every response weighs the same, so a branch weighs as much as it has rows.
`branches`: each branch's mean weighs the same.
"""
Estimator = Callable[[Sequence[float]], Sequence[float]]
"""Rewards (G,) to advantages (G,)."""

EPS: Final = 1e-6
"""Added to the standard deviation, as the reference does."""


@dataclass(frozen=True, kw_only=True)
class GroupKey:
    """What the members of a group share; two groups with one key are one group."""

    branch: Branch
    role: Role
    episode_id: str
    session: int | None = None
    """Place of the session in the episode; None for answers."""
    start: str | None = None
    """Digest of the snapshot that every member began from; None for whole rollouts."""
    question_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Member:
    """One run in a group."""

    reward: float | None
    """None takes the member out: it could not be scored."""
    response_ids: tuple[str, ...]
    """Responses of the group's role in this run that share the credit."""
    start: str | None = None
    """Digest of the snapshot that it really began from."""
    version: int = 0
    """Version of the policy that spoke."""
    trained: bool = True
    """Whether its responses get an advantage; a member may be there for comparison only."""


@dataclass(frozen=True, kw_only=True)
class CreditGroup:
    """Runs that are compared."""

    key: GroupKey
    members: tuple[Member, ...]


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Advantages by response id, and what became of the groups."""

    advantages: Mapping[str, float]
    groups: Mapping[Branch, int] = field(default_factory=dict[Branch, int])
    flat: Mapping[Branch, int] = field(default_factory=dict[Branch, int])
    """Groups without variance in their rewards: their advantages are zero."""
    unscored: int = 0
    """Members that had no reward."""
    spread: Mapping[Branch, float] = field(default_factory=dict[Branch, float])
    """Mean standard deviation of the rewards inside a group."""
    by_branch: Mapping[Branch, Mapping[str, float]] = field(
        default_factory=dict[Branch, Mapping[str, float]]
    )
    """What each branch alone says of a response, before any weight."""


def group_zscore(rewards_G: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-6) with the population's standard deviation (GRPO)."""
    mean, spread = fmean(rewards_G), _std(rewards_G)
    return [(reward - mean) / (spread + EPS) for reward in rewards_G]


def group_mean(rewards_G: Sequence[float]) -> list[float]:
    """r - mean: no division by the spread, so hard and easy groups keep their scale (Dr.

    GRPO).
    """
    mean = fmean(rewards_G)
    return [reward - mean for reward in rewards_G]


def leave_one_out(rewards_G: Sequence[float]) -> list[float]:
    """r - mean of the others (RLOO, LOOP); a group of one has no others and gets 0."""
    if len(rewards_G) < 2:
        return [0.0 for _ in rewards_G]
    total, others = sum(rewards_G), len(rewards_G) - 1
    return [reward - (total - reward) / others for reward in rewards_G]


def logo_advantages(
    groups: Sequence[CreditGroup],
    *,
    local_weight: float = 1.0,
    estimator: Estimator = group_zscore,
    balance: Balance = "rows",
    keep: int = 0,
) -> Credit:
    """One advantage a response: global and answer groups weigh 1, local groups
    `local_weight` (1 is the reference).

    With `balance="rows"` an update over all rows averages over rows. With "branches"
    each branch's rows are scaled so that this average equals mean(global) +
    local_weight * mean(local) + mean(answer). With `keep` only that many members a
    group, those whose advantages vary most, have their responses credited (D3S). Raises
    `TrainFault` for a group that should not be compared.
    """
    if local_weight < 0:
        raise TrainFault(f"local_weight must not be negative; it is {local_weight}")
    shares: dict[Branch, dict[str, float]] = {}
    counted: dict[Branch, int] = {}
    flat: dict[Branch, int] = {}
    spreads: dict[Branch, list[float]] = {}
    unscored = 0
    for group in groups:
        check_group(group)
        branch = group.key.branch
        scored = [member for member in group.members if member.reward is not None]
        unscored += len(group.members) - len(scored)
        rewards_G = [member.reward for member in scored if member.reward is not None]
        counted[branch] = counted.get(branch, 0) + 1
        spread = _std(rewards_G) if rewards_G else 0.0
        spreads.setdefault(branch, []).append(spread)
        level = spread == 0.0
        flat[branch] = flat.get(branch, 0) + level
        advantages_G = [0.0] * len(rewards_G) if level else list(estimator(rewards_G))
        kept = most_varied(advantages_G, keep) if keep else range(len(scored))
        into = shares.setdefault(branch, {})
        for member, advantage in ((scored[place], advantages_G[place]) for place in kept):
            for response_id in member.response_ids if member.trained else ():
                if response_id in into:
                    raise TrainFault(
                        f"response {response_id!r} stands in two {branch} groups; one credits it twice"
                    )
                into[response_id] = advantage
    rows = len({response_id for share in shares.values() for response_id in share})
    total: dict[str, float] = {}
    for branch, share in shares.items():
        weight = local_weight if branch == "local" else 1.0
        if balance == "branches" and share:
            weight *= rows / len(share)
        for response_id, advantage in share.items():
            total[response_id] = total.get(response_id, 0.0) + weight * advantage
    return Credit(
        advantages=total,
        groups=counted,
        flat=flat,
        unscored=unscored,
        spread={branch: fmean(values) for branch, values in spreads.items()},
        by_branch={branch: dict(share) for branch, share in shares.items()},
    )


def check_group(group: CreditGroup) -> None:
    """Raise `TrainFault` unless the members may be compared: one policy version and,
    where the key names one, one shared start.
    """
    versions = {member.version for member in group.members}
    if len(versions) > 1:
        raise TrainFault(f"group {group.key} mixes policy versions {sorted(versions)}")
    if group.key.branch == "global":
        return
    if group.key.start is None:
        raise TrainFault(f"group {group.key} compares reruns but names no snapshot that they share")
    strangers = {member.start for member in group.members if member.start != group.key.start}
    if strangers:
        raise TrainFault(
            f"group {group.key} has members that began from another memory: {', '.join(str(one)[:12] for one in strangers)}"
        )


def _std(rewards_G: Sequence[float]) -> float:
    """The population's standard deviation; exactly 0 for equal rewards, which rounding would miss."""
    if len(rewards_G) < 2 or all(reward == rewards_G[0] for reward in rewards_G):
        return 0.0
    mean = fmean(rewards_G)
    return (sum((reward - mean) ** 2 for reward in rewards_G) / len(rewards_G)) ** 0.5
