"""What memory holds for a question or a fact: retrievers, and what bears on each fact.

Retrievers search the bank: the best hits, of each speaker, of a time.

`VersionedRetriever` adds older wordings of the same statements to another's hits.
The question's time decides. A question about now gets the present wordings alone. One
that names a time gets the wording that held then, before the present one; one about
earlier times gets the older wordings first; any other gets them after the present one.
Each added hit names the hit that replaced it (`why.via`), and its id is that of the
version (`mem_...@1`), so an answer can cite exactly what it rests on. What was taken out
by the turn that told another is not shown to a question in the present tense ("How many
dogs does Ana have?"): what a manager deletes is gone from the present.

`relate` finds the memories that bear on each fact: vector and keyword hits, and their
graph neighbours. One embedding batch serves all facts of a chunk. Graph neighbours are
one hop from the hits, or hang on a person or name the fact mentions; each is shown with
the relation that led to it, so a manager can find a contradiction that shares no word
with the fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest

from memagent.core.answers import Hit, Query, Question, Relevance
from memagent.core.long_work import Slices
from memagent.core.records import Fact, MemoryItem, NodeKind, Relation, TimeSpan
from memagent.designs.base import (
    Prompt,
    Related,
    RelateSettings,
    Retriever,
    SlotContext,
    prompts_of,
)
from memagent.memory.bank import MemoryBank
from memagent.memory.question import Period, read_question
from memagent.search.fusion import Candidate, hits_of, item_hit
from memagent.search.pipeline import asked_times, narrowed_to
from memagent.state.adjacency import Path
from memagent.state.effects import entity_id, names_in, tokenize
from memagent.state.fold import BankState, folded
from memagent.state.validation import matches
from memagent.state.versions import Wording, wordings

TIME_WEIGHT = 0.25
"""Weight of a hit found only by its time, beside a hit of the plain search."""
# What asks for somebody's work without a word for it.
_LIVELIHOOD = re.compile(r"\bfor\s+a\s+living\b|\bberuflich\b|\b[mts]e\s+dedic(?:o|as?)\b", re.I)


@dataclass(frozen=True, kw_only=True)
class HybridRetriever:
    """Searches the question's own words, by meaning and by keyword."""

    k: int | None = None
    """Hits; None for as many as the question asks for."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k hits, best first."""
        return await ctx.bank.search(query_for(question), k=self.k or question.k)


@dataclass(frozen=True, kw_only=True)
class SpeakerRetriever:
    """Finds as many hits of each speaker, so that nobody's memories crowd out another's."""

    per_speaker: int = 30
    speakers: int = 2
    """Most speakers searched: those of the best hits. Items without a speaker count as one
    more.
    """
    others: int | None = None
    """Most hits of each speaker whom the question does not name, where it names just one;
    None for as many as of the one it names.
    """

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return the hits of all speakers by score, ties by id."""
        query = query_for(question)
        pool = await ctx.bank.search(query, k=self.per_speaker * (self.speakers + 1))
        names = dict.fromkeys(hit.item.speaker for hit in pool if hit.item is not None)
        speakers = [name for name in names if name is not None][: self.speakers]
        queries = [
            query.model_copy(
                update={"where": question.where.model_copy(update={"speakers": frozenset({name})})}
            )
            for name in speakers
        ]
        found = await ctx.bank.search_many(queries, k=self.per_speaker)
        asked = set(tokenize(question.text))
        named = [name for name in speakers if not asked.isdisjoint(tokenize(name))]
        fewer = self.others if len(named) == 1 else None
        by_speaker = [
            hits if name in named else hits[:fewer]
            for name, hits in zip(speakers, found, strict=True)
        ]
        unsigned = [hit for hit in pool if hit.item is None or hit.item.speaker is None]
        return sorted(
            (hit for hits in (*by_speaker, unsigned[: self.per_speaker]) for hit in hits),
            key=lambda hit: (-hit.score, hit.id),
        )


@dataclass(frozen=True, kw_only=True)
class TimedRetriever:
    """Finds the best hits overall; a question about "March 2022" also gets that time's best.

    A question with a recipe of its own is searched by that recipe alone, which itself
    says how to use a time.
    """

    k_of_time: int = 10
    """Most hits added for what happened at the time asked about, and as many for what was
    said then.
    """

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k hits and those of the time asked about, best first.

        A question with a recipe gets at most k in all.
        """
        query = query_for(question)
        hits = await ctx.bank.search(query, k=question.k)
        if question.recipe is not None:
            return hits
        times = asked_times(question.text, question.asked_at or ctx.clock())
        if not times:
            return hits
        then = queries_at(query, times[0].span)
        return with_timed(hits, await ctx.bank.search_many(then, k=self.k_of_time))


