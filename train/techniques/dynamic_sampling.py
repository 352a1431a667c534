"""Groups that teach nothing are replaced by others (DAPO's dynamic sampling).

A group whose members all earned the same has no gradient. It is left out, and another
session or question is run in its place as far as there are some. The mean stays over
the planned number of rows, so the learning rate stays what it was.
"""

from __future__ import annotations

from train.credit.groups import ScoredGroup, Selector


class DynamicSampling(Selector):
    """Keeps the groups whose rewards differ."""

    refills = True

    def keeps(self, group: ScoredGroup, *, flat: bool) -> bool:
        """Tell whether the rewards differ."""
        del group
        return not flat
