"""Down-sampling by spread (D3S): of N runs learn from the K whose advantages vary most.

The subset of K values with the largest variance is always some of the lowest and the
rest from the highest, so the search looks at K + 1 candidates instead of all subsets.
Advantages are computed over all N first; the runs left out still stood in the
comparison.

The token half ranks the tokens of a slice of rows by |advantage| times entropy and
learns from a share of them; the share rises from `tokens` to 1 over `grow` slices, so
training begins with the tokens that decide and ends with all. Padding never counts, and
the mean stays over all tokens of a row. Our choice: the share rises linearly.

Shapes: G members of a group, B rows, C completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import pvariance
from typing import Any

import torch

from memagent.core.errors import ConfigError
from train.credit.groups import ScoredGroup, Selector
from train.credit.objectives import LossView, Objective
from train.errors import TrainFault


def most_varied(values_G: Sequence[float], keep: int) -> tuple[int, ...]:
    """Return the places of the `keep` values with the largest variance, ascending.

    Return all places when there are no more than that. Equal values count in the order
    given. Raises `TrainFault` for a `keep` below 1.
    """
    if keep < 1:
        raise TrainFault(f"a group keeps at least 1 member, not {keep}")
    if keep >= len(values_G):
        return tuple(range(len(values_G)))
    order = sorted(range(len(values_G)), key=lambda place: (values_G[place], place))
    subsets = [order[:low] + order[len(order) - keep + low :] for low in range(keep + 1)]
    best = max(subsets, key=lambda places: pvariance([values_G[place] for place in places]))
    return tuple(sorted(best))


class D3S(Selector):
    """Learns from the `keep` members of a group whose advantages vary most."""

    def __init__(self, *, keep: int) -> None:
        if keep < 2:
            raise ConfigError(f"a group keeps at least 2 members to compare, not {keep}")
        self.keep = keep

    def members(self, group: ScoredGroup, advantages_G: Sequence[float], /) -> Sequence[int]:
        """Return the places of the members kept."""
        del group
        return most_varied(advantages_G, self.keep)


class D3STokens(Objective):
    """Learns from the share of tokens whose |advantage| times entropy is largest."""

    looks_ahead = True

    def __init__(self, *, tokens: float = 0.5, grow: int = 100) -> None:
        if not 0 < tokens <= 1 or grow < 1:
            raise ConfigError("d3s_tokens: tokens lies in (0, 1], and grow is at least 1")
        self.tokens, self.grow, self.seen = tokens, grow, 0
        self._least = 0.0

    @property
    def share(self) -> float:
        """The share of tokens learned from now."""
        return min(1.0, self.tokens + (1 - self.tokens) * self.seen / self.grow)

    def prepare(self, view: LossView, /) -> None:
        """Find the least score that is learned from in a slice."""
        scores = _scores(view)[view.mask.bool()]
        count = max(1, round(self.share * len(scores)))
        self._least = float(scores.sort(descending=True).values[count - 1]) if len(scores) else 0.0
        self.seen += 1

    def weights(self, view: LossView, /) -> torch.Tensor | None:
        """Return 1 for the tokens learned from, 0 for the others."""
        return (_scores(view) >= self._least).to(view.logps.dtype)

    def state(self) -> Mapping[str, Any]:
        """Return the number of slices seen."""
        return {"seen": self.seen}

    def load(self, state: Any, /) -> None:
        """Take the number of slices seen."""
        self.seen = int(state["seen"])


def _scores(view: LossView) -> torch.Tensor:
    return view.advantages.abs() * view.entropies.detach()