def plain_words(text: str) -> str:
    """Return a question's text as it is searched and read: what one does for a living is work."""
    return _LIVELIHOOD.sub("for work", text)


def query_for(question: Question) -> Query:
    """Return the search that a question asks for, with its recipe."""
    return Query(
        text=plain_words(question.text),
        where=question.where,
        recipe=question.recipe,
        asked_at=question.asked_at,
    )


def queries_at(query: Query, span: TimeSpan) -> list[Query]:
    """Narrow a search to a time, once for each axis that its filter leaves open."""
    return [query.model_copy(update={"where": where}) for where in narrowed_to(span, query.where)]


def with_timed(hits: Sequence[Hit], timed: Iterable[Sequence[Hit]]) -> list[Hit]:
    """Merge hits with those of a time, best first; one found only by its time weighs less."""
    merged = {hit.id: hit for hit in hits}
    for hit in (hit for found in timed for hit in found):
        merged.setdefault(hit.id, hit.model_copy(update={"score": TIME_WEIGHT * hit.score}))
    return sorted(merged.values(), key=lambda hit: (-hit.score, hit.id))


@dataclass(frozen=True, kw_only=True)
class VersionedRetriever:
    """Adds older wordings to the hits of `base`. Asks no model of its own."""

    base: Retriever
    more: int = 20

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of the base."""
        return prompts_of(self.base)

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return the base's hits in their order, each with its fitting older wordings."""
        hits = await self.base(question, ctx)
        now = question.asked_at or ctx.clock()
        view = read_question(question.text, asked_at=now)
        if view.period is Period.NOW:
            return hits
        present_only = view.present and view.span is None and view.period is Period.ANY
        known = {hit.id for hit in hits}
        merged: list[Hit] = []
        for hit in hits:
            statement = wordings(ctx.bank.state, hit, now=now)
            fitting = [
                wording
                for wording in statement[1:]
                if (view.span is None or wording.held_in(view.span))
                and wording.node_id not in known
                and not (present_only and wording.node_id.partition("@")[0] != hit.id)
                and (
                    not isinstance(wording.record, MemoryItem)
                    or matches(wording.record, question.where)
                )
            ]
            fitting = fitting[: self.more + len(hits) - len(known)]
            known.update(wording.node_id for wording in fitting)
            added = [_hit(wording, newer=hit, state=ctx.bank.state) for wording in fitting]
            outdated = view.span and statement and not statement[0].held_in(view.span)
            older_first = outdated or view.period is Period.THEN
            merged += [*added, hit] if older_first else [hit, *added]
        return merged


def _hit(wording: Wording, *, newer: Hit, state: BankState) -> Hit:
    item = wording.record if isinstance(wording.record, MemoryItem) else None
    reason = {
        "via": ((newer.id, Relation.SUPERSEDES, True),),
        "trust": state.trust_of(wording.record.source_turn_ids) if item is None else None,
    }
    return Hit(
        id=wording.node_id,
        kind=NodeKind.ITEM if item is not None else NodeKind.EVENT,
        score=newer.score,
        item=item,
        event=None if isinstance(wording.record, MemoryItem) else wording.record,
        why=newer.why.model_copy(update=reason),
    )


# -- what bears on a fact ----------------------------------------------------------------


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
    ranks = zip_longest(*ranked)
    ids = dict.fromkeys(near.item.id for rank in ranks for near in rank if near is not None)
    return set(islice(ids, cap))


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
