"""What memory already holds about each fact: vector and keyword hits, and what the
event graph links to them.

One embedding batch serves all facts of a chunk. Graph neighbours are one hop from the
hits, or hang on a person or name the fact mentions; each is shown with the relation
that led to it, so a manager can find a contradiction that shares no word with the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memagent.core.answers import Hit, Relevance
from memagent.core.records import Fact, NodeKind, Relation
from memagent.designs.base import Related, RelateSettings, SlotContext
from memagent.memory.bank import MemoryBank
from memagent.search.fusion import Candidate
from memagent.state.adjacency import Path
from memagent.state.effects import entity_id, names_in
from memagent.state.fold import folded

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

_MENTIONS = frozenset({Relation.MENTIONS})


async def relate(
    facts: Sequence[Fact], ctx: SlotContext, settings: RelateSettings
) -> tuple[Related, ...]:
    """Hits a fact, best first, then graph neighbours; at most `settings.cap` and
    `settings.graph_cap` distinct ones over the chunk.
    """
    found = await ctx.bank.most_similar([fact.text for fact in facts], k=4 * settings.k)
    kept = [_fitting(fact, near, settings) for fact, near in zip(facts, found, strict=True)]
    shown = _shared_cap(kept, settings.cap)
    related: list[Related] = []
    room = settings.graph_cap if settings.graph else 0
    seen = {hit.id for hits in shown for hit in hits}
    named: dict[str, list[tuple[str, Path]]] = {}
    for fact, hits in zip(facts, shown, strict=True):
        neighbours = _neighbours(ctx.bank, fact, hits, seen, room, named) if room else []
        room -= len(neighbours)
        seen.update(hit.id for hit in neighbours)
        related.append(Related(fact=fact, hits=(*hits, *neighbours)))
    return tuple(related)


def _fitting(fact: Fact, near: Iterable[Candidate], settings: RelateSettings) -> list[Candidate]:
    whose = folded(fact.subject or fact.speaker or "") if settings.same_subject else ""
    kept: list[Candidate] = []
    for one in near:
        if "lexical" not in one.arms and one.arms.get("dense", 0.0) < settings.min_cosine:
            continue
        owner = one.item.subject or one.item.speaker
        if whose and owner and folded(owner) != whose:
            continue
        kept.append(one)
        if len(kept) == 2 * settings.k:
            break
    return kept


def _shared_cap(ranked: Sequence[Sequence[Candidate]], cap: int) -> list[list[Hit]]:
    """Every fact's hits cut so that at most `cap` distinct items remain; facts take
    turns, best hits first.
    """
    kept: set[str] = set()
    for depth in range(max((len(near) for near in ranked), default=0)):
        for near in ranked:
            if depth < len(near) and len(kept) < cap:
                kept.add(near[depth].id)
    return [[one.hit() for one in near if one.id in kept] for near in ranked]


def _neighbours(
    bank: MemoryBank,
    fact: Fact,
    hits: Sequence[Hit],
    seen: set[str],
    room: int,
    named: dict[str, list[tuple[str, Path]]],
) -> list[Hit]:
    """At most `room` neighbours; `named` keeps what was found for a fact's names, which
    the next fact may share.
    """
    linked = bank.walk([hit.id for hit in hits], hops=1, relations=_LINKS)
    names = dict.fromkeys([*(name for name in (fact.subject,) if name), *names_in(fact.text)])
    expired = bank.expired
    found: dict[str, Hit] = {}
    for node_id, path in (*linked, *_latest(bank, list(names), named)):
        if len(found) == room:
            break
        if node_id in seen or node_id in found or node_id in expired:
            continue
        hit = graph_hit(bank, node_id, path)
        if hit.kind in (NodeKind.ITEM, NodeKind.EVENT):
            found[node_id] = hit
    return list(found.values())


def _latest(
    bank: MemoryBank, names: Sequence[str], known: dict[str, list[tuple[str, Path]]]
) -> list[tuple[str, Path]]:
    """What mentions the names, the latest first."""
    key = "\n".join(names)
    if key not in known:
        steps = bank.walk([entity_id(name) for name in names], hops=1, relations=_MENTIONS)
        known[key] = sorted(steps, key=lambda step: -_said(bank, step[0]))
    return known[key]


def _said(bank: MemoryBank, node_id: str) -> float:
    record = bank.state.items.get(node_id) or bank.state.graph.node(node_id)
    return (
        record.said_at.timestamp()
        if record is not None and record.said_at is not None
        else float("-inf")
    )


def graph_hit(bank: MemoryBank, node_id: str, path: Path) -> Hit:
    """A node reached by a walk as a hit, with its item when it stands for one; the
    score is 1 / (1 + distance).
    """
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
