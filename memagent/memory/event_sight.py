"""Which events of the graph may be shown: open ones that fit the filter and still tell what memory holds.

An event rests on turns, and so do the items made from those turns (`PART_OF` leads from item to event). When such an item is deleted, or
has since been rewritten on later turns, the event tells what no longer holds and stays out of sight; nothing is written for that, so an
older snapshot still shows it.
"""

from __future__ import annotations

from memagent.core.answers import Filter
from memagent.core.records import Event, MemoryItem, NodeKind, Relation
from memagent.memory.consequences import event_as_item
from memagent.memory.event_merge import open_events
from memagent.memory.state import BankState
from memagent.stores.memory_index import matches


def events_in_sight(state: BankState, where: Filter | None = None) -> dict[str, Event]:
    """Events that may be shown, by id, in the order of their ids."""
    events = (event for event in open_events(state.graph) if not outdated(state, event))
    return {event.id: event for event in events if where is None or where.empty or _fits(state, event, where)}


def outdated(state: BankState, event: Event) -> bool:
    """Whether an item made from the event's turns is deleted now, or says something else since."""
    for other, edge, leaving in state.graph.edges_of(event.id):
        item = None if leaving or edge.relation is not Relation.PART_OF else state.items.get(other)
        if item is not None and (not item.active or _rewritten(state, item, event)):
            return True
    return False


def items_out_of_sight(state: BankState, where: Filter) -> set[str]:
    """Ids of the graph's item and event nodes that may not be shown."""
    shown = events_in_sight(state, where)
    hidden: set[str] = set()
    for node in state.graph.all_nodes():
        item = state.items.get(node.id)
        if item is not None:
            visible = item.active and (where.empty or matches(item, where))
        else:
            visible = node.kind is not NodeKind.EVENT or node.id in shown
        if not visible:
            hidden.add(node.id)
    return hidden


def _rewritten(state: BankState, item: MemoryItem, event: Event) -> bool:
    first = state.versions(item.id)[0]
    later = set(item.source_turn_ids) - set(first.source_turn_ids)
    return item.version > 1 and item.text != first.text and not later & set(event.source_turn_ids)


def _fits(state: BankState, event: Event, where: Filter) -> bool:
    plain = event_as_item(state.graph, event)
    if plain is None:
        return False
    names = event.people or (None,)
    return any(matches(plain.model_copy(update={"subject": name, "speaker": name}), where) for name in names)
