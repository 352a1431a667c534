"""Runs that reach their reward in fewer rounds earn more (EAPO of IterResearch, 2511.07327).

    r_t = gamma^(T - t) * R          t: a round of a run, 1 to T
    A_t = (r_t - mean) / (std + 1e-6) over all rounds of all runs of a group

A round is one call of the model; the last one earns the whole reward. The same reward
after more rounds is worth less at the beginning, so being efficient is what pays. Groups
whose rewards are alike are left alone (`flat_tolerance`). Changed: the paper drops
rounds at random until their number divides by that of the workers; here rows are padded
instead, so all are learned from.

Shapes: G members of a group, C tokens of a reply, T rounds of a run.
"""

from __future__ import annotations

from memagent.core.errors import ConfigError
from train.credit.advantages import group_zscore
from train.credit.groups import ScoredGroup, TokenValues


class Eapo:
    """Discounts the reward by the rounds that were still to come."""

    def __init__(self, *, gamma: float = 0.995) -> None:
        if not 0 < gamma <= 1:
            raise ConfigError("eapo: gamma lies in (0, 1]")
        self.gamma = gamma

    def __call__(self, group: ScoredGroup) -> list[TokenValues]:
        """Return for each member the advantages (C,) of its replies, by response id."""
        said = group.logps
        rounds_G = [[key for key in each.response_ids if key in said] for each in group.members]
        worth = {
            key: reward * self.gamma ** (len(rounds) - place)
            for rounds, reward in zip(rounds_G, group, strict=True)
            for place, key in enumerate(rounds, start=1)
        }
        advantages = dict(zip(worth, group_zscore(list(worth.values())), strict=True))
        return [{key: (advantages[key],) * len(said[key]) for key in rounds} for rounds in rounds_G]
