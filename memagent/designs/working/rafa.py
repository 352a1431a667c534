"""RAFA (arXiv 2309.17382): reason for the future, act for now.

Claim: an agent that learns from a memory buffer how its environment answers, plans a
whole course on that, takes the first action only, and learns anew when it was told
enough that is new, needs few interactions, with a bound on its regret.
Changed: after each step one call compares the observation with what was expected. When
they differ, or the workspace is full, the steps become a note: what is known of the
environment, and a plan from here. In the paper a critic scores courses of a learned
model; here the plan is the call's own.

    Agent(design="rafa", model=...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.designs.base import MemoryDesign
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.folding import StageFold

DESIGN: Final[MemoryDesign] = replace(
    EXP_RAG,
    name="rafa",
    compactor=StageFold(prompt="learn_and_plan", over="surprised", parts=("known", "plan")),
)
