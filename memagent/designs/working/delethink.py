"""Delethink (arXiv 2510.06557): fixed chunks of thought; only the tail is carried over.

Claim: reasoning in chunks of fixed size, each of which begins with the question and the
last tokens of the chunk before, needs linear compute and constant memory; a policy
trained so writes what it needs into the tail.
Changed: chunks count words of the workspace, and nothing is trained. The surprise: this
is a cut, not a summary. What an agent does not say again before a chunk ends leaves its
prompt, and no other compactor here is allowed that. The steps stay in the journal.

    Agent(design="delethink")
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memagent.core.trials import Edit
from memagent.core.workspace import Workspace
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG


@dataclass(frozen=True, kw_only=True)
class CarryOver:
    """Begins a new chunk with the last words of the full one."""

    chunk_words: int = 400
    carried_words: int = 100

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:  # noqa: ARG002 - interface
        """Return the cut, or None while the chunk has room."""
        words = " ".join(segment.text for segment in workspace.segments).split()
        if len(words) <= self.chunk_words:
            return None
        places = tuple(range(len(workspace.segments)))
        return Edit(at=0, folds=places, text=" ".join(words[-self.carried_words :]))


DESIGN: Final[MemoryDesign] = replace(EXP_RAG, name="delethink", compactor=CarryOver())
