"""MAP (arXiv 2310.00194): a plan of subgoals, with modules that decompose, monitor, judge.

Claim: planning by modules that interact (a decomposer of the goal, a monitor of the
rules, an orchestrator that tells when a subgoal is reached, beside actor, predictor and
evaluator) makes fewer invalid moves and solves more than one prompt does.
Changed: decomposer, monitor and orchestrator speak in one call after each step. When a
subgoal is reached, its steps become a note: what is done, the state, what the task did
not allow, the subgoals left. The agent need not name subgoals, as it must for
`hi_agent`. Actor, predictor and evaluator are the agent's own, so the paper's search
over predicted states is not here.

    Agent(design="map", model=...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.designs.base import MemoryDesign
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.folding import StageFold

DESIGN: Final[MemoryDesign] = replace(
    EXP_RAG,
    name="map",
    compactor=StageFold(
        prompt="plan_subgoals", over="reached", parts=("done", "state", "forbidden", "subgoals")
    ),
)
