"""Mistake Notebook (arXiv 2512.11485): notes per subject, written from failed batches.

Claim: an agent improves without training when a batch of failures becomes one note for
each subject, and a note stays only if a held-out batch gets better with it.
Changed: the batch is read from the journal (failed trials since the last note), so a
crash or a fork loses none; the gate is `report(..., accept=no_worse(..., ties=False))`,
which tries the note on a fork and refuses held-out tasks that the evaluation uses.

    Agent(design="mistake_notebook", model=...)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memagent.core.ops import Add, MemoryOp, OpLimits, Update
from memagent.core.records import Fact
from memagent.core.trials import Trial, failures
from memagent.designs.base import Lesson, MemoryDesign, OnePrompt, SlotContext
from memagent.designs.parts.lessons import KindRetriever, active_of, written_notes
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.state.fold import folded


@dataclass(frozen=True, kw_only=True)
class MistakeLearner(OnePrompt):
    """Turns every `batch` failures into notes, one for each subject."""

    prompt: str = "note_mistakes"
    batch: int = 3

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        """Return an ADD for a new subject and an UPDATE for a known one."""
        failed = failures(ctx.bank.state.trials)
        if trial not in failed or len(failed) % self.batch:
            return Lesson()
        known = {folded(item.subject or ""): item for item in active_of(ctx, "note")}
        latest, cited = failed[-self.batch :], trial.turn_ids
        notes, rejected = await written_notes(self.prompt, latest, known.values(), ctx)
        ops: list[MemoryOp] = []
        for text, subject in ((note.text, note.subject) for note in notes if note.text):
            if (old := known.get(folded(subject or ""))) is not None:
                ops.append(Update(id=old.id, text=text, source_turn_ids=cited))
            elif subject:
                fact = Fact(text=text, subject=subject, kind="note", source_turn_ids=cited)
                ops.append(Add(fact=fact))
        return Lesson(ops=tuple(ops), rejected=rejected)


DESIGN: Final[MemoryDesign] = replace(
    VERBATIM,
    name="mistake_notebook",
    retriever=KindRetriever(kinds=frozenset({"note"})),
    learner=MistakeLearner(),
    limits=OpLimits(max_ops=2_000),
)
