"""Visibility of events: open ones that fit the filter and still tell what memory holds.

An event rests on turns, and so do the items made from those turns (`PART_OF` leads from
item to event). When such an item is deleted, or has since been rewritten on later
turns, the event tells what no longer holds and stays out of sight; nothing is written
for that, so an older snapshot still shows it. An item whose time to live is over counts
as deleted; which those are is asked of the bank (`bank.expired`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property

from memagent.core.answers import Filter
from memagent.core.records import Event, MemoryItem, NodeKind, Relation
from memagent.events.merge import is_open_event, open_events
from memagent.state.adjacency import event_as_item
from memagent.state.fold import BankState
from memagent.state.matching import matches

_NONE: frozenset[str] = frozenset()


def events_in_sight(
    state: BankState, where: Filter | None = None, *, expired: Container[str] = _NONE
) -> dict[str, Event]:
    """Return the events that may be shown, by id, in the order of their ids."""
    return {
        event.id: event
        for event in open_events(state.graph)
        if not outdated(state, event, expired=expired)
        and (where is None or where.empty or _fits(state, event, where))
    }


def events_behind(
    state: BankState, after: str | None, *, expired: Container[str] = _NONE
) -> Iterator[Event]:
    """Yield the events that may be shown behind an id, in the order of their ids.

    Only those that are asked for are looked at.
    """
    graph = state.graph
    for node_id in sorted(key for key in graph.nodes if after is None or key > after):
        node = graph.node(node_id)
        if node is not None and is_open_event(node) and not outdated(state, node, expired=expired):
            yield node


def outdated(state: BankState, event: Event, *, expired: Container[str] = _NONE) -> bool:
    """Tell whether an item made from the event's turns is gone or says something else now."""
    items = (
        state.items.get(other)
        for other, edge, leaving in state.graph.edges_of(event.id)
        if not leaving and edge.relation is Relation.PART_OF
    )
    return any(
        not item.active or item.id in expired or _rewritten(state, item, event)
        for item in items
        if item is not None
    )


@dataclass(frozen=True)
class OutOfSight:
    """The graph's item and event nodes that may not be shown, as a container of ids.

    It looks only at the nodes it is asked about.
    """

    state: BankState
    where: Filter
    expired: Container[str] = _NONE

    @cached_property
    def _where(self) -> Filter | None:
        return None if self.where.empty else self.where

    def __contains__(self, node_id: object) -> bool:
        state, where = self.state, self._where
        item = state.items.get(str(node_id))
        if item is not None:
            gone = not item.active or item.id in self.expired
            return gone or (where is not None and not matches(item, where))
        node = state.graph.node(str(node_id))
        if node is None or node.kind is not NodeKind.EVENT:
            return False
        if node.closed or not node.summary or outdated(state, node, expired=self.expired):
            return True
        return where is not None and not _fits(state, node, where)


def _rewritten(state: BankState, item: MemoryItem, event: Event) -> bool:
    first = state.versions(item.id)[0]
    later = set(item.source_turn_ids) - set(first.source_turn_ids)
    return item.version > 1 and item.text != first.text and not later & set(event.source_turn_ids)


def _fits(state: BankState, event: Event, where: Filter) -> bool:
    plain = event_as_item(state.graph, event)
    if plain is None:
        return False
    trust = state.trust_of(event.source_turn_ids)
    return any(
        matches(plain.model_copy(update={"subject": name, "speaker": name, "trust": trust}), where)
        for name in event.people or (None,)
    )
