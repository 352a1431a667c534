"""MEM1 (arXiv 2506.15841): one internal state, rewritten after every step.

Claim: an agent that consolidates what it knows into a state after each turn, and sees
nothing older than that state and its last step, solves longer tasks at constant memory;
trained with reinforcement it beats models that see everything.
Changed: a call of its own rewrites the state, and each rewrite is an edit that keeps the
steps in the journal. Nothing is trained here.

    Agent(design="mem1", model=...)
"""

from dataclasses import replace
from typing import Final

from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.lessons import Fold, all_but_last

DESIGN: Final = replace(
    EXP_RAG, name="mem1", compactor=Fold(prompt="rewrite_state", choose=all_but_last)
)
