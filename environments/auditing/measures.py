"""The measures of an audit: their names and records, then the functions that take them.

A report (`AuditReport`) holds findings and rates. The functions are pure; most go from
items to findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import numpy as np

from environments.auditing.rules import (
    Claim,
    apart,
    exact_words,
    exclude,
    outlived,
    owner_of,
    plain,
)
from environments.errors import EnvironmentFault
from environments.records import Episode
from environments.rewards import metrics
from memagent.core.records import EventEdge, MemoryItem, Record, Relation, Text
from memagent.core.snapshot import MemorySnapshot
from memagent.protocols import Vector

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


_ROWS: Final = 512
"""Rows of the cosine matrix computed at once."""


def duplicates(
    items: Sequence[MemoryItem], vectors: Mapping[str, Vector], min_cosine: float
) -> list[Finding]:
    """Return items that repeat an earlier one of the same owner.

    Each stands once, beside the first item that it repeats.
    """
    by_owner: dict[str, list[MemoryItem]] = defaultdict(list)
    for item in items:
        by_owner[owner_of(item)].append(item)
    findings: list[Finding] = []
    for owned in by_owner.values():
        exact = [exact_words(item.text) for item in owned]
        repeats = _same_words(owned)
        for place, earlier, cosine in _near(owned, vectors, min_cosine):
            if (
                place not in repeats
                and exact[place] == exact[earlier]
                and not apart(owned[place], owned[earlier])
            ):
                repeats[place] = earlier, f"nearly the same words (cosine {cosine:.3f})"
        findings += [
            Finding(
                measure="duplicate",
                ids=(owned[place].id, owned[earlier].id),
                why=f"{why}: {owned[place].text}",
            )
            for place, (earlier, why) in sorted(repeats.items())
        ]
    return findings


def _same_words(items: Sequence[MemoryItem]) -> dict[int, tuple[int, str]]:
    """Return the (earlier place, reason) of the places whose words stand earlier too."""
    repeats: dict[int, tuple[int, str]] = {}
    places: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        text = plain(item.text)
        alike = (other for other in places[text] if text and not apart(items[other], item))
        earlier = next(alike, None)
        if earlier is not None:
            repeats[place] = earlier, "the same words"
        places[text].append(place)
    return repeats


def _near(
    items: Sequence[MemoryItem], vectors: Mapping[str, Vector], min_cosine: float
) -> list[tuple[int, int, float]]:
    """Return (place, earlier place, cosine) of all pairs at or above the cosine.

    The pairs are in order of place.
    """
    places = [place for place, item in enumerate(items) if item.id in vectors]
    if len(places) < 2:
        return []
    matrix = np.stack([vectors[items[place].id] for place in places]).astype(np.float32)  # (N, D)
    pairs: list[tuple[int, int, float]] = []
    for start in range(0, len(places), _ROWS):
        cosines = matrix[start : start + _ROWS] @ matrix.T  # (rows, N)
        rows, columns = np.nonzero(cosines >= min_cosine)
        pairs += [
            (places[start + row], places[column], float(cosines[row, column]))
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
            if column < start + row
        ]
    return pairs


def contradictions(
    items: Sequence[MemoryItem], memory: MemorySnapshot, claim: Callable[[MemoryItem], Claim | None]
) -> list[Finding]:
    """Return pairs of active items that exclude each other: by an edge, or by claims."""
    active = {item.id for item in items}
    pairs = {
        frozenset((edge.source, edge.target)): f"linked by {link}"
        for edge in memory.graph.all_edges()
        if edge.source in active and edge.target in active and edge.source != edge.target
        if (link := _excluding_link(edge))
    }
    claims: dict[tuple[str, str], list[tuple[str, Claim]]] = defaultdict(list)
    for item in items:
        if (own := claim(item)) is not None:
            claims[own.about, own.phrase].append((item.id, own))
    for (about, phrase), group in claims.items():
        for place, (item_id, own) in enumerate(group):
            for other_id, other in group[:place]:
                if exclude(own, other):
                    why = f"{about} {phrase}: {other.value!r} and {own.value!r}"
                    pairs.setdefault(frozenset((item_id, other_id)), why)
    return [
        Finding(measure="contradiction", ids=tuple(sorted(pair)), why=why)
        for pair, why in pairs.items()
    ]


def _excluding_link(edge: EventEdge) -> str:
    """Return the name of an edge whose ends exclude each other, empty for other edges."""
    if edge.relation in (Relation.CONTRASTS, Relation.SUPERSEDES):
        return edge.relation.value
    contradicts = edge.label.casefold().startswith("contradict")
    return edge.label if edge.relation is Relation.RELATED and contradicts else ""


def orphans(items: Sequence[MemoryItem], turns: Mapping[str, str]) -> list[Finding]:
    """Return items that cite turns which are not stored."""
    return [
        Finding(measure="orphan", ids=(item.id,), why=f"not stored: {', '.join(missing)}")
        for item in items
        if (missing := [turn_id for turn_id in item.source_turn_ids if turn_id not in turns])
    ]


def stale(
    items: Sequence[MemoryItem], memory: MemorySnapshot, now: datetime, plan_grace: timedelta
) -> list[Finding]:
    """Return items that another one replaced, or whose time is over."""
    active = {item.id for item in items}
    replaced = {
        edge.target: edge.source
        for edge in memory.graph.all_edges()
        if edge.relation is Relation.SUPERSEDES and edge.source in active and edge.target in active
    }
    findings: list[Finding] = []
    for item in items:
        if item.id in replaced:
            ids, why = (item.id, replaced[item.id]), "another item replaced it"
        else:
            ids, why = (item.id,), outlived(item, now=now, plan_grace=plan_grace)
        if why:
            findings.append(Finding(measure="stale", ids=ids, why=why))
    return findings


def growth(items: Sequence[MemoryItem], memory: MemorySnapshot) -> tuple[SessionGrowth, ...]:
    """Return what each session left, oldest first."""
    written: dict[str, list[MemoryItem]] = defaultdict(list)
    for item in items:
        written[item.session_id or ""].append(item)
    ordered = sorted(
        memory.sessions.values(),
        key=lambda session: (session.at.timestamp() if session.at else 0.0, session.id),
    )
    return tuple(
        SessionGrowth(
            session_id=session.id,
            dialogue_tokens=sum(metrics.token_count(turn.said) for turn in session.turns),
            items=len(written[session.id]),
            tokens=sum(metrics.token_count(item.text) for item in written[session.id]),
        )
        for session in ordered
    )


def shares(findings: Sequence[Finding], items: int) -> dict[Measure, float | None]:
    """Return the share of the items that each measure has findings about.

    Of a duplicate or a replaced item only the first of the ids counts.
    """
    touched: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        ids = finding.ids if finding.measure == "contradiction" else finding.ids[:1]
        touched[finding.measure].update(ids)
    names: tuple[Measure, ...] = (
        "duplicate",
        "contradiction",
        "orphan",
        "stale",
        "junk",
        "unsourced",
    )
    return {name: len(touched[name]) / items if items else None for name in names}


def lost_evidence(
    episode: Episode, items: Sequence[MemoryItem], turns: Mapping[str, str], share: float
) -> tuple[list[Finding], dict[Measure, float | None]]:
    """Return M-Fail by citation and by content over the evidence of all answerable probes.

    Raises `EnvironmentFault` when none of the evidence is stored.
    """
    said = {turn.id: turn.said for turn in episode.turns}
    evidence = [
        turn_id
        for probe in episode.probes
        if not probe.unanswerable
        for turn_id in probe.evidence_turn_ids
    ]
    if evidence and not any(turn_id in turns for turn_id in evidence):
        raise EnvironmentFault(
            f"none of the evidence turns of episode {episode.id!r} is stored in this memory "
            f"({evidence[0]} and others); give the episode that it heard"
        )
    citing = metrics.items_by_turn(items)
    uncited = set(metrics.m_fail(said, citing))
    uncovered = set(metrics.m_fail_content(said, citing, share=share))
    rates: dict[Measure, float | None] = {
        "m_fail": _share_in(uncited, evidence),
        "m_fail_content": _share_in(uncovered, evidence),
    }
    kinds: tuple[tuple[Measure, set[str]], ...] = (
        ("m_fail", uncited),
        ("m_fail_content", uncovered - uncited),
    )
    findings = [
        Finding(measure=measure, ids=(turn_id,), why=said[turn_id])
        for measure, turn_ids in kinds
        for turn_id in dict.fromkeys(evidence)
        if turn_id in turn_ids
    ]
    return findings, rates


def _share_in(turn_ids: set[str], evidence: Sequence[str]) -> float | None:
    if not evidence:
        return None
    return sum(turn_id in turn_ids for turn_id in evidence) / len(evidence)
