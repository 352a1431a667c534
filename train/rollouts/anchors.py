"""Which sessions are rerun locally, and from whose memory: drawn before the rollout begins.

The draw is a function of (seed, step, episode), so a resumed run draws the same.
Selectors see statistics of earlier steps only: choosing by what a rollout did would
bias the comparison that the rerun is for.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from train.errors import TrainFault


@dataclass(kw_only=True)
class SessionSpread:
    """Running reward variance of local groups by the place of the session; what
    selectors may look at.
    """

    decay: float = 0.9
    variance: dict[int, float] = field(default_factory=dict[int, float])

    def see(self, session: int, rewards_G: Sequence[float]) -> None:
        """Take in the rewards of one group."""
        if len(rewards_G) < 2:
            return
        mean = sum(rewards_G) / len(rewards_G)
        fresh = sum((reward - mean) ** 2 for reward in rewards_G) / len(rewards_G)
        known = self.variance.get(session)
        self.variance[session] = (
            fresh if known is None else self.decay * known + (1 - self.decay) * fresh
        )

    def state(self) -> dict[str, float]:
        """What to save."""
        return {str(session): value for session, value in self.variance.items()}

    def load(self, state: Mapping[str, float]) -> None:
        """What `state` gave."""
        self.variance = {int(session): value for session, value in state.items()}


class AnchorSelector(Protocol):
    """How probable each session is as an anchor."""

    def __call__(
        self, sessions: int, probability: float, spread: SessionSpread, /
    ) -> Sequence[float]:
        """(S,) probabilities whose mean is about `probability`."""
        ...


def uniform(sessions: int, probability: float, spread: SessionSpread, /) -> list[float]:
    """Every session alike."""
    return [probability] * sessions


def by_variance(sessions: int, probability: float, spread: SessionSpread, /) -> list[float]:
    """Sessions whose local rewards varied most in earlier steps come more often, none
    less than a quarter as often as uniformly.

    Sessions not yet seen count as the most varied one. Ours; the mean stays at
    `probability` up to the cap at 1.
    """
    if not spread.variance:
        return uniform(sessions, probability, spread)
    most = max(spread.variance.values()) or 1.0
    weights = [spread.variance.get(session, most) ** 0.5 for session in range(sessions)]
    mean = sum(weights) / sessions or 1.0
    return [min(1.0, probability * (0.25 + 0.75 * weight / mean)) for weight in weights]


def draw_anchors(
    *,
    seed: int,
    step: int,
    episode_id: str,
    sessions: int,
    members: int,
    probability: float,
    selector: AnchorSelector = uniform,
    spread: SessionSpread | None = None,
) -> dict[int, int]:
    """Session place to the member whose memory before that session is shared by its
    reruns. {} when nothing is to be rerun.
    """
    if not 0.0 <= probability <= 1.0:
        raise TrainFault(f"the probability of a local group is between 0 and 1, not {probability}")
    draws = random.Random(f"{seed}/{step}/{episode_id}")
    chances = selector(sessions, probability, spread or SessionSpread())
    drawn = [(draws.random(), draws.randrange(members)) for _ in range(sessions)]
    return {
        place: member for place, (chance, member) in enumerate(drawn) if chance < chances[place]
    }
