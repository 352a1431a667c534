"""ACE (arXiv 2510.04618): a playbook of single rules that grows by deltas.

Claim: rewriting a whole prompt loses detail with each round (context collapse). A
generator acts, a reflector says what helped and what is new, a curator adds single
bullets and counts; nothing is ever rewritten as a whole.
Changed: one model call reflects, and the curator is the kernel: a bullet that says the
same as another is refused, counts (`tagged_helpful`, `tagged_harmful`) lie beside the
items and raise no version, `tidy` drops bullets tagged harmful more often than helpful.

    Agent(design="ace", model=...)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memagent.core.ops import Add, OpLimits
from memagent.core.records import Fact
from memagent.core.trials import Trial
from memagent.designs.base import Lesson, MemoryDesign, OnePrompt, SlotContext
from memagent.designs.parts.lessons import KindRetriever, keep_helpful, written_notes
from memagent.designs.verbatim import DESIGN as VERBATIM


@dataclass(frozen=True, kw_only=True)
class Reflector(OnePrompt):
    """Asks the model which bullets helped and which are new."""

    prompt: str = "reflect"

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        """Return new bullets as ADD, and tags as counts of bullets that were shown."""
        items = (ctx.bank.state.items.get(use.id) for use in trial.shown)
        shown = {item.id: item for item in items if item is not None and item.active}
        notes, rejected = await written_notes(self.prompt, [trial], shown.values(), ctx)
        ops = tuple(
            Add(fact=Fact(text=note.text, kind="bullet", source_turn_ids=trial.turn_ids))
            for note in notes
            if note.text
        )
        tags = ((note.id, f"tagged_{note.tag}", 1.0) for note in notes if note.id in shown)
        return Lesson(ops=ops, counts=tuple(tags), rejected=rejected)


DESIGN: Final[MemoryDesign] = replace(
    VERBATIM,
    name="ace",
    retriever=KindRetriever(kinds=frozenset({"bullet"})),
    learner=Reflector(),
    keeper=keep_helpful,
    limits=OpLimits(max_ops=2_000),
)
