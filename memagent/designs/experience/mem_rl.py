"""MemRL (arXiv 2601.03192): retrieval that learns which memories pay, without a gradient.

Claim: similarity finds candidates, a learned utility picks among them. Each memory has a
value Q; a trial that used it moves Q by alpha (r - Q). Retrieval keeps what is similar
enough by an absolute cosine, then ranks by the similarity, standardised by the store's own
pairs, plus the Q, standardised among the candidates and held within 3.
Changed: Q lies in the journal, as the `q_value` that every report moves (`feedback`),
so it survives a crash, an export and a fork; ties go by id. Each trial is kept as a case,
also one that failed; until it is used itself, its own outcome stands for its value.

    Agent(design="mem_rl")
"""

from dataclasses import replace
from typing import Final

from memagent.designs.base import RunningValue
from memagent.designs.parts.lessons import CaseLearner, ValueRetriever
from memagent.designs.verbatim import DESIGN as VERBATIM

DESIGN: Final = replace(
    VERBATIM,
    name="mem_rl",
    retriever=ValueRetriever(),
    feedback=RunningValue(alpha=0.3),
    learner=CaseLearner(),
)
