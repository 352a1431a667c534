"""Retrievers over the bank's hybrid search: the best hits, of each speaker, of a time."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.core.answers import Filter, Hit, Query, Question
from memagent.core.records import TimeSpan
from memagent.designs.base import SlotContext
from memagent.search.pipeline import asked_span
from memagent.state.tokens import tokenize

TIME_WEIGHT = 0.25
"""Weight of a hit found only by its time, beside a hit of the plain search."""


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
        span = asked_span(question.text, question.asked_at or ctx.clock())
        if span is None:
            return hits
        merged = {hit.id: hit for hit in hits}
        for timed in await ctx.bank.search_many(queries_at(query, span), k=self.k_of_time):
            for hit in timed:
                merged.setdefault(hit.id, weighted(hit))
        return sorted(merged.values(), key=lambda hit: (-hit.score, hit.id))


def query_for(question: Question) -> Query:
    """Return the search that a question asks for, with its recipe."""
    return Query(
        text=question.text, where=question.where, recipe=question.recipe, asked_at=question.asked_at
    )


def queries_at(query: Query, span: TimeSpan) -> list[Query]:
    """Narrow a search to a time, once for each axis that its filter leaves open."""
    where: Filter = query.where
    axes = [axis for axis, bound in (("valid", where.valid), ("said", where.said)) if bound is None]
    return [
        query.model_copy(update={"where": where.model_copy(update={axis: span})}) for axis in axes
    ]


def weighted(hit: Hit) -> Hit:
    """Lower the score of a hit that was found only by its time."""
    return hit.model_copy(update={"score": TIME_WEIGHT * hit.score})
