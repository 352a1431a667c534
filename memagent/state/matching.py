"""Filters applied to single items: the keys an item is filed under, and whether it passes."""

from __future__ import annotations

from typing import Final

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem

LISTED: Final = ("speakers", "subjects", "kinds", "session_ids", "tags")
"""The fields of `Filter` that list values."""


def filter_keys(item: MemoryItem) -> list[tuple[str, str]]:
    """Return the (field of `Filter`, value) pairs that an item is filed under."""
    keys = [("kinds", item.kind)]
    if item.speaker:
        keys.append(("speakers", item.speaker))
    if item.subject:
        keys.append(("subjects", item.subject))
    if item.session_id:
        keys.append(("session_ids", item.session_id))
    keys.extend(("tags", tag) for tag in item.tags)
    return keys


def matches(item: MemoryItem, where: Filter) -> bool:
    """Tell whether an item passes a filter."""
    keys = filter_keys(item)
    for name in LISTED:
        allowed: frozenset[str] = getattr(where, name)
        if allowed and not any(field == name and value in allowed for field, value in keys):
            return False
    if where.ids and item.id not in where.ids:
        return False
    if where.valid is not None and (item.valid is None or not item.valid.overlaps(where.valid)):
        return False
    return where.said is None or (item.said_at is not None and where.said.contains(item.said_at))
