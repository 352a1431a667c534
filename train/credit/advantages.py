"""Credit: from rewards of groups to one advantage for each model response.

Pure; no torch, no agent.

Global, local and answer groups (`train.credit.groups`) come from LoGo-GRPO (arXiv
2605.21768). A response may stand in two groups: the anchor rollout's responses of a
session belong to the global group and, as a member for free, to the local one; its
advantages add up.

    A(response) = g * A_global + w * A_local

where both are standardised inside their group and (g, w) come from `local_weight` and
`balance`. The surprise: a group whose members earn the same teaches nothing and is not
an error; it is counted.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, Literal

from train.credit.groups import (
    Branch,
    CreditGroup,
    Estimator,
    MemberCredit,
    ScoredGroup,
    Selector,
    check_group,
    is_flat,
)
from train.errors import TrainFault

Balance = Literal["rows", "branches"]
"""`rows`: every response weighs the same, so a branch weighs as much as it has rows.
`branches`: each branch's mean weighs the same.
"""

EVERYTHING: Final = Selector()
EPS: Final = 1e-6
"""Added to the standard deviation, as the reference does."""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Advantages by response id, with counts of the groups they come from."""

    advantages: Mapping[str, float]
    groups: Mapping[Branch, int] = field(default_factory=dict[Branch, int])
    flat: Mapping[Branch, int] = field(default_factory=dict[Branch, int])
    """Groups whose rewards are alike, within the tolerance: their advantages are zero."""
    unscored: int = 0
    """Members that had no reward."""
    spread: Mapping[Branch, float] = field(default_factory=dict[Branch, float])
    """Mean standard deviation of the rewards inside a group."""
    by_branch: Mapping[Branch, Mapping[str, float]] = field(
        default_factory=dict[Branch, Mapping[str, float]]
    )
    """Advantages of each branch alone, before any weight."""
    offsets: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """What each token's advantage has beyond that of its response (C,); only of responses
    whose tokens differ.
    """


def group_zscore(rewards_G: Sequence[float]) -> list[float]:
    """Return (r - mean) / (std + 1e-6) with the unbiased standard deviation.

    It divides by G - 1, as Memory-R2 and TRL do. Zeros for fewer than two rewards.
    """
    return _zscore(rewards_G, _std(rewards_G))


def population_zscore(rewards_G: Sequence[float]) -> list[float]:
    """Return (r - mean) / (std + 1e-6) with the standard deviation that divides by G.

    Its advantages are larger by sqrt(G / (G - 1)): 1.22 in groups of 3, 1.03 in groups of
    16, so that small local groups weigh more.
    """
    count = len(rewards_G)
    return _zscore(rewards_G, _std(rewards_G) * ((count - 1) / max(1, count)) ** 0.5)


def group_mean(rewards_G: Sequence[float]) -> list[float]:
    """Return r - mean (Dr. GRPO).

    Nothing is divided by the spread, so hard and easy groups keep their scale.
    """
    mean = fmean(rewards_G)
    return [reward - mean for reward in rewards_G]


def leave_one_out(rewards_G: Sequence[float]) -> list[float]:
    """Return r - mean of the others (RLOO, LOOP); a group of one gets 0."""
    if len(rewards_G) < 2:
        return [0.0 for _ in rewards_G]
    total, others = sum(rewards_G), len(rewards_G) - 1
    return [reward - (total - reward) / others for reward in rewards_G]


