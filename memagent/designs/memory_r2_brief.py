"""Memory-R2's flow with prompts for small models: numbers for ids, few words, one try a call.

Two things differ from `memory_r2`: the wording, and that an unreadable reply is not
asked for again (a policy in training often writes some, and each would cost a second
round). A model's own tokenizer may even drop the instructions, as in models made by
`memagent-train init-model`: these learn the form of a reply from demonstrations.

    Agent(design="memory_r2_brief", model="hf:runs/first/best")
"""

from dataclasses import replace
from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.add_only import DESIGN as ADDS
from memagent.designs.base import RelateSettings
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.parts.model_manager import BriefAnswerer, BriefExtractor, BriefManager
from memagent.designs.parts.retrieval import HybridRetriever

DESIGN: Final = replace(
    MEMORY_R2,
    name="memory_r2_brief",
    extractor=BriefExtractor(),
    manager=BriefManager(),
    retriever=HybridRetriever(k=8),
    answerer=BriefAnswerer(),
    limits=OpLimits(),
    relate=RelateSettings(k=5, min_cosine=0.1, same_subject=True, cap=12, graph=False),
)
ADD_ONLY: Final = replace(DESIGN, name="add_only_brief", manager=ADDS.manager, limits=ADDS.limits)
"""The ADD-only control: the same model notes the same facts, and all are kept."""
