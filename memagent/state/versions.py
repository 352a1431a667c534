"""How a statement was worded over time: its present wording, the ones it replaced, and
from when to when each held.

Pure. A wording holds from when it began (its valid time, else when it was said) until
the next one began; the oldest, when it names no time, has no known beginning, for what
somebody tells has mostly been so for a while. A statement that was taken out by the
turn that told another (`SUPERSEDES`) is an older wording of that other. What a user
deleted is nobody's older wording and never comes back here. The surprise: a wording
that was corrected, not outdated ("since 2019, not 2021"), may never have held at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from memagent.core.answers import Hit
from memagent.core.records import Event, MemoryItem, Relation, TimeSpan
from memagent.state.effects import version_node_id
from memagent.state.fold import BankState, folded

_MAX_OLDER = 4
"""Older wordings of one statement, newest first."""


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of a statement."""

    node_id: str
    """The item's or event's id; of an older version, its node in the event graph
    (`mem_...@1`).
    """
    record: MemoryItem | Event
    begins: datetime | None
    """From when it held; None when that is not known."""
    ends: datetime | None
    """When the next one began; None for the present wording, and when that is not known."""
    current: bool

    def held_in(self, span: TimeSpan) -> bool:
        """Whether it held at some moment of the span."""
        if self.begins is not None and self.ends is not None and self.ends <= self.begins:
            return False
        return (self.begins is None or span.end is None or self.begins < span.end) and (
            self.ends is None or span.start is None or span.start < self.ends
        )


def began(record: MemoryItem | Event) -> datetime | None:
    """When what a record tells began to hold: the start of its valid time, else when it was said."""
    return (
        record.valid.start
        if record.valid is not None and record.valid.start is not None
        else record.said_at
    )


def wordings(state: BankState, hit: Hit, *, now: datetime) -> list[Wording]:
    """The wordings of a hit's statement, the present one first, then older ones, latest
    first; items expired at `now` are left out.
    """
    present = hit.item or hit.event
    if present is None:
        return []
    chain = [(hit.id, present), *_older(state, hit.id, present, now, frozenset({hit.id}))]
    kept: list[tuple[str, MemoryItem | Event]] = []
    for node_id, record in chain:
        if not kept or _text(record) != _text(kept[-1][1]):
            kept.append((node_id, record))
    kept = kept[: _MAX_OLDER + 1]
    found: list[Wording] = []
    for at, (node_id, record) in enumerate(kept):
        timed = record.valid is not None and record.valid.start is not None
        first = at == len(kept) - 1
        found.append(
            Wording(
                node_id=node_id,
                record=record,
                begins=None if first and not timed else began(record),
                ends=None if at == 0 else began(kept[at - 1][1]),
                current=at == 0,
            )
        )
    return found


def _older(
    state: BankState, node_id: str, present: MemoryItem | Event, now: datetime, seen: frozenset[str]
) -> Iterator[tuple[str, MemoryItem | Event]]:
    """What a statement replaced, latest first: its own older versions, then items that
    were taken out for it and theirs.
    """
    if isinstance(present, MemoryItem):
        past = [
            one for one in state.versions(node_id) if one.version < present.version and one.active
        ]
        yield from ((version_node_id(node_id, one.version), one) for one in reversed(past))
    replaced = sorted(
        other
        for other, edge, leaving in state.graph.edges_of(node_id)
        if leaving and edge.relation is Relation.SUPERSEDES and other not in seen
    )
    items = [item for other in replaced if (item := _last_active(state, other, now)) is not None]
    for item in sorted(items, key=lambda one: (one.said_at is not None, one.said_at), reverse=True):
        yield version_node_id(item.id, item.version), item
        yield from _older(state, item.id, item, now, seen | {item.id})
    if isinstance(present, Event):
        events = [
            event
            for other in replaced
            if other.startswith(f"{node_id}@") and (event := state.graph.node(other))
        ]
        yield from ((event.id, event) for event in reversed(events))


def _last_active(state: BankState, item_id: str, now: datetime) -> MemoryItem | None:
    """The last version of a deleted item in which it was part of memory; None for
    unknown, active and expired ones.
    """
    item = state.items.get(item_id)
    if item is None or item.active or item.expired(now):
        return None
    return next((one for one in reversed(state.versions(item_id)) if one.active), None)


def _text(record: MemoryItem | Event) -> str:
    return folded(record.text if isinstance(record, MemoryItem) else record.summary)


# -- statements that do not stand side by side -----------------------------------------


@dataclass(frozen=True, slots=True)
class Clash:
    """Two hits that cannot both be the answer; `earlier` was said first."""

    earlier: Hit
    later: Hit
    replaced: bool
    """Whether memory let the later one take the place of the earlier; otherwise the two
    contradict each other.
    """


def clashes(hits: Iterable[Hit], state: BankState) -> list[Clash]:
    """Pairs among the hits of which one replaced the other (`SUPERSEDES`) or that
    contradict each other (`CONTRASTS`), in their order.
    """
    shown = {hit.id: hit for hit in hits}
    found: dict[tuple[str, str], Clash] = {}
    for hit in shown.values():
        for other, relation in sorted(_linked(state, hit.id)):
            if other in shown:
                replaced = relation is Relation.SUPERSEDES
                pair = (shown[other], hit) if replaced else sorted((hit, shown[other]), key=_said)
                found.setdefault((pair[0].id, pair[1].id), Clash(pair[0], pair[1], replaced))
    return list(found.values())


def _linked(state: BankState, node_id: str) -> Iterator[tuple[str, Relation]]:
    """(node, relation) of what a node replaced or contradicts; a deleted item goes by
    its last active version's id.
    """
    for other, edge, leaving in state.graph.edges_of(node_id):
        if leaving and edge.relation in (Relation.SUPERSEDES, Relation.CONTRASTS):
            item = state.items.get(other)
            gone = item is not None and not item.active
            last = (
                next((one for one in reversed(state.versions(other)) if one.active), None)
                if gone
                else None
            )
            yield (
                (version_node_id(other, last.version) if last is not None else other),
                edge.relation,
            )


def _said(hit: Hit) -> tuple[float, str]:
    record = hit.item or hit.event
    moment = (record.said_at or began(record)) if record is not None else None
    return (moment.timestamp() if moment is not None else float("-inf"), hit.id)
