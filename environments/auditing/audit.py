"""How good a memory is by itself: what stands in it twice, what excludes what, what
rests on nothing, what is out of date, what is empty.

`audit` is pure: a snapshot in, an `AuditReport` out. Rates are shares of the active
items, so 0 is good; M-Fail is a share of gold evidence turns and is there only when an
episode is given. Vectors and op counts are handed in: without vectors only equal words
count as duplicates. Every rate can be checked by its findings, which name the items.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import numpy as np

from environments.auditing.rules import (
    Claim,
    apart,
    claim_of,
    exact_words,
    exclude,
    outlived,
    owner_of,
    plain,
    says_nothing,
)
from environments.errors import EnvironmentFault
from environments.records import Episode
from environments.rewards import metrics
from memagent.core.records import MemoryItem, Record, Relation, Text
from memagent.core.snapshot import Commit, JournalRow, MemorySnapshot
from memagent.protocols import Embedder, Vector

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
"""What an audit measures."""
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
"""Measures and what they are, in the order shown."""
_ROWS: Final = 512
"""Rows of the cosine matrix computed at once."""


@dataclass(frozen=True, kw_only=True)
class AuditRules:
    """Where the lines are drawn."""

    min_cosine: float = 0.95
    """From which cosine two items of one subject with the same numbers, names and
    negations say the same.
    """
    plan_grace: timedelta = timedelta(days=30)
    """How long a plan may stay after its day."""
    cover_share: float = 0.5
    """Share of a gold turn's content words that an item must hold to keep what was said."""


class Finding(Record):
    """One thing found, with the items (or for M-Fail the turn) in question."""

    measure: Measure
    ids: tuple[str, ...]
    why: Text


class SessionGrowth(Record):
    """What one session left in memory."""

    session_id: Text
    dialogue_tokens: int
    items: int
    """Active items whose latest version this session wrote."""
    tokens: int


class AuditReport(Record):
    """What an audit found. `rates` has None where there is nothing to divide by."""

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
        """(rate, limit) of every measure above its limit.

        A measure that could not be taken is above none.
        """
        found: dict[Measure, tuple[float, float]] = {}
        for name, limit in limits.items():
            rate = self.rates.get(name)
            if rate is not None and rate > limit:
                found[name] = (rate, limit)
        return found


def audit(
    memory: MemorySnapshot,
    *,
    now: datetime,
    vectors: Mapping[str, Vector] | None = None,
    ops: Mapping[str, int] | None = None,
    episode: Episode | None = None,
    claim: Callable[[MemoryItem], Claim | None] = claim_of,
    rules: AuditRules = AuditRules(),
) -> AuditReport:
    """Audit a memory as it stands at the moment `now`.

    `vectors` are unit vectors (D,) by item id, for near duplicates (`item_vectors`
    makes them); `ops` counts ops by kind (`op_mix`, or an `IngestReport.op_counts`);
    `episode` gives gold evidence for M-Fail; `claim` reads what an item says of
    something that has one value at a time. Raises `EnvironmentFault` when the episode's
    evidence was never heard by this memory.
    """
    items = sorted((item for item in memory.items.values() if item.active), key=_age)
    turns = {turn.id: turn.said for session in memory.sessions.values() for turn in session.turns}
    names = {turn.speaker for session in memory.sessions.values() for turn in session.turns}
    findings = [
        *_duplicates(items, vectors or {}, rules.min_cosine),
        *_contradictions(items, memory, claim),
        *_orphans(items, turns),
        *_stale(items, memory, now, rules.plan_grace),
        *(
            Finding(measure="junk", ids=(one.id,), why=one.text)
            for one in items
            if says_nothing(one.text, names=names)
        ),
        *(
            Finding(measure="unsourced", ids=(one.id,), why="it cites no turn")
            for one in items
            if not one.source_turn_ids
        ),
    ]
    growth = _growth(items, memory)
    memory_tokens = sum(metrics.token_count(item.text) for item in items)
    dialogue_tokens = sum(one.dialogue_tokens for one in growth)
    rates = _shares(findings, len(items))
    rates["size"] = memory_tokens / dialogue_tokens if dialogue_tokens else None
    if episode is not None:
        lost, failed = _evidence(episode, items, turns, rules.cover_share)
        findings += lost
        rates |= failed
    return AuditReport(
        items=len(items),
        memory_tokens=memory_tokens,
        sessions=len(memory.sessions),
        dialogue_tokens=dialogue_tokens,
        rates=rates,
        growth=growth,
        items_per_session=len(items) / len(growth) if growth else None,
        tokens_per_session=memory_tokens / len(growth) if growth else None,
        ops=dict(ops or {}),
        findings=tuple(findings),
    )


