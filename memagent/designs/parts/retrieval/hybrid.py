"""Retrievers over the bank's hybrid search: the best hits overall, or the best of each speaker."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.core.answers import Hit, Query, Question
from memagent.designs.base import SlotContext


@dataclass(frozen=True, kw_only=True)
class HybridRetriever:
    """The question's own words, searched by meaning and by keyword."""

    k: int | None = None
    """Hits; None for what the question asks for."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """At most k hits, best first."""
        return await ctx.bank.search(query_for(question), k=self.k or question.k)


@dataclass(frozen=True, kw_only=True)
class SpeakerRetriever:
    """As many hits of each speaker, so that nobody's memories crowd out another's."""

    per_speaker: int = 30
    speakers: int = 2
    """Most speakers searched: those of the best hits. Items without a speaker count as one
    more.
    """

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """The hits of all speakers by score, ties by id.

        Speakers are those of the best hits, in their order.
        """
        query = query_for(question)
        pool = await ctx.bank.search(query, k=self.per_speaker * (self.speakers + 1))
        found = dict.fromkeys(hit.item.speaker for hit in pool if hit.item is not None)
        chosen = [speaker for speaker in found if speaker is not None][: self.speakers]
        wheres = [
            question.where.model_copy(update={"speakers": frozenset({speaker})})
            for speaker in chosen
        ]
        queries = [query.model_copy(update={"where": where}) for where in wheres]
        each = await ctx.bank.search_many(queries, k=self.per_speaker)
        unsigned = [hit for hit in pool if hit.item is None or hit.item.speaker is None][
            : self.per_speaker
        ]
        return sorted(
            (hit for hits in (*each, unsigned) for hit in hits),
            key=lambda hit: (-hit.score, hit.id),
        )


def query_for(question: Question) -> Query:
    """The search that a question asks for, by its recipe."""
    return Query(
        text=question.text, where=question.where, recipe=question.recipe, asked_at=question.asked_at
    )
