"""Memories that bear on each fact: vector and keyword hits, and their graph neighbours.

One embedding batch serves all facts of a chunk. Graph neighbours are one hop from the
hits, or hang on a person or name the fact mentions; each is shown with the relation
that led to it, so a manager can find a contradiction that shares no word with the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from memagent.core.answers import Hit, Relevance
from memagent.core.long_work import Slices
from memagent.core.records import Fact, NodeKind, Relation
from memagent.designs.base import Related, RelateSettings, SlotContext
from memagent.memory.bank import MemoryBank
from memagent.search.fusion import Candidate, hits_of, item_hit
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


def linked_hits(related: Related) -> list[Hit]:
    """Return the hits of a fact that a relation of meaning led to, not a name or a date."""
    meant = _LINKS - {Relation.BEFORE, Relation.AFTER}
    return [
        hit
        for hit in related.hits
        if hit.why.via and all(relation in meant for _, relation, _ in hit.why.via)
    ]


async def relate(
    facts: Sequence[Fact], ctx: SlotContext, settings: RelateSettings
) -> tuple[Related, ...]:
    """Return each fact with its hits, best first, then graph neighbours.

    Over the chunk there are at most `settings.cap` distinct hits and
    `settings.graph_cap` neighbours.
    """
    nearest = await ctx.bank.most_similar([fact.text for fact in facts], k=4 * settings.k)
    slices = Slices()
    pairs = zip(facts, nearest, strict=True)
    fitting = [_fitting(fact, near, settings) async for fact, near in slices.over(pairs)]
    chosen = _shared_cap(fitting, settings.cap)
    shown = [
        hits_of([candidate for candidate in near if candidate.item.id in chosen])
        async for near in slices.over(fitting)
    ]
    if settings.recent:
        latest = _Latest(ctx.bank, settings.recent)
        for fact, hits in zip(facts, shown, strict=True):
            hits += latest.beside(fact, hits)
    neighbours = _Neighbours(
        bank=ctx.bank,
        room=settings.graph_cap if settings.graph else 0,
        seen={hit.id for hits in shown for hit in hits},
    )
    related = [
        Related(fact=fact, hits=(*hits, *neighbours.of(fact, hits)))
        async for fact, hits in slices.over(zip(facts, shown, strict=True))
    ]
    return tuple(related)


def _fitting(fact: Fact, near: Iterable[Candidate], settings: RelateSettings) -> list[Candidate]:
    """Return the first candidates that are close enough and tell of the fact's subject."""
    name = fact.subject or fact.speaker or ""
    subject, most = folded(name) if settings.same_subject else "", 2 * settings.k
    fitting: list[Candidate] = []
    for candidate in near:
        owner = candidate.item.subject or candidate.item.speaker
        close = candidate.arms.get("dense", 0.0) >= settings.min_cosine
        if (close or "lexical" in candidate.arms) and (
            not subject or not owner or owner == name or folded(owner) == subject
        ):
            fitting.append(candidate)
        if len(fitting) == most:
            break
    return fitting


def _shared_cap(ranked: Sequence[Sequence[Candidate]], cap: int) -> set[str]:
    """Return the ids of at most `cap` items that all facts' hits are cut to.

    Facts choose in rotation, best hits first.
    """
    chosen: set[str] = set()
    for depth in range(max((len(near) for near in ranked), default=0)):
        for near in ranked:
            if depth < len(near) and len(chosen) < cap:
                chosen.add(near[depth].item.id)
    return chosen


# Items that are looked at for the latest of a speaker.
_LOOKED_BACK = 200


class _Latest:
    """The latest items of each speaker, looked up once a chunk."""

    def __init__(self, bank: MemoryBank, most: int) -> None:
        self.bank, self.most = bank, most
        self.known: dict[str, list[Hit]] = {}

    def beside(self, fact: Fact, hits: Sequence[Hit]) -> list[Hit]:
        """Return the latest items of the fact's speaker that are not among its hits."""
        name = fact.speaker or ""
        if name and name not in self.known:
            state, expired, alike = self.bank.state, self.bank.expired, folded(name)
            keys = islice(reversed(state.orders.by("age", state)), _LOOKED_BACK)
            own = (
                item
                for item in (state.items[key[-1]] for key in keys)
                if (item.speaker == name or folded(item.speaker or "") == alike)
                and item.active
                and item.id not in expired
            )
            self.known[name] = [item_hit(item, 0.0, Relevance()) for item in islice(own, self.most)]
        seen = {hit.id for hit in hits}
        return [hit for hit in self.known.get(name, ()) if hit.id not in seen]


@dataclass(slots=True, kw_only=True)
class _Neighbours:
    """The graph neighbours that a chunk's facts may still show."""

    bank: MemoryBank
    room: int
    seen: set[str]
    by_names: dict[str, list[tuple[str, Path]]] = field(
        default_factory=dict[str, list[tuple[str, Path]]]
    )
    """Nodes that mention a fact's names, which the next fact may share."""

    def of(self, fact: Fact, hits: Sequence[Hit]) -> list[Hit]:
        """Take the unseen neighbours of a fact and its hits, while there is room."""
        if not self.room:
            return []
        linked = self.bank.state.graph.walk([hit.id for hit in hits], hops=1, relations=_LINKS)
        names = dict.fromkeys([*filter(None, [fact.subject]), *names_in(fact.text)])
        expired = self.bank.expired
        neighbours: list[Hit] = []
        for node_id, path in (*linked, *self._latest(list(names))):
            if not self.room:
                break
            if node_id in self.seen or node_id in expired:
                continue
            hit = graph_hit(self.bank, node_id, path)
            if hit.kind in (NodeKind.ITEM, NodeKind.EVENT):
                neighbours.append(hit)
                self.seen.add(node_id)
                self.room -= 1
        return neighbours

    def _latest(self, names: Sequence[str]) -> list[tuple[str, Path]]:
        key = "\n".join(names)
        if key not in self.by_names:
            entities = [entity_id(name) for name in names]
            steps = self.bank.state.graph.walk(
                entities, hops=1, relations=frozenset({Relation.MENTIONS})
            )
            self.by_names[key] = sorted(steps, key=lambda step: -self._said_at(step[0]))
        return self.by_names[key]

    def _said_at(self, node_id: str) -> float:
        state = self.bank.state
        record = state.items.get(node_id) or state.graph.node(node_id)
        return record.said_at.timestamp() if record and record.said_at else float("-inf")


def graph_hit(bank: MemoryBank, node_id: str, path: Path) -> Hit:
    """Return a node reached by a walk as a hit, with its item when it stands for one.

    The score is 1 / (1 + distance).
    """
    node = bank.state.graph.node(node_id)
    item = bank.state.items.get(node_id)
    score, why = 1.0 / (1 + len(path)), Relevance(via=path)
    if item is not None and (node is None or node.kind is NodeKind.ITEM):
        return item_hit(item, score, why)
    kind = node.kind if node is not None else NodeKind.ITEM
    if node is not None:
        why = why.model_copy(update={"trust": bank.state.trust_of(node.source_turn_ids)})
    return Hit(id=node_id, kind=kind, score=score, item=item, event=node, why=why)
