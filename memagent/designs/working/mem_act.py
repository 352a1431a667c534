"""MemAct (arXiv 2510.12635): to edit the workspace is an action of the policy.

Claim: a policy that chooses itself which parts of its context to drop and what to write
in their place learns to keep short contexts; since an edit breaks the prefix, credit goes
to segments between edits (DCPO).
Changed: the policy is asked whenever the workspace has more than `budget` words, in a
call of its own. `credit_segments` cuts a trial, and `train.rollouts.acting` gives each
segment the advantage of its trial; `scripts/trained_memory.py` trains a tiny policy so.

    Agent(design="mem_act", model=...)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memagent.core.trials import Edit
from memagent.core.workspace import Workspace
from memagent.designs.base import MemoryDesign, OnePrompt, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.lessons import ask_about_workspace
from memagent.replies.entries import MAX_FACT_CHARS, string_at


@dataclass(frozen=True, kw_only=True)
class EditAction(OnePrompt):
    """Lets the model choose what to fold, and what to write in its place."""

    prompt: str = "edit_workspace"
    budget: int = 300
    """Words of the workspace above which the model is asked."""

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:
        """Return the model's edit; None below the budget, or when it wants none."""
        if workspace.words <= self.budget:
            return None
        everything = tuple(range(len(workspace.segments)))
        reply = await ask_about_workspace(self.prompt, workspace, everything, ctx)
        named = reply.get("folds", [])
        if not isinstance(named, list) or not all(type(n) is int and n >= 0 for n in named):
            return Edit(at=0, refused="folds is no list of segment numbers")
        folds = tuple(number for number in named if isinstance(number, int))
        text = (string_at(reply, "text") or "").strip()[:MAX_FACT_CHARS]
        return Edit(at=0, folds=folds, text=text) if folds else None


DESIGN: Final[MemoryDesign] = replace(EXP_RAG, name="mem_act", compactor=EditAction())
