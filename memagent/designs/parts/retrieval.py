"""Retrievers over the bank's hybrid search: the best hits, of each speaker, of a time.

Retrieval in two phases: what is similar enough, then by similarity and learned value.

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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev
from typing import Final

import numpy as np

from memagent.core.answers import Filter, Hit, Query, Question
from memagent.core.records import ItemStats, MemoryItem, NodeKind, Relation, TimeSpan
from memagent.core.trials import FAILED, SUCCEEDED
from memagent.designs.base import Prompt, Retriever, SlotContext, prompts_of
from memagent.memory.event_vectors import query_vectors, text_vectors
from memagent.memory.question import Period, read_question
from memagent.search.pipeline import asked_span
from memagent.state.effects import tokenize
from memagent.state.fold import BankState
from memagent.state.validation import matches
from memagent.state.versions import Wording, wordings

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


_CORPUS: Final = 64
"""Memories, the first by id, whose pairs give the corpus its mean and deviation."""
_CLAMP: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class ValueRetriever:
    """Keeps hits above an absolute cosine, and ranks them by similarity and value.

    The cosine is that of the tasks: the question and the first line of a memory. It is
    standardised by the pairs of the store, which no question changes; the value by that
    of the candidates. An unrelated question finds nothing.
    """

    pool: int = 500
    threshold: float = 0.3
    """Least cosine."""
    weight: float = 1.0
    """Weight of the value; 0 is similarity alone."""
    prior: float = 0.3
    """Value of a case that was not used yet, by the outcome of its own trial."""
    spread: float = 0.25
    """Least deviation of the cosines: a store whose memories all look alike has less, and
    then no value could make up for a cosine."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k hits, best first."""
        hits = await ctx.bank.search(query_for(question), k=max(self.pool, question.k))
        asked = (await query_vectors(ctx.bank, [question.text])).get(question.text)
        tasks = {hit.id: _task(hit.item) for hit in hits if hit.item is not None}
        vectors = await text_vectors(ctx.bank, tasks.values())
        if asked is None:
            return hits[: question.k]
        cosines = {key: float(asked @ vectors[task]) for key, task in tasks.items()}
        near = [hit for hit in hits if cosines.get(hit.id, -1.0) >= self.threshold]
        mean, spread = await self._corpus(ctx)
        values = _standardised([self.value(hit, ctx) for hit in near])
        ranked = [
            hit.model_copy(
                update={"score": (cosines[hit.id] - mean) / spread + self.weight * value}
            )
            for hit, value in zip(near, values, strict=True)
        ]
        return sorted(ranked, key=lambda hit: (-hit.score, hit.id))[: question.k]

    def value(self, hit: Hit, ctx: SlotContext) -> float:
        """Return what a hit is worth: its value, or its trial's outcome until it is used."""
        stats = ctx.bank.state.stats.get(hit.id, ItemStats())
        tags = hit.item.tags if hit.item is not None and not stats.uses else ()
        return stats.q_value + self.prior * ((SUCCEEDED in tags) - (FAILED in tags))

    async def _corpus(self, ctx: SlotContext) -> tuple[float, float]:
        """Return mean and deviation of the cosines between the store's own tasks."""
        items = sorted(ctx.bank.state.active(), key=lambda item: item.id)[:_CORPUS]
        vectors = await text_vectors(ctx.bank, {_task(item) for item in items})
        rows = np.array([vectors[key] for key in sorted(vectors)])
        cosines = [float(one @ other) for one, other in combinations(rows, 2)]
        if not cosines:
            return 0.0, self.spread
        return fmean(cosines), max(self.spread, pstdev(cosines))


def _task(item: MemoryItem) -> str:
    return item.text.partition("\n")[0]


def _standardised(values: Sequence[float]) -> list[float]:
    """Return z scores within the clamp; zeros where nothing differs."""
    spread = pstdev(values) if len(values) > 1 else 0.0
    if spread <= 1e-12:
        return [0.0 for _ in values]
    return [max(-_CLAMP, min(_CLAMP, (value - fmean(values)) / spread)) for value in values]


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
