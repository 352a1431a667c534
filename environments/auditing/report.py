"""The report of an audit: measures, findings, rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from memagent.core.records import Record, Text

Measure = Literal[
    "duplicate",
    "contradiction",
    "orphan",
    "stale",
    "junk",
    "unsourced",
    "size",
    "m_fail",
    "m_fail_content",
]
"""The measures of an audit."""
MEASURES: Final[Mapping[Measure, str]] = {
    "duplicate": "items that repeat an earlier one",
    "contradiction": "items that exclude another one",
    "orphan": "items that cite a turn which is not stored",
    "stale": "items that were replaced, or whose time is over",
    "junk": "items that say nothing",
    "unsourced": "items that cite no turn (those added directly have none)",
    "size": "words of memory per word of dialogue",
    "m_fail": "gold evidence turns that no item cites",
    "m_fail_content": "gold evidence turns whose words no citing item holds",
}
"""Measures with their meaning, in the order shown."""


class Finding(Record):
    """One fault, with the items (or for M-Fail the turn) in question."""

    measure: Measure
    ids: tuple[str, ...]
    why: Text


class SessionGrowth(Record):
    """The part of the memory that one session left."""

    session_id: Text
    dialogue_tokens: int
    items: int
    """Active items whose latest version this session wrote."""
    tokens: int


class AuditReport(Record):
    """The figures of an audit. `rates` has None where there is nothing to divide by."""

    items: int
    """Active items."""
    memory_tokens: int
    """Words and signs of the active items."""
    sessions: int
    dialogue_tokens: int
    """Words and signs of the stored turns."""
    rates: dict[Measure, float | None]
    growth: tuple[SessionGrowth, ...] = ()
    """One entry a session, oldest first."""
    items_per_session: float | None = None
    tokens_per_session: float | None = None
    ops: dict[str, int] = {}
    """Ops by kind over the memory's whole history; empty when not given."""
    findings: tuple[Finding, ...] = ()

    def over(self, limits: Mapping[Measure, float]) -> dict[Measure, tuple[float, float]]:
        """Return (rate, limit) of every measure above its limit.

        A measure that could not be taken is above none.
        """
        return {
            name: (rate, limit)
            for name, limit in limits.items()
            if (rate := self.rates.get(name)) is not None and rate > limit
        }