async def item_vectors(memory: MemorySnapshot, embedder: Embedder) -> dict[str, Vector]:
    """Unit vectors (D,) of the active items by id. Raises `EmbeddingError`."""
    items = [item for item in memory.items.values() if item.active]
    rows = await embedder.embed([item.text for item in items]) if items else ()
    return {item.id: row for item, row in zip(items, rows, strict=True)}


async def op_mix(rows: AsyncIterable[JournalRow]) -> dict[str, int]:
    """Ops of a journal by kind, and how many were rejected."""
    counts = Counter({"ADD": 0, "UPDATE": 0, "DELETE": 0, "NOOP": 0, "REJECTED": 0})
    async for row in rows:
        if isinstance(row.entry, Commit):
            counts.update(applied.op.op for applied in row.entry.ops)
            counts["REJECTED"] += len(row.entry.rejected)
    return dict(counts)


# -- the measures ----------------------------------------------------------------------


def _duplicates(
    items: Sequence[MemoryItem], vectors: Mapping[str, Vector], min_cosine: float
) -> list[Finding]:
    """Items that repeat an earlier one of the same owner, each once, beside the first
    that it repeats.
    """
    by_owner: dict[str, list[MemoryItem]] = defaultdict(list)
    for item in items:
        by_owner[owner_of(item)].append(item)
    found: list[Finding] = []
    for mine in by_owner.values():
        words = [plain(item.text) for item in mine]
        exact = [exact_words(item.text) for item in mine]
        first: dict[int, tuple[int, str]] = {}
        seen: dict[str, list[int]] = defaultdict(list)
        for place, text in enumerate(words):
            earlier = next(
                (one for one in seen[text] if text and not apart(mine[one], mine[place])), None
            )
            if earlier is not None:
                first[place] = earlier, "the same words"
            seen[text].append(place)
        for place, earlier, cosine in _near(mine, vectors, min_cosine):
            if (
                place not in first
                and exact[place] == exact[earlier]
                and not apart(mine[place], mine[earlier])
            ):
                first[place] = earlier, f"nearly the same words (cosine {cosine:.3f})"
        found += [
            Finding(
                measure="duplicate",
                ids=(mine[place].id, mine[earlier].id),
                why=f"{why}: {mine[place].text}",
            )
            for place, (earlier, why) in sorted(first.items())
        ]
    return found


def _near(
    items: Sequence[MemoryItem], vectors: Mapping[str, Vector], min_cosine: float
) -> list[tuple[int, int, float]]:
    """(place, earlier place, cosine) of all pairs at or above the cosine, in order of place."""
    places = [place for place, item in enumerate(items) if item.id in vectors]
    if len(places) < 2:
        return []
    matrix = np.stack([vectors[items[place].id] for place in places]).astype(np.float32)  # (N, D)
    found: list[tuple[int, int, float]] = []
    for start in range(0, len(places), _ROWS):
        cosines = matrix[start : start + _ROWS] @ matrix.T  # (rows, N)
        rows, columns = np.nonzero(cosines >= min_cosine)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            if column < start + row:
                found.append((places[start + row], places[column], float(cosines[row, column])))
    return found


def _contradictions(
    items: Sequence[MemoryItem], memory: MemorySnapshot, claim: Callable[[MemoryItem], Claim | None]
) -> list[Finding]:
    """Pairs of active items that exclude each other: by an edge, or by claims."""
    active = {item.id for item in items}
    pairs: dict[frozenset[str], str] = {}
    for edge in memory.graph.all_edges():
        if edge.source in active and edge.target in active and edge.source != edge.target:
            if edge.relation in (Relation.CONTRASTS, Relation.SUPERSEDES):
                pairs[frozenset((edge.source, edge.target))] = f"linked by {edge.relation.value}"
            elif edge.relation is Relation.RELATED and edge.label.casefold().startswith(
                "contradict"
            ):
                pairs[frozenset((edge.source, edge.target))] = f"linked by {edge.label}"
    groups: dict[tuple[str, str], list[tuple[str, Claim]]] = defaultdict(list)
    for item in items:
        if (made := claim(item)) is not None:
            groups[made.about, made.phrase].append((item.id, made))
    for (about, phrase), made in groups.items():
        for place, (item_id, one) in enumerate(made):
            for other_id, other in made[:place]:
                if exclude(one, other):
                    why = f"{about} {phrase}: {other.value!r} and {one.value!r}"
                    pairs.setdefault(frozenset((item_id, other_id)), why)
    return [
        Finding(measure="contradiction", ids=tuple(sorted(pair)), why=why)
        for pair, why in pairs.items()
    ]


