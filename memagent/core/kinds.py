"""The closed vocabularies of the records: precisions of time, states, relations, nodes."""

from __future__ import annotations

from enum import StrEnum


class Granularity(StrEnum):
    """The precision of a span of time."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEKEND = "weekend"
    WEEK = "week"
    MONTH = "month"
    SEASON = "season"
    YEAR = "year"
    DECADE = "decade"
    RANGE = "range"


class ItemStatus(StrEnum):
    """The place of an item in the memory now."""

    ACTIVE = "active"
    DELETED = "deleted"


class Relation(StrEnum):
    """Kinds of edges of the event graph.

    Inverses are derived, so a walk can go both ways.
    """

    CAUSES = "causes"
    MOTIVATES = "motivates"
    ENABLES = "enables"
    FOLLOWS = "follows"
    BEFORE = "before"
    AFTER = "after"
    CONTRASTS = "contrasts"
    PART_OF = "part_of"
    PARALLEL = "parallel"
    ELABORATES = "elaborates"
    SAME_AS = "same_as"
    SUPERSEDES = "supersedes"
    CONTAINS = "contains"
    MENTIONS = "mentions"
    RELATED = "related"


class NodeKind(StrEnum):
    """The kind of record that a node of the event graph stands for."""

    ITEM = "item"
    EVENT = "event"
    ENTITY = "entity"
    TOPIC = "topic"
