"""A scored group: what estimators and selectors see of runs that are compared.

It is a sequence of the members' rewards, so a formula over rewards alone is an estimator
as it stands. It also knows the parts of each reward and the tokens that were sampled.

Shapes: G members of a group, C tokens of a reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import overload

from memagent.core.errors import ConfigError
from memagent.core.exchange import TokenTrace
from train.credit.groups import CreditGroup, GroupKey, Member, TokenValues


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
