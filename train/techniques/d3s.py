"""Down-sampling by spread (D3S): of N runs learn from the K whose advantages vary most.

The subset of K values with the largest variance is always some of the lowest and the
rest from the highest, so the search looks at K + 1 candidates instead of all subsets.
Advantages are computed over all N first; the runs left out still stood in the
comparison.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import pvariance

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
