"""Groups: runs that may be compared.

The members of a group began alike and answered the same questions. Global groups
compare whole rollouts session by session; local groups compare reruns of one session
from one shared snapshot; answer groups compare answers to one question from one
snapshot. A group whose members all earned the same is *flat*: it teaches nothing.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from memagent.core.exchange import Role, TokenTrace
from train.errors import TrainFault

Branch = Literal["global", "local", "answer", "terminal", "session", "asof", "gain"]
"""The kind of comparison that a group makes. Whole rollouts are compared in `global`
groups or, where several credits are mixed, in groups named by the credit.
"""


TokenValues = Mapping[str, Sequence[float]]
"""One value a token, (C,) by response id."""


def no_entropies() -> TokenValues:
    """Return {}: there is no model at hand that could tell."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The tokens of a step's replies, as far as they are at hand."""

    traces: Mapping[str, TokenTrace] = field(default_factory=dict[str, TokenTrace])
    """By response id."""
    entropies: Callable[[], TokenValues] = no_entropies
    """Reads the policy's entropy at each token; costs a forward pass over the step."""
    taught: Callable[[], TokenValues] = no_entropies
    """Reads the teacher's log-probability of each token; costs such a pass too."""


NOTHING_SAMPLED = Sampled()


@dataclass(frozen=True, kw_only=True)
class GroupKey:
    """The properties that the members of a group share; a key names one group."""

    branch: Branch
    role: Role
    episode_id: str
    session: int | None = None
    """Place of the session in the episode; None for answers."""
    start: str | None = None
    """Digest of the snapshot that every member began from; None for whole rollouts."""
    question_id: str | None = None
    chunk: int | None = None
    """Place of the chunk in the session; None where a session is credited as a whole."""


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
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Amounts of the reward's terms by name, before their weights."""
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Weights of the terms in that reward by name; a cost has a negative one."""


@dataclass(frozen=True, kw_only=True)
class CreditGroup:
    """Runs that are compared."""

    key: GroupKey
    members: tuple[Member, ...]
    sampled: Sampled = field(default=NOTHING_SAMPLED, repr=False, compare=False)

    @property
    def rewards_G(self) -> list[float]:
        """Rewards of the members that were scored, in their order."""
        return [member.reward for member in self.members if member.reward is not None]


def check_group(group: CreditGroup) -> None:
    """Raise `TrainFault` unless the members may be compared.

    They need one policy version and, where the key names a snapshot, that one start.
    """
    versions = {member.version for member in group.members}
    if len(versions) > 1:
        raise TrainFault(f"group {group.key} mixes policy versions {sorted(versions)}")
    if group.key.branch not in ("local", "answer"):
        return
    if group.key.start is None:
        raise TrainFault(f"group {group.key} compares reruns but names no snapshot that they share")
    strangers = {member.start for member in group.members if member.start != group.key.start}
    if strangers:
        raise TrainFault(
            f"group {group.key} has members that began from another memory: "
            f"{', '.join(str(start)[:12] for start in strangers)}"
        )


def is_flat(group: CreditGroup, *, tolerance: float = 0.0) -> bool:
    """Tell whether the rewards of a group are all alike, or fewer than two.

    Rewards are alike when the largest and the least differ by `tolerance` at most.
    """
    rewards_G = group.rewards_G
    return len(rewards_G) < 2 or max(rewards_G) - min(rewards_G) <= tolerance


def planned_rows(groups: Sequence[CreditGroup]) -> int:
    """Count the rows that the groups make: different responses of scored members."""
    return len(
        {
            response_id
            for group in groups
            for member in group.members
            if member.reward is not None
            for response_id in member.response_ids
        }
    )
