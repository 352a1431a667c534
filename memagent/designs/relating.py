"""What memory already holds about each fact: vector and keyword hits, and what the event graph links to them.

One embedding batch serves all facts of a chunk. Graph neighbours are one hop from the hits, or hang on a person or name the fact
mentions; each is shown with the relation that led to it, so a manager can find a contradiction that shares no word with the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memagent.core.answers import Hit, Query, Relevance
from memagent.core.records import Fact, NodeKind, Relation
from memagent.designs.base import Related, RelateSettings, SlotContext
from memagent.memory.bank import MemoryBank
from memagent.memory.consequences import entity_id, names_in
from memagent.memory.state import folded
from memagent.stores.adjacency import Path

_LINKS = frozenset(
    {
        Relation.SAME_AS,
        Relation.SUPERSEDES,
        Relation.BEFORE,
        Relation.AFTER,
        Relation.CAUSES,
        Relation.MOTIVATES,
        Relation.ENABLES,
        Relation.CONTRASTS,
        Relation.ELABORATES,
        Relation.PART_OF,
        Relation.RELATED,
    }
)


async def relate(facts: Sequence[Fact], ctx: SlotContext, settings: RelateSettings) -> tuple[Related, ...]:
    """Hits a fact, best first, then graph neighbours; at most `settings.cap` and `settings.graph_cap` distinct ones over the chunk."""
    found = await ctx.bank.search_many([Query(text=fact.text) for fact in facts], k=4 * settings.k)
    kept = [_fitting(fact, hits, settings) for fact, hits in zip(facts, found, strict=True)]
    shown = _shared_cap(kept, settings.cap)
    related: list[Related] = []
    room = settings.graph_cap if settings.graph else 0
    seen = {hit.id for hits in shown for hit in hits}
    for fact, hits in zip(facts, shown, strict=True):
        neighbours = _neighbours(ctx.bank, fact, hits, seen, room) if room else []
        room -= len(neighbours)
        seen.update(hit.id for hit in neighbours)
        related.append(Related(fact=fact, hits=(*hits, *neighbours)))
    return tuple(related)


def _fitting(fact: Fact, hits: Iterable[Hit], settings: RelateSettings) -> list[Hit]:
    whose = fact.subject or fact.speaker
    kept: list[Hit] = []
    for hit in hits:
        if hit.item is None or ("lexical" not in hit.why.arms and hit.why.arms.get("dense", 0.0) < settings.min_cosine):
            continue
        owner = hit.item.subject or hit.item.speaker
        if settings.same_subject and whose and owner and folded(owner) != folded(whose):
            continue
        kept.append(hit)
    return kept[: 2 * settings.k]


def _shared_cap(ranked: Sequence[Sequence[Hit]], cap: int) -> list[list[Hit]]:
    """Every fact's hits cut so that at most `cap` distinct items remain; facts take turns, best hits first."""
    kept: set[str] = set()
    for depth in range(max((len(hits) for hits in ranked), default=0)):
        for hits in ranked:
            if depth < len(hits) and len(kept) < cap:
                kept.add(hits[depth].id)
    return [[hit for hit in hits if hit.id in kept] for hits in ranked]


def _neighbours(bank: MemoryBank, fact: Fact, hits: Sequence[Hit], seen: set[str], room: int) -> list[Hit]:
    linked = bank.walk([hit.id for hit in hits], hops=1, relations=_LINKS)
    names = dict.fromkeys([*(name for name in (fact.subject,) if name), *names_in(fact.text)])
    named = bank.walk([entity_id(name) for name in names], hops=1, relations=frozenset({Relation.MENTIONS}))
    latest = sorted((graph_hit(bank, *step) for step in named), key=lambda hit: -_said(hit))
    found: dict[str, Hit] = {}
    for hit in [*(graph_hit(bank, *step) for step in linked), *latest]:
        if hit.kind in (NodeKind.ITEM, NodeKind.EVENT) and hit.id not in seen:
            found.setdefault(hit.id, hit)
    return list(found.values())[:room]


def _said(hit: Hit) -> float:
    moment = hit.item.said_at if hit.item is not None else hit.event.said_at if hit.event is not None else None
    return moment.timestamp() if moment is not None else float("-inf")


def graph_hit(bank: MemoryBank, node_id: str, path: Path) -> Hit:
    """A node reached by a walk as a hit, with its item when it stands for one; the score is 1 / (1 + distance)."""
    node = bank.state.graph.node(node_id)
    item = bank.state.items.get(node_id)
    kind = node.kind if node is not None else NodeKind.ITEM
    return Hit(
        id=node_id,
        kind=kind,
        score=1.0 / (1 + len(path)),
        item=item,
        event=node if item is None else None,
        why=Relevance(via=path),
    )
