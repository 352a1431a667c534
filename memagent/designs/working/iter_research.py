"""IterResearch (arXiv 2511.07327): a report that grows in rounds over a rebuilt workspace.

Claim: research that rebuilds its workspace each round from the question, an evolving
report and the last result scales to thousands of rounds, where one growing context
fills with noise.
Changed: the report is written by a call of its own after each step. It differs from
`mem1` in what is asked for: findings with their sources, and what is still open.

    Agent(design="iter_research", model=...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.designs.base import MemoryDesign
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.folding import Fold, all_but_last

DESIGN: Final[MemoryDesign] = replace(
    EXP_RAG, name="iter_research", compactor=Fold(prompt="rewrite_report", choose=all_but_last)
)
