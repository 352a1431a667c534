"""Short successes and long failures first (RoRecomp, arXiv 2509.25958).

Of each group the shorter half of the successes and the longer half of the failures are
learned from: being brief and right is what pays. Every `every`-th step learns from all
members, so that the rest is not forgotten. Changed: the paper keeps the rest in a
buffer and learns from it in a batch of its own; here it is the whole fresh step.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Sequence

from memagent.core.errors import ConfigError
from train.credit.groups import ScoredGroup, Selector


class RoRecomp(Selector):
    """Keeps short successes and long failures, but for every few steps."""

    def __init__(self, *, every: int = 4, success: float = 0.5) -> None:
        if every < 2:
            raise ConfigError("rorecomp: every is at least 2")
        self.every, self.success = every, success

    def members(self, group: ScoredGroup, advantages_G: Sequence[float], /) -> Sequence[int]:
        """Return the places kept; half of each kind, rounded up."""
        step = int(group.key.episode_id.partition("/")[0])
        if step % self.every == self.every - 1:
            return range(len(advantages_G))
        lengths_G = group.lengths_G
        order = sorted(range(len(group)), key=lambda place: (lengths_G[place], place))
        right = [place for place in order if group[place] >= self.success]
        wrong = [place for place in order if group[place] < self.success]
        return sorted([*right[: -(-len(right) // 2)], *wrong[len(wrong) // 2 :]])
