"""A retriever for questions that name a time: hybrid search, joined by what happened or
was said then.

A question with a recipe of its own is searched by that recipe alone, which says itself
what becomes of a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from memagent.core.answers import Filter, Hit, Question
from memagent.core.records import TimeSpan
from memagent.designs.base import SlotContext
from memagent.designs.parts.retrieval.hybrid import query_for
from memagent.memory.question import read_question


@dataclass(frozen=True, kw_only=True)
class TimedRetriever:
    """The best hits overall; a question about "March 2022" also gets the best hits of
    that time, which words alone may miss.
    """

    k_of_time: int = 10
    """Most hits added for what happened at the time asked about, and as many for what was
    said then.
    """

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """At most k hits and those of the time asked about, best first; at most k in
        all for a question with a recipe.
        """
        query = query_for(question)
        found = await ctx.bank.search(query, k=question.k)
        if question.recipe is not None:
            return found
        span = read_question(question.text, asked_at=question.asked_at or ctx.clock()).span
        if span is None:
            return found
        queries = [
            query.model_copy(update={"where": where}) for where in _wheres(question.where, span)
        ]
        known = {hit.id: hit for hit in found}
        for hits in await ctx.bank.search_many(queries, k=self.k_of_time):
            for hit in hits:
                known.setdefault(hit.id, hit.model_copy(update={"score": 0.25 * hit.score}))
        return sorted(known.values(), key=lambda hit: (-hit.score, hit.id))


def _wheres(where: Filter, span: TimeSpan) -> list[Filter]:
    """The question's filter narrowed to a time, on each axis that it leaves open."""
    axes = [axis for axis, given in (("valid", where.valid), ("said", where.said)) if given is None]
    return [where.model_copy(update={axis: span}) for axis in axes]
