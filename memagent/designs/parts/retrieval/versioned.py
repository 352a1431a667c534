"""A retriever that adds to another's hits how the same statements were worded before,
as the question's time asks for.

A question about now gets the present wordings alone. One that names a time gets the
wording that held then, before the present one; one about earlier times gets the older
wordings first; any other gets them after the present one. Each added hit says what
replaced it (`why.via`), and its id is that of the version (`mem_...@1`), so an answer
can cite exactly what it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memagent.core.answers import Hit, Question
from memagent.core.records import MemoryItem, NodeKind, Relation
from memagent.designs.base import Retriever, SlotContext
from memagent.designs.prompting import Prompt, prompts_of
from memagent.memory.question import Period, QuestionView, read_question
from memagent.state.matching import matches
from memagent.state.versions import Wording, wordings


@dataclass(frozen=True, kw_only=True)
class VersionedRetriever:
    """The hits of `base` with older wordings among them. Asks no model of its own."""

    base: Retriever
    more: int = 20
    """Most hits added."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Those of the base."""
        return prompts_of(self.base)

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """The base's hits in their order, each with those older wordings that the
        question's time asks for.
        """
        hits = await self.base(question, ctx)
        now = question.asked_at or ctx.clock()
        view = read_question(question.text, asked_at=now)
        if view.period is Period.NOW:
            return hits
        known = {hit.id for hit in hits}
        shown: list[Hit] = []
        for hit in hits:
            told = wordings(ctx.bank.state, hit, now=now)
            older = [
                one
                for one in _asked_for(told[1:], view)
                if one.node_id not in known and _fits(one, question)
            ]
            older = older[: self.more + len(hits) - len(known)]
            known.update(one.node_id for one in older)
            added = [_hit(one, beside=hit) for one in older]
            stale = view.span is not None and bool(told) and not told[0].held_in(view.span)
            shown += [*added, hit] if stale or view.period is Period.THEN else [hit, *added]
        return shown


def _asked_for(older: Sequence[Wording], view: QuestionView) -> list[Wording]:
    if view.span is None:
        return list(older)
    return [one for one in older if one.held_in(view.span)]


def _fits(wording: Wording, question: Question) -> bool:
    return (
        question.where.empty
        or not isinstance(wording.record, MemoryItem)
        or matches(wording.record, question.where)
    )


def _hit(wording: Wording, *, beside: Hit) -> Hit:
    record = wording.record
    item = record if isinstance(record, MemoryItem) else None
    return Hit(
        id=wording.node_id,
        kind=NodeKind.ITEM if item is not None else NodeKind.EVENT,
        score=beside.score,
        item=item,
        event=record if not isinstance(record, MemoryItem) else None,
        why=beside.why.model_copy(update={"via": ((beside.id, Relation.SUPERSEDES, True),)}),
    )
