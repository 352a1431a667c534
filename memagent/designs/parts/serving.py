"""Parts of designs that serve an answer which was given before, while its evidence stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question
from memagent.core.ops import Add
from memagent.core.records import Fact, ItemStats, MemoryItem
from memagent.core.trials import Trial
from memagent.designs.base import Answerer, Lesson, Retriever, SlotContext
from memagent.designs.parts.lessons import active_of
from memagent.designs.prompting import Prompt, prompts_of
from memagent.memory.event_vectors import query_vectors

KIND: Final = "cached"


async def keep_answer(trial: Trial, ctx: SlotContext, /) -> Lesson:  # noqa: ARG001 - interface
    """Return an ADD of the answer to a question that was reported as good."""
    if trial.outcome is None or not trial.outcome.good or not trial.steps or not trial.credit:
        return Lesson()
    text = f"{trial.task}\n{trial.steps[-1].action}"[:1_900]
    return Lesson(ops=(Add(fact=Fact(text=text, kind=KIND, source_turn_ids=trial.turn_ids)),))


@dataclass(frozen=True, kw_only=True)
class CachedRetriever:
    """Finds the entry for the same question in other words; else what `inner` finds."""

    inner: Retriever
    least_cosine: float = 0.95

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return the one entry, or the inner retriever's hits without entries."""
        entries = [item for item in active_of(ctx, KIND) if is_served(item, ctx)]
        asked = [item.text.split("\n")[0] for item in entries]
        vectors = await query_vectors(ctx.bank, [question.text, *asked] if asked else [])
        own = vectors.get(question.text)
        near = [float(vectors[text] @ own) for text in asked] if own is not None else []
        best = max(range(len(near)), key=near.__getitem__, default=None)
        if best is not None and near[best] >= self.least_cosine:
            ctx.trail.notes.append("answered before; served from the cache")
            return [Hit(id=entries[best].id, score=near[best], item=entries[best])]
        return [hit for hit in await self.inner(question, ctx) if not _is_entry(hit)]


@dataclass(frozen=True, kw_only=True)
class CachedAnswerer:
    """Answers with the entry that was found; else asks `inner`."""

    inner: Answerer

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of the inner answerer."""
        return prompts_of(self.inner)

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the entry's answer, which cites the entry, or the inner answerer's."""
        if not hits or not _is_entry(hits[0]):
            return await self.inner(question, hits, ctx)
        text = hits[0].text.split("\n", 1)[1]
        return Answer(text=text, citations=(Citation(hit_id=hits[0].id, quote=text),))


def is_served(item: MemoryItem, ctx: SlotContext) -> bool:
    """Tell whether an entry is worth serving and its evidence stands as it was."""
    state = ctx.bank.state
    trial = state.trials.get(item.source_turn_ids[0].rsplit(":", 1)[0])
    if trial is None or state.stats.get(item.id, ItemStats()).q_value < 0:
        return False
    now = [state.items.get(credit.id) for credit in trial.credit]
    return all(
        each is not None and each.active and each.version == credit.version
        for each, credit in zip(now, trial.credit, strict=True)
    )


def _is_entry(hit: Hit) -> bool:
    return hit.item is not None and hit.item.kind == KIND
