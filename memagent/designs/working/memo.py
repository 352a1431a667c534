"""Memo (arXiv 2510.19732): a summary after every few steps, all summaries stay.

Claim: an agent whose context is the summaries of all past segments and the present one
matches one that sees everything, at a fraction of the context.
Changed: a summary is text, not learned tokens, and nothing is trained. The workspace
grows with the number of segments, by one note for each `least` steps.

    Agent(design="memo", model=...)
"""

from dataclasses import replace
from functools import partial
from typing import Final

from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.lessons import Fold, trailing_steps

DESIGN: Final = replace(
    EXP_RAG,
    name="memo",
    compactor=Fold(prompt="fold_steps", choose=partial(trailing_steps, least=5)),
)
