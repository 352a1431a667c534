"""The quality of a memory by itself: repeated, contradictory, unfounded, stale, empty items.

`audit` is pure: a snapshot in, an `AuditReport` out. Rates are shares of the active
items, so 0 is good; M-Fail is a share of gold evidence turns and needs an episode.
Without vectors only equal words count as duplicates. Every rate can be checked by its
findings, which name the items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from environments.auditing.measures import (
    AuditReport,
    Finding,
    contradictions,
    duplicates,
    growth,
    lost_evidence,
    orphans,
    shares,
    stale,
)
from environments.auditing.rules import Claim, claim_of, says_nothing
from environments.records import Episode
from environments.rewards import metrics
from memagent.core.records import MemoryItem
from memagent.core.snapshot import Commit, JournalRow, MemorySnapshot
from memagent.protocols import Embedder, Vector


@dataclass(frozen=True, kw_only=True)
class AuditRules:
    """The thresholds of an audit."""

    min_cosine: float = 0.95
    """From which cosine two items of one subject with the same numbers, names and
    negations say the same.
    """
    plan_grace: timedelta = timedelta(days=30)
    """Time that a plan may stay after its day."""
    cover_share: float = 0.5
    """Share of a gold turn's content words that an item must hold to keep what was said."""


class AuditMaterial(TypedDict, total=False):
    """Optional material of an audit."""

    vectors: Mapping[str, Vector] | None
    """Unit vectors (D,) by item id, for near duplicates; `item_vectors` makes them."""
    ops: Mapping[str, int] | None
    """Ops by kind: `op_mix`, or an `IngestReport.op_counts`."""
    episode: Episode | None
    """Gold evidence for M-Fail."""


def audit(
    memory: MemorySnapshot,
    *,
    now: datetime,
    claim: Callable[[MemoryItem], Claim | None] = claim_of,
    rules: AuditRules = AuditRules(),
    **material: Unpack[AuditMaterial],
) -> AuditReport:
    """Audit a memory as it stands at the moment `now`.

    `claim` reads what an item says of something that has one value at a time. Raises
    `EnvironmentFault` when the memory never heard the episode's evidence.
    """
    items = sorted((item for item in memory.items.values() if item.active), key=_age)
    turns = {turn.id: turn.said for session in memory.sessions.values() for turn in session.turns}
    names = {turn.speaker for session in memory.sessions.values() for turn in session.turns}
    findings = [
        *duplicates(items, material.get("vectors") or {}, rules.min_cosine),
        *contradictions(items, memory, claim),
        *orphans(items, turns),
        *stale(items, memory, now, rules.plan_grace),
        *(
            Finding(measure="junk", ids=(item.id,), why=item.text)
            for item in items
            if says_nothing(item.text, names=names)
        ),
        *(
            Finding(measure="unsourced", ids=(item.id,), why="it cites no turn")
            for item in items
            if not item.source_turn_ids
        ),
    ]
    sessions = growth(items, memory)
    memory_tokens = sum(metrics.token_count(item.text) for item in items)
    dialogue_tokens = sum(session.dialogue_tokens for session in sessions)
    rates = shares(findings, len(items))
    rates["size"] = memory_tokens / dialogue_tokens if dialogue_tokens else None
    if (episode := material.get("episode")) is not None:
        lost, failures = lost_evidence(episode, items, turns, rules.cover_share)
        findings += lost
        rates |= failures
    return AuditReport(
        items=len(items),
        memory_tokens=memory_tokens,
        sessions=len(memory.sessions),
        dialogue_tokens=dialogue_tokens,
        rates=rates,
        growth=sessions,
        items_per_session=len(items) / len(sessions) if sessions else None,
        tokens_per_session=memory_tokens / len(sessions) if sessions else None,
        ops=dict(material.get("ops") or {}),
        findings=tuple(findings),
    )


async def item_vectors(memory: MemorySnapshot, embedder: Embedder) -> dict[str, Vector]:
    """Return unit vectors (D,) of the active items by id. Raises `EmbeddingError`."""
    items = [item for item in memory.items.values() if item.active]
    rows = await embedder.embed([item.text for item in items]) if items else ()
    return {item.id: row for item, row in zip(items, rows, strict=True)}


async def op_mix(rows: AsyncIterable[JournalRow]) -> dict[str, int]:
    """Count the ops of a journal by kind, and the rejected ones."""
    counts = Counter({"ADD": 0, "UPDATE": 0, "DELETE": 0, "NOOP": 0, "REJECTED": 0})
    async for row in rows:
        if isinstance(row.entry, Commit):
            counts.update(applied.op.op for applied in row.entry.ops)
            counts["REJECTED"] += len(row.entry.rejected)
    return dict(counts)


def _age(item: MemoryItem) -> tuple[float, str]:
    return (item.said_at.timestamp() if item.said_at else 0.0, item.id)
