"""Wordings of a statement over time: the present one, the ones it replaced, when each held.

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
from memagent.state.adjacency import version_node_id
from memagent.state.fold import BankState, folded

_MAX_OLDER = 4
"""Older wordings of one statement, newest first."""


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of a statement."""

    node_id: str
    """The item's or event's id; of an older version its node's id (`mem_...@1`)."""
    record: MemoryItem | Event
    begins: datetime | None
    """From when it held; None when that is not known."""
    ends: datetime | None
    """When the next one began; None for the present wording, and when that is not known."""
    current: bool

    def held_in(self, span: TimeSpan) -> bool:
        """Tell whether it held at some moment of the span."""
        if self.begins is not None and self.ends is not None and self.ends <= self.begins:
            return False
        return (self.begins is None or span.end is None or self.begins < span.end) and (
            self.ends is None or span.start is None or span.start < self.ends
        )


def began(record: MemoryItem | Event) -> datetime | None:
    """Return when a record began to hold: the start of its valid time, else when it was said."""
    return (record.valid.start if record.valid else None) or record.said_at


def wordings(state: BankState, hit: Hit, *, now: datetime) -> list[Wording]:
    """Return the wordings of a hit's statement, the present one first, then the latest.

    Items expired at `now` are left out.
    """
    present = hit.item or hit.event
    if present is None:
        return []
    chain = [(hit.id, present)]
    for node_id, record in _older(state, hit.id, present, now, frozenset({hit.id})):
        if _text(record) != _text(chain[-1][1]):
            chain.append((node_id, record))
    chain = chain[: _MAX_OLDER + 1]
    oldest = chain[-1][1]
    timed = oldest.valid is not None and oldest.valid.start is not None
    starts = [began(record) for _, record in chain]
    return [
        Wording(
            node_id=node_id,
            record=record,
            begins=None if record is oldest and not timed else start,
            ends=None if at == 0 else starts[at - 1],
            current=at == 0,
        )
        for at, ((node_id, record), start) in enumerate(zip(chain, starts, strict=True))
    ]


def _older(
    state: BankState, node_id: str, present: MemoryItem | Event, now: datetime, seen: frozenset[str]
) -> Iterator[tuple[str, MemoryItem | Event]]:
    """Yield what a statement replaced, latest first.

    First come its own older versions, then items that were taken out for it and theirs.
    """
    replaced = sorted(
        other
        for other, edge, leaving in state.graph.edges_of(node_id)
        if leaving and edge.relation is Relation.SUPERSEDES and other not in seen
    )
    if isinstance(present, MemoryItem):
        for past in reversed(state.versions(node_id)):
            if past.version < present.version and past.active:
                yield version_node_id(node_id, past.version), past
    gone = [item for other in replaced if (item := _last_active(state, other))]
    items = [item for item in gone if not item.expired(now)]
    for item in sorted(
        items, key=lambda item: (item.said_at is not None, item.said_at), reverse=True
    ):
        yield version_node_id(item.id, item.version), item
        yield from _older(state, item.id, item, now, seen | {item.id})
    if isinstance(present, Event):
        for other in reversed(replaced):
            if other.startswith(f"{node_id}@") and (event := state.graph.node(other)):
                yield event.id, event


def _last_active(state: BankState, item_id: str) -> MemoryItem | None:
    """Return the last version of a deleted item in which it was part of memory.

    None for unknown and active items.
    """
    item = state.items.get(item_id)
    if item is None or item.active:
        return None
    return next((past for past in reversed(state.versions(item_id)) if past.active), None)


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
    """Return the pairs of hits that cannot both be the answer, in their order.

    Either one replaced the other (`SUPERSEDES`) or the two contradict each other
    (`CONTRASTS`).
    """
    by_id = {hit.id: hit for hit in hits}
    pairs: dict[tuple[str, str], Clash] = {}
    for hit in by_id.values():
        for other, relation in sorted(_linked(state, hit.id)):
            if other in by_id:
                replaced = relation is Relation.SUPERSEDES
                pair = (by_id[other], hit) if replaced else sorted((hit, by_id[other]), key=_said)
                pairs.setdefault((pair[0].id, pair[1].id), Clash(pair[0], pair[1], replaced))
    return list(pairs.values())


def _linked(state: BankState, node_id: str) -> Iterator[tuple[str, Relation]]:
    """Yield (node, relation) of what a node replaced or contradicts.

    A deleted item goes by the id of its last active version.
    """
    for other, edge, leaving in state.graph.edges_of(node_id):
        if leaving and edge.relation in (Relation.SUPERSEDES, Relation.CONTRASTS):
            last = _last_active(state, other)
            yield version_node_id(other, last.version) if last else other, edge.relation


def _said(hit: Hit) -> tuple[float, str]:
    record = hit.item or hit.event
    moment = (record.said_at or began(record)) if record is not None else None
    return (moment.timestamp() if moment is not None else float("-inf"), hit.id)
