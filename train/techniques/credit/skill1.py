"""One outcome, split: choosing is credited by its trend, writing by what exceeds it (Skill1).

    U(skill) <- U + alpha (r - U)          r: outcome of a task that followed the skill
    chosen   A = zscore(U of the skill that was chosen)           low frequency
    acted    A = zscore(r)
    written  A = zscore(r - max U of the skills that were shown)  high frequency

One policy chooses a skill after the recall, acts and writes a skill down (arXiv
2605.06130). A single outcome is noisy, so a choice is judged by what its skill brought so
far; a lesson is worth writing where the task went better than the best skill at hand.
U is that from before the task. Moving average, maximum and first difference follow the
abstract and the launch script of the released code (`alpha`, `u_hat_aggregation=max`,
`distill_reward_type=first_order_diff`, `rerank_train_top1`); the paper itself was not at
hand. Changed: the paper ranks the candidates and also learns the query; here one choice is
made, and no skill chosen counts as U = 0. Its weights of .3 for choosing and writing are
left out.

The environment tells each member's `outcome`, `trend` (U of the choice) and `best` (the
maximum) as parts of its reward; which of them counts follows from the role that spoke.

Shapes: G members of a group.
"""

from __future__ import annotations

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role
from train.credit.advantages import group_zscore
from train.credit.groups import ScoredGroup
from train.techniques.credit.gdpo import ByParts


class Skill1(ByParts):
    """Credits the planner by trend, the manager by deviation, others by the outcome."""

    needs_skills = True

    def __call__(self, group: ScoredGroup) -> list[float]:
        """Return (G,) advantages; zeros where what counts is alike within the tolerance.

        Raises `ConfigError` for rewards without these parts.
        """
        if len(group) and not {"outcome", "trend", "best"} <= set(group.part_names):
            raise ConfigError("skill1 needs rewards that tell outcome, trend and best of a skill")
        counted_G = group.parts_G("trend" if group.key.role is Role.PLANNER else "outcome")
        if group.key.role is Role.MANAGER:
            best_G = group.parts_G("best")
            counted_G = [own - best for own, best in zip(counted_G, best_G, strict=True)]
        alike = not counted_G or max(counted_G) - min(counted_G) <= group.tolerance
        return [0.0] * len(counted_G) if alike else group_zscore(counted_G)
