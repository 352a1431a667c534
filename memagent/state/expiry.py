"""Which items have expired: a value that follows the clock without looking at every item at every read.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

_NOTHING: Mapping[str, datetime] = {}


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expired items of one state at a moment, and for how long that stays true."""

    of: Mapping[str, datetime]
    """When each item that ever expires does so."""
    ids: frozenset[str]
    """Those expired."""
    since: datetime | None = None
    until: datetime | None = None
    """The half-open stretch in which these and no others are expired; None is open."""

    def at(self, expiring: Mapping[str, datetime], now: datetime) -> Expiry:
        """The same at another moment or for other items; itself while nothing has changed."""
        if (
            expiring is self.of
            and (self.since is None or self.since <= now)
            and (self.until is None or now < self.until)
        ):
            return self
        ids = frozenset(item_id for item_id, moment in expiring.items() if moment <= now)
        return Expiry(
            of=expiring,
            ids=ids,
            since=max((moment for moment in expiring.values() if moment <= now), default=None),
            until=min((moment for moment in expiring.values() if moment > now), default=None),
        )


NEVER_LOOKED = Expiry(of=_NOTHING, ids=frozenset())
"""What a bank starts from."""
