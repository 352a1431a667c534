"""HiAgent (arXiv 2408.09559): subgoals as chunks of the workspace, folded when they are done.

Claim: an agent that names subgoals, and sees steps of the present one only, with a
summary of each past one, solves more long tasks in fewer steps; it can look into a past
subgoal again.
Changed: an action `subgoal: ...` opens a subgoal and folds the one before it; the action
`open N` puts the steps of note N back word for word.

    Agent(design="hi_agent", model=...)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from memagent.core.trials import Edit
from memagent.core.workspace import Workspace
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.folding import Fold

_SUBGOAL: Final = re.compile(r"did: subgoal:", re.IGNORECASE)
_OPEN: Final = re.compile(r"did: open (\d{1,4})\b", re.IGNORECASE)


def last_subgoal(workspace: Workspace) -> tuple[int, ...]:
    """Choose the steps of the subgoal that ended with the last segment, which opens another."""
    segments, last = workspace.segments, len(workspace.segments) - 1
    if last < 0 or not _SUBGOAL.match(segments[last].text):
        return ()
    begun = [at for at in range(last) if _SUBGOAL.match(segments[at].text)]
    return tuple(range(begun[-1], last)) if begun else ()


@dataclass(frozen=True, kw_only=True)
class SubgoalFold(Fold):
    """Folds a subgoal that is done, and opens a note that the agent asks for."""

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:
        """Return the edit for the last step, if it calls for one."""
        asked = _OPEN.match(workspace.segments[-1].text) if workspace.segments else None
        if asked is not None:
            return Edit(at=0, opens=int(asked[1]))
        return await Fold.__call__(self, workspace, ctx)


DESIGN: Final[MemoryDesign] = replace(
    EXP_RAG, name="hi_agent", compactor=SubgoalFold(prompt="fold_steps", choose=last_subgoal)
)
