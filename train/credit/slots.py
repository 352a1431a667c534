"""Slots of the credit: estimators and selectors, and the state that techniques keep.

A technique is a class with settings as keyword arguments, or a ready object. What it
remembers between steps goes through `state` and `load` into every checkpoint; a
technique that remembers nothing inherits both.

Shapes: G members of a group, C tokens of a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from train.credit.groups import TokenValues
from train.credit.scored import ScoredGroup

MemberCredit = float | TokenValues
"""One advantage for all replies of a member, or one a token (C,) by response id."""
Estimator = Callable[[ScoredGroup], Sequence[MemberCredit]]
"""Gives (G,) advantages. Groups whose rewards are all alike are not shown to it, unless
it has a true attribute `sees_flat`. With a true `needs_teacher` the prompts of a teacher
are noted, and `taught_logps` tells what it thinks of the tokens.
"""


@runtime_checkable
class Stateful(Protocol):
    """Keeps something between steps."""

    def state(self) -> Mapping[str, Any]:
        """Return all that is kept, as values that JSON can hold."""
        ...

    def load(self, state: Any, /) -> None:
        """Take over what `state` returned."""
        ...


class Stateless:
    """Keeps nothing between steps."""

    def state(self) -> Mapping[str, Any]:
        """Return {}."""
        return {}

    def load(self, state: Any, /) -> None:
        """Take over nothing."""


class Selector(Stateless):
    """Chooses what is learned from; as it stands, everything."""

    refills = False
    """Whether groups that are not kept are replaced by others, as far as there are some;
    the mean then stays over the planned number of rows.
    """

    def members(self, group: ScoredGroup, advantages_G: Sequence[float], /) -> Sequence[int]:
        """Return the places of the members of a group that are learned from."""
        del group
        return range(len(advantages_G))

    def keeps(self, group: ScoredGroup, *, flat: bool) -> bool:
        """Tell whether a group is learned from at all; `flat` is whether its rewards are alike."""
        del group, flat
        return True


class Chained(Selector):
    """Several selectors, one after the other."""

    def __init__(self, parts: Sequence[Selector]) -> None:
        self.parts = tuple(parts)
        self.refills = any(part.refills for part in parts)

    def members(self, group: ScoredGroup, advantages_G: Sequence[float], /) -> Sequence[int]:
        """Return the places that every selector chooses among those left by the one before.

        A selector sees the whole group, and the advantages of members left out as they are.
        """
        places: Sequence[int] = range(len(advantages_G))
        for part in self.parts:
            chosen = set(part.members(group, advantages_G))
            places = [place for place in places if place in chosen]
        return places

    def keeps(self, group: ScoredGroup, *, flat: bool) -> bool:
        """Tell whether all selectors keep the group."""
        return all(part.keeps(group, flat=flat) for part in self.parts)
