"""Retrievers over the bank's hybrid search: the best hits, of each speaker, of a time.

A retriever that adds older wordings of the same statements to another's hits.

The question's time decides. A question about now gets the present wordings alone. One
that names a time gets the wording that held then, before the present one; one about
earlier times gets the older wordings first; any other gets them after the present one.
Each added hit names the hit that replaced it (`why.via`), and its id is that of the
version (`mem_...@1`), so an answer can cite exactly what it rests on. What was taken out
by the turn that told another is not shown to a question in the present tense ("How many
dogs does Ana have?"): what a manager deletes is gone from the present.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memagent.core.answers import Hit, Query, Question
from memagent.core.records import MemoryItem, NodeKind, Relation, TimeSpan
from memagent.designs.base import Prompt, Retriever, SlotContext, prompts_of
from memagent.memory.question import Period, read_question
from memagent.search.pipeline import asked_times, narrowed_to
from memagent.state.effects import tokenize
from memagent.state.fold import BankState
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
        merged = {hit.id: hit for hit in hits}
        then = queries_at(query, times[0].span)
        for timed in await ctx.bank.search_many(then, k=self.k_of_time):
            for hit in timed:
                merged.setdefault(hit.id, weighted(hit))
        return sorted(merged.values(), key=lambda hit: (-hit.score, hit.id))


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


def weighted(hit: Hit) -> Hit:
    """Lower the score of a hit that was found only by its time."""
    return hit.model_copy(update={"score": TIME_WEIGHT * hit.score})


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
                and _matches(wording, question)
            ]
            fitting = fitting[: self.more + len(hits) - len(known)]
            known.update(wording.node_id for wording in fitting)
            added = [_hit(wording, newer=hit, state=ctx.bank.state) for wording in fitting]
            outdated = view.span and statement and not statement[0].held_in(view.span)
            older_first = outdated or view.period is Period.THEN
            merged += [*added, hit] if older_first else [hit, *added]
        return merged


def _matches(wording: Wording, question: Question) -> bool:
    return (
        question.where.empty
        or not isinstance(wording.record, MemoryItem)
        or matches(wording.record, question.where)
    )


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
