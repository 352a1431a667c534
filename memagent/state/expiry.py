"""The expired items of a state at a moment, without a look at each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, TypeVar

from memagent.state.fold import EMPTY_STATE, BankState

T = TypeVar("T")
_NEXT: Final = timedelta(microseconds=1)


class ExpiredIds(AbstractSet[str]):
    """Ids of the items of a state that have expired by a moment; a test takes O(1)."""

    __slots__ = ("_now", "_state")

    def __init__(self, state: BankState, now: datetime | None) -> None:
        self._state, self._now = state, now

    @classmethod
    def _from_iterable(cls, it: Iterable[T]) -> frozenset[T]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return frozenset(it)

    def __contains__(self, item_id: object) -> bool:
        if self._now is None or not isinstance(item_id, str):
            return False
        moment = self._state.expiring.get(item_id)
        return moment is not None and moment <= self._now

    def __len__(self) -> int:
        if self._now is None or not len(self._state.expiring):
            return 0
        return self._state.orders.by_expiry(self._state).rank((self._now + _NEXT, ""))

    def __iter__(self) -> Iterator[str]:
        now = self._now
        if now is None or not len(self._state.expiring):
            return iter(())
        ended = takewhile(lambda key: key[0] <= now, self._state.orders.by_expiry(self._state))
        return (item_id for _, item_id in ended)

    def __hash__(self) -> int:
        return self._hash()


@dataclass(frozen=True, slots=True)
class Expiry:
    """A look at the clock: which items of a state had expired by then."""

    state: BankState = EMPTY_STATE
    now: datetime | None = None
    """The moment of the look; None before the first."""

    @property
    def ids(self) -> ExpiredIds:
        """Ids of the expired items."""
        return ExpiredIds(self.state, self.now)

    def at(self, state: BankState, now: datetime) -> Expiry:
        """Return a look at another moment, or at a state that came of this one."""
        return self if state is self.state and now == self.now else Expiry(state, now)

    def since(self, before: Expiry) -> list[str]:
        """Return the items that expired since a look before, or are alive again by the clock.

        Items that changed between the two states may be missing; whoever asks has
        heard of those already.
        """
        if self.now is None or self.now == before.now or not len(self.state.expiring):
            return []
        first, last = self.now, self.now
        if before.now is not None:
            first, last = min(before.now, self.now), max(before.now, self.now)
        keys = self.state.orders.by_expiry(self.state)
        later = iter(keys) if before.now is None else keys.since((first + _NEXT, ""))
        return [item_id for _, item_id in takewhile(lambda key: key[0] <= last, later)]


NEVER_LOOKED = Expiry()
