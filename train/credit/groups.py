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
from statistics import fmean
from typing import Any, Literal, Protocol, overload, runtime_checkable

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, TokenTrace
from train.errors import TrainFault

Branch = Literal["global", "local", "answer", "terminal", "session", "asof", "gain"]
"""The kind of comparison that a group makes. Whole rollouts are compared in `global`
groups or, where several credits are mixed, in groups named by the credit.
"""


TokenValues = Mapping[str, Sequence[float]]
"""One value a token, (C,) by response id."""


EntropyReader = Callable[[Mapping[str, TokenTrace], Mapping[str, Role]], TokenValues]
"""Gives the policy's entropies (C,) by response id, from tokens and roles."""


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


# A scored group: what estimators and selectors see of runs that are compared.
#
# It is a sequence of the members' rewards, so a formula over rewards alone is an estimator
# as it stands. It also knows the parts of each reward and the tokens that were sampled.
#
# Shapes: G members of a group, C tokens of a reply.


class ScoredGroup(Sequence[float]):
    """The scored members of a group; as a sequence, their rewards (G,)."""

    def __init__(self, group: CreditGroup, *, tolerance: float = 0.0) -> None:
        self.key: GroupKey = group.key
        self.members: tuple[Member, ...] = tuple(
            member for member in group.members if member.reward is not None
        )
        self.tolerance = tolerance
        """Largest difference of rewards, or of weighed parts, that counts as none."""
        self._rewards_G = group.rewards_G
        self._sampled = group.sampled

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> list[float]: ...
    def __getitem__(self, place: int | slice) -> float | list[float]:
        return self._rewards_G[place]

    def __len__(self) -> int:
        return len(self._rewards_G)

    def parts_G(self, name: str, default: float = 0.0) -> list[float]:
        """Return the amounts (G,) of one term of the reward, before its weight."""
        return [member.parts.get(name, default) for member in self.members]

    @property
    def part_names(self) -> list[str]:
        """Names of the terms that any member's reward has, sorted."""
        return sorted({name for member in self.members for name in member.parts})

    def weighed_parts(
        self, weights: Mapping[str, float] | None = None
    ) -> dict[str, tuple[float, list[float]]]:
        """Return weight and amounts (G,) of each term that counts and differs, by name.

        The weights are those of the run's own reward unless others are given. A term
        differs when its weighed amounts are further apart than the tolerance. Raises
        `ConfigError` for a reward without weighed terms, and for a weight of no term.
        """
        own = {name: value for member in self.members for name, value in member.weights.items()}
        if not own and not weights:
            raise ConfigError("the rewards of this run have no weighed parts to be told apart")
        if unknown := sorted(set(weights or ()) - set(own or weights or ())):
            raise ConfigError(
                f"weights: the reward has no part {unknown[0]!r}; it has {', '.join(sorted(own))}"
            )
        parts = {
            name: (weight, self.parts_G(name))
            for name, weight in (weights or own).items()
            if weight and any(name in member.parts for member in self.members)
        }
        return {
            name: (weight, amounts_G)
            for name, (weight, amounts_G) in parts.items()
            if abs(weight) * (max(amounts_G) - min(amounts_G)) > self.tolerance
        }

    @property
    def lengths_G(self) -> list[int]:
        """Completion tokens of each member, over all its replies."""
        return [sum(map(len, self._values(member, self.logps))) for member in self.members]

    @property
    def mean_logps_G(self) -> list[float]:
        """Mean log-probability of each member's tokens; 0 for a member without tokens."""
        return [_mean(self._values(member, self.logps)) for member in self.members]

    @property
    def mean_entropies_G(self) -> list[float]:
        """Mean entropy of each member's tokens; 0 for a member without tokens."""
        return [_mean(self._values(member, self.entropies)) for member in self.members]

    @property
    def traces(self) -> Mapping[str, TokenTrace]:
        """The tokens of the members' prompts and replies by response id."""
        known = self._sampled.traces
        ids = [key for member in self.members for key in member.response_ids if key in known]
        return {key: known[key] for key in ids}

    @property
    def logps(self) -> TokenValues:
        """The sampler's log-probabilities (C,) by response id."""
        return {key: trace.logprobs for key, trace in self.traces.items()}

    @property
    def entropies(self) -> TokenValues:
        """The policy's entropies (C,) by response id; {} where no model can tell."""
        return self._mine(self._sampled.entropies())

    @property
    def taught_logps(self) -> TokenValues:
        """The teacher's log-probabilities (C,) by response id; {} without a teacher."""
        return self._mine(self._sampled.taught())

    def _mine(self, known: TokenValues) -> TokenValues:
        """Return what is known of the members' responses."""
        ids = [key for member in self.members for key in member.response_ids if key in known]
        return {key: known[key] for key in ids}

    @staticmethod
    def _values(member: Member, values: TokenValues) -> list[Sequence[float]]:
        return [values[key] for key in member.response_ids if key in values]


