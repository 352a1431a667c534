"""Case bank (AgentFly, arXiv 2508.16153): which past case helps is learned, not similar.

Claim: an agent that keeps its trials as cases and learns from their rewards which case
fits which task improves without touching its model.
Changed: the scorer is a logistic regression over pairs of words (task, case), fitted to
the credit of the trials in the journal each time it is asked, so nothing is learned
outside the memory. It has the reranker's method, `score(query, texts)`.

    Agent(design="case_bank")
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memagent.core.answers import Hit, Question
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.parts.lessons import CaseLearner, CaseScorer, KindRetriever
from memagent.designs.verbatim import DESIGN as VERBATIM


@dataclass(frozen=True, kw_only=True)
class CaseRetriever:
    """Searches cases widely and puts them in the order of the learned scorer."""

    pool: int = 500

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k cases, best first."""
        wide = question.model_copy(update={"k": max(self.pool, question.k)})
        hits = await KindRetriever(kinds=frozenset({"case"}))(wide, ctx)
        state = ctx.bank.state
        scorer = CaseScorer(tuple(state.trials.values()), state.items)
        scores = await scorer.score(question.text, [hit.text for hit in hits])
        order = sorted(range(len(hits)), key=lambda at: (-scores[at], at))
        return [hits[at] for at in order[: question.k]]


DESIGN: Final[MemoryDesign] = replace(
    VERBATIM, name="case_bank", retriever=CaseRetriever(), learner=CaseLearner()
)
