"""Filters applied to single items: the keys an item is filed under, and whether it passes."""

from __future__ import annotations

from typing import Final

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem, Trust

LISTED: Final = ("speakers", "subjects", "kinds", "session_ids", "tags")
"""The fields of `Filter` that list values."""
TRUST: Final = "trust"
"""What items are filed under beside these, for `min_trust`."""


def filter_keys(item: MemoryItem) -> list[tuple[str, str]]:
    """Return the (field of `Filter`, value) pairs that an item is filed under."""
    keys = [("kinds", item.kind), (TRUST, item.trust.value)]
    if item.speaker:
        keys.append(("speakers", item.speaker))
    if item.subject:
        keys.append(("subjects", item.subject))
    if item.session_id:
        keys.append(("session_ids", item.session_id))
    keys.extend(("tags", tag) for tag in item.tags)
    return keys


def allowed_values(where: Filter) -> dict[str, frozenset[str]]:
    """Return, for each name that a filter restricts, the values that pass."""
    allowed: dict[str, frozenset[str]] = {
        name: values for name in LISTED if (values := getattr(where, name))
    }
    if where.min_trust is not None:
        allowed[TRUST] = _AT_LEAST[where.min_trust]
    return allowed


_AT_LEAST: Final = {
    least: frozenset(level.value for level in Trust if level.rank <= least.rank) for least in Trust
}


def matches(item: MemoryItem, where: Filter) -> bool:
    """Tell whether an item passes a filter."""
    keys = filter_keys(item)
    for name, allowed in allowed_values(where).items():
        if not any(field == name and value in allowed for field, value in keys):
            return False
    if where.ids and item.id not in where.ids:
        return False
    if where.valid is not None and (item.valid is None or not item.valid.overlaps(where.valid)):
        return False
    return where.said is None or (item.said_at is not None and where.said.contains(item.said_at))