def _mean(values: Sequence[Sequence[float]]) -> float:
    every = [value for some in values for value in some]
    return fmean(every) if every else 0.0


# Slots of the credit: estimators and selectors, and the state that techniques keep.
#
# A technique is a class with settings as keyword arguments, or a ready object. What it
# remembers between steps goes through `state` and `load` into every checkpoint; a
# technique that remembers nothing inherits both.
#
# Shapes: G members of a group, C tokens of a reply.

MemberCredit = float | TokenValues
"""One advantage for all replies of a member, or one a token (C,) by response id."""
Estimator = Callable[[ScoredGroup], Sequence[MemberCredit]]
"""Gives (G,) advantages. Groups whose rewards are all alike are not shown to it, unless
it has a true attribute `sees_flat`. With a true `needs_teacher` the prompts of a teacher
are noted, and `taught_logps` tells what it thinks of the tokens.
"""


@runtime_checkable
class Stateful(Protocol):
    """Keeps something between steps."""

    def state(self) -> Mapping[str, Any]:
        """Return all that is kept, as values that JSON can hold."""
        ...

    def load(self, state: Any, /) -> None:
        """Take over what `state` returned."""
        ...


class Stateless:
    """Keeps nothing between steps."""

    def state(self) -> Mapping[str, Any]:
        """Return {}."""
        return {}

    def load(self, state: Any, /) -> None:
        """Take over nothing."""


class Selector(Stateless):
    """Chooses what is learned from; as it stands, everything."""

    refills = False
    """Whether groups that are not kept are replaced by others, as far as there are some;
    the mean then stays over the planned number of rows.
    """

    def members(self, group: ScoredGroup, advantages_G: Sequence[float], /) -> Sequence[int]:
        """Return the places of the members of a group that are learned from."""
        del group
        return range(len(advantages_G))

    def keeps(self, group: ScoredGroup, *, flat: bool) -> bool:
        """Tell whether a group is learned from at all; `flat` is whether its rewards are alike."""
        del group, flat
        return True


class Chained(Selector):
    """Several selectors, one after the other."""

    def __init__(self, parts: Sequence[Selector]) -> None:
        self.parts = tuple(parts)
        self.refills = any(part.refills for part in parts)

    def members(self, group: ScoredGroup, advantages_G: Sequence[float], /) -> Sequence[int]:
        """Return the places that every selector chooses among those left by the one before.

        A selector sees the whole group, and the advantages of members left out as they are.
        """
        places: Sequence[int] = range(len(advantages_G))
        for part in self.parts:
            chosen = set(part.members(group, advantages_G))
            places = [place for place in places if place in chosen]
        return places

    def keeps(self, group: ScoredGroup, *, flat: bool) -> bool:
        """Tell whether all selectors keep the group."""
        return all(part.keeps(group, flat=flat) for part in self.parts)
