"""Utilities learned from outcomes: how the reward of a trial moves an item's value.

`report` counts the uses of the credited items itself; a `Feedback` says only what each
item is worth afterwards. It is a pure function, so it runs inside the journal's append
and counts again when another writer came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from memagent.core.records import ItemStats
from memagent.core.trials import Trial


class Feedback(Protocol):
    """Turns a trial that ended into the values of the items that it credits."""

    def __call__(self, trial: Trial, stats: Mapping[str, ItemStats], /) -> Mapping[str, float]:
        """Return new values by item id; `stats` are those counted with this trial."""
        ...


@dataclass(frozen=True, kw_only=True)
class RunningValue:
    """Moves each credited item's value towards its reward: q + alpha (r - q)."""

    alpha: float = 0.3

    def __call__(self, trial: Trial, stats: Mapping[str, ItemStats], /) -> Mapping[str, float]:
        """Return the values of the items with credit."""
        return {
            credit.id: stats[credit.id].q_value
            + self.alpha * (credit.reward - stats[credit.id].q_value)
            for credit in trial.credit
        }