def _orphans(items: Sequence[MemoryItem], turns: Mapping[str, str]) -> list[Finding]:
    lost = ((item, [one for one in item.source_turn_ids if one not in turns]) for item in items)
    return [
        Finding(measure="orphan", ids=(item.id,), why=f"not stored: {', '.join(missing)}")
        for item, missing in lost
        if missing
    ]


def _stale(
    items: Sequence[MemoryItem], memory: MemorySnapshot, now: datetime, plan_grace: timedelta
) -> list[Finding]:
    active = {item.id for item in items}
    replaced = {
        edge.target: edge.source
        for edge in memory.graph.all_edges()
        if edge.relation is Relation.SUPERSEDES and edge.source in active and edge.target in active
    }
    found: list[Finding] = []
    for item in items:
        if item.id in replaced:
            found.append(
                Finding(
                    measure="stale",
                    ids=(item.id, replaced[item.id]),
                    why="another item replaced it",
                )
            )
        elif why := outlived(item, now=now, plan_grace=plan_grace):
            found.append(Finding(measure="stale", ids=(item.id,), why=why))
    return found


def _growth(items: Sequence[MemoryItem], memory: MemorySnapshot) -> tuple[SessionGrowth, ...]:
    written: dict[str, list[MemoryItem]] = defaultdict(list)
    for item in items:
        written[item.session_id or ""].append(item)
    ordered = sorted(
        memory.sessions.values(), key=lambda one: (one.at.timestamp() if one.at else 0.0, one.id)
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


def _shares(findings: Sequence[Finding], items: int) -> dict[Measure, float | None]:
    """Share of the items each measure found something about.

    Of a duplicate or a replaced item only the first of the ids counts.
    """
    touched: dict[str, set[str]] = defaultdict(set)
    for one in findings:
        touched[one.measure].update(one.ids if one.measure == "contradiction" else one.ids[:1])
    names: tuple[Measure, ...] = (
        "duplicate",
        "contradiction",
        "orphan",
        "stale",
        "junk",
        "unsourced",
    )
    return {name: len(touched[name]) / items if items else None for name in names}


def _evidence(
    episode: Episode, items: Sequence[MemoryItem], turns: Mapping[str, str], share: float
) -> tuple[list[Finding], dict[Measure, float | None]]:
    """M-Fail by citation and by content over the evidence of all answerable probes, as
    in an evaluation's tables.
    """
    said = {turn.id: turn.said for turn in episode.turns}
    wanted = [
        turn_id
        for probe in episode.probes
        if not probe.unanswerable
        for turn_id in probe.evidence_turn_ids
    ]
    if wanted and not any(turn_id in turns for turn_id in wanted):
        raise EnvironmentFault(
            f"none of the evidence turns of episode {episode.id!r} is stored in this memory ({wanted[0]} and others); "
            "give the episode that it heard"
        )
    citing = metrics.items_by_turn(items)
    lost, uncovered = (
        metrics.m_fail(said, citing),
        metrics.m_fail_content(said, citing, share=share),
    )
    gone, bare = set(lost), set(uncovered)
    rates: dict[Measure, float | None] = {
        "m_fail": sum(one in gone for one in wanted) / len(wanted) if wanted else None,
        "m_fail_content": sum(one in bare for one in wanted) / len(wanted) if wanted else None,
    }
    distinct = dict.fromkeys(wanted)
    found = [
        Finding(measure="m_fail", ids=(one,), why=said[one]) for one in distinct if one in gone
    ]
    found += [
        Finding(measure="m_fail_content", ids=(one,), why=said[one])
        for one in distinct
        if one in bare - gone
    ]
    return found, rates


def _age(item: MemoryItem) -> tuple[float, str]:
    return (item.said_at.timestamp() if item.said_at else 0.0, item.id)