@dataclass(kw_only=True)
class _BranchCredit:
    """Running credit of one branch."""

    groups: int = 0
    flat: int = 0
    spreads: list[float] = field(default_factory=list[float])
    shares: dict[str, float] = field(default_factory=dict[str, float])
    """Advantages by response id."""
    offsets: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """What single tokens have beyond that."""

    def add(
        self, group: ScoredGroup, estimator: Estimator, selector: Selector, *, flat: bool
    ) -> None:
        """Credit the members of one group.

        Raises `TrainFault` when a response stands in two groups of the branch, and for an
        estimator that does not credit each member.
        """
        self.groups += 1
        self.flat += flat
        self.spreads.append(_std(group))
        unseen = flat and not getattr(estimator, "sees_flat", False)
        credits_G = [0.0] * len(group) if unseen else list(estimator(group))
        if len(credits_G) != len(group):
            raise TrainFault(
                f"the estimator gave {len(credits_G)} advantages for {len(group)} members"
            )
        advantages_G = [_whole(credit) for credit in credits_G]
        for place in selector.members(group, advantages_G):
            for response_id in group.members[place].response_ids:
                if response_id in self.shares:
                    raise TrainFault(
                        f"response {response_id!r} stands in two {group.key.branch} groups; "
                        "one credits it twice"
                    )
                self._share(response_id, credits_G[place])

    def _share(self, response_id: str, credit: MemberCredit) -> None:
        if isinstance(credit, Mapping):
            tokens = credit.get(response_id, ())
            self.shares[response_id] = mean = fmean(tokens) if tokens else 0.0
            self.offsets[response_id] = tuple(value - mean for value in tokens)
        else:
            self.shares[response_id] = credit


def logo_advantages(
    groups: Sequence[CreditGroup],
    *,
    weights: Mapping[Branch, float] | None = None,
    estimator: Estimator = group_zscore,
    balance: Balance = "rows",
    selector: Selector = EVERYTHING,
    tolerance: float = 0.0,
) -> Credit:
    """Compute one advantage for each response.

    Groups weigh 1 (the reference) or what `weights` says of their branch.
    With `balance="rows"` an update over all rows averages over rows. With "branches"
    each branch's rows are scaled so that this average equals the weighted sum of the
    branches' means. The selector names the members of a group
    whose responses are credited. An estimator may give each token an advantage of its
    own. A group whose rewards lie within
    `tolerance` of each other is flat: standardising would make a full advantage of a
    difference that means nothing. Raises `TrainFault` for a group that must not be
    compared.
    """
    weights = weights or {}
    if (local_weight := weights.get("local", 1.0)) < 0:
        raise TrainFault(f"local_weight must not be negative; it is {local_weight}")
    branches: dict[Branch, _BranchCredit] = {}
    for group in groups:
        check_group(group)
        branches.setdefault(group.key.branch, _BranchCredit()).add(
            ScoredGroup(group, tolerance=tolerance),
            estimator,
            selector,
            flat=is_flat(group, tolerance=tolerance),
        )
    rows = len({response_id for credit in branches.values() for response_id in credit.shares})
    total: dict[str, float] = {}
    offsets: dict[str, tuple[float, ...]] = {}
    for branch, credit in branches.items():
        weight = weights.get(branch, 1.0)
        if balance == "branches" and credit.shares:
            weight *= rows / len(credit.shares)
        for response_id, advantage in credit.shares.items():
            total[response_id] = total.get(response_id, 0.0) + weight * advantage
        for response_id, values in credit.offsets.items():
            before = offsets.get(response_id, (0.0,) * len(values))
            offsets[response_id] = tuple(
                old + weight * value for old, value in zip(before, values, strict=True)
            )
    return Credit(
        advantages=total,
        offsets=offsets,
        groups={branch: credit.groups for branch, credit in branches.items()},
        flat={branch: credit.flat for branch, credit in branches.items()},
        unscored=sum(member.reward is None for group in groups for member in group.members),
        spread={branch: fmean(credit.spreads) for branch, credit in branches.items()},
        by_branch={branch: credit.shares for branch, credit in branches.items()},
    )


def _whole(credit: MemberCredit) -> float:
    """Return a member's mean advantage over its tokens."""
    if not isinstance(credit, Mapping):
        return credit
    tokens = [value for values in credit.values() for value in values]
    return fmean(tokens) if tokens else 0.0


def _zscore(rewards_G: Sequence[float], spread: float) -> list[float]:
    mean = fmean(rewards_G) if rewards_G else 0.0
    return [(reward - mean) / (spread + EPS) for reward in rewards_G]


def _std(rewards_G: Sequence[float]) -> float:
    """Return the unbiased standard deviation.

    It is exactly 0 for equal rewards, which rounding would miss, and for fewer than two.
    """
    if len(rewards_G) < 2 or all(reward == rewards_G[0] for reward in rewards_G):
        return 0.0
    mean = fmean(rewards_G)
    return (sum((reward - mean) ** 2 for reward in rewards_G) / (len(rewards_G) - 1)) ** 0.5
