"""Slots of a step's experience: which episodes, which earlier rows, which hints.

Each is a class whose settings are keyword arguments. `state` and `load` carry what it
remembers into checkpoints; the bases here remember nothing and change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memagent.core.exchange import Role, TokenTrace
from train.credit.groups import CreditGroup
from train.credit.slots import Stateless
from train.errors import TrainFault


class EpisodeSampler(Stateless):
    """Chooses the episodes of a generation batch: each pass over all is shuffled anew.

    Episodes at the end of a pass that fill no batch are not played in it.
    """

    def choose(self, batch: int, *, seed: int, episodes: int, size: int) -> list[int]:
        """Return the places of the `size` episodes that batch number `batch` plays.

        The main process chooses for all. The result depends on the arguments and the
        state alone. Raises `TrainFault` when a batch is larger than all episodes.
        """
        if size > episodes:
            raise TrainFault(
                f"a step plays {size} episodes, and there are {episodes}; "
                "give at least as many as a step plays"
            )
        passed, within = divmod(batch, episodes // size)
        order = list(range(episodes))
        random.Random(f"{seed}/episodes/{passed}").shuffle(order)
        return order[within * size : (within + 1) * size]

    def see(self, rewards: Mapping[int, Sequence[float]], /) -> None:
        """Take in the rewards that a batch earned on all processes, by the episode's place."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Responses with their advantages, tokens and roles, by response id."""

    advantages: Mapping[str, float] = field(default_factory=dict[str, float])
    traces: Mapping[str, TokenTrace] = field(default_factory=dict[str, TokenTrace])
    """With the log-probabilities of the policy that said them."""
    roles: Mapping[str, Role] = field(default_factory=dict[str, Role])


class GroupSource(Stateless):
    """Gives rows of earlier steps to learn from once more; as it stands, none."""

    def draw(self, fresh: Replay, groups: Sequence[CreditGroup], draws: random.Random, /) -> Replay:
        """Take in a step's rows and groups and return earlier rows to add to them."""
        del fresh, groups, draws
        return Replay()


NO_SOURCE = GroupSource()


class Hinter(Stateless):
    """Tells the policy part of what is right while it plays; as it stands, nothing."""

    def share(self, name: str, draws: random.Random, /) -> float:
        """Return the share, in [0, 1], of a session's hints that all its runs are given.

        `name` is that of the session in the history; `draws` depend on it and the step.
        """
        del name, draws
        return 0.0

    def see(self, name: str, rewards_G: Sequence[float], /) -> None:
        """Take in the rewards of the runs of a session."""


NO_HINTER = Hinter()
