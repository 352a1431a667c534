"""Groups that teach nothing are replaced (dynamic sampling, DAPO).

A group whose members all earned the same has zero advantages. It is taken out, and
another is run in its place until the planned number of groups is filled or nothing is
left to run. What the mean is over stays the planned number of rows, so the learning
rate stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from train.credit.advantages import CreditGroup


def is_flat(group: CreditGroup) -> bool:
    """Whether the rewards of a group are all alike, or fewer than two."""
    rewards = {member.reward for member in group.members if member.reward is not None}
    return len(rewards) < 2


def planned_rows(groups: Sequence[CreditGroup]) -> int:
    """Different responses of scored members: the rows that these groups make."""
    return len(
        {
            response_id
            for group in groups
            for member in group.members
            if member.trained and member.reward is not None
            for response_id in member.response_ids
        }
    )
