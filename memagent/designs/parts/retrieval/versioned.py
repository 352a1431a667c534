"""A retriever that adds older wordings of the same statements to another's hits.

The question's time decides. A question about now gets the present wordings alone. One
that names a time gets the wording that held then, before the present one; one about
earlier times gets the older wordings first; any other gets them after the present one.
Each added hit names the hit that replaced it (`why.via`), and its id is that of the
version (`mem_...@1`), so an answer can cite exactly what it rests on. What was taken out
by the turn that told another is not shown to a question in the present tense ("How many
dogs does Ana have?"): what a manager deletes is gone from the present.
"""

from __future__ import annotations

from dataclasses import dataclass

from memagent.core.answers import Hit, Question
from memagent.core.records import MemoryItem, NodeKind, Relation
from memagent.designs.base import Retriever, SlotContext
from memagent.designs.prompting import Prompt, prompts_of
from memagent.memory.question import Period, read_question
from memagent.state.fold import BankState
from memagent.state.matching import matches
from memagent.state.versions import Wording, wordings


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
