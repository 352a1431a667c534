"""Memory-R1 (arXiv 2508.19828): a memory manager and an answer agent, trained by outcome rewards.

Claimed: a manager that chooses ADD, UPDATE, DELETE or NOOP for each new fact against
the memories retrieved for it, and an answer agent that first distils about 60 retrieved
memories to the useful ones and then answers, both trained by reinforcement learning on
the answers' exact match, beat hand-written memory rules (LoCoMo with Qwen2.5-7B: F1
43.14, judge 61.51). Here: one manager call a fact over its own related memories, each
call seeing what the earlier ones of the chunk decided; 60 candidates, selected first
and cited. Changed: facts carry their turn and resolved dates; ops are validated and a
wrong one is rejected with a reason; one item is changed at most once a chunk, so
consecutive changes are merged. The number of memories shown for a fact is our choice.
`DISTILLED` selects in a call of its own, as the paper's answer agent does, and does not
show the rest to the answering call.

    Agent(design="memory_r1", model=...)
    Agent(design="memory_r1_distilled", model=...)
"""

from dataclasses import replace
from typing import Final

from memagent.designs.base import MemoryDesign, RelateSettings, no_indexer
from memagent.designs.parts.model_answerer import ModelAnswerer
from memagent.designs.parts.model_extractor import DistillingAnswerer, ModelExtractor
from memagent.designs.parts.model_manager import ModelManager
from memagent.designs.parts.retrieval import HybridRetriever, VersionedRetriever

DESIGN: Final = MemoryDesign(
    name="memory_r1",
    extractor=ModelExtractor(),
    manager=ModelManager(prompt="manage_r1", facts_per_call=1),
    indexer=no_indexer,
    retriever=VersionedRetriever(base=HybridRetriever(k=60)),
    answerer=ModelAnswerer(),
    relate=RelateSettings(k=5, min_cosine=0.0, same_subject=False, cap=200, graph=False),
)

DISTILLED: Final = replace(DESIGN, name="memory_r1_distilled", answerer=DistillingAnswerer())
"""The answer agent of the paper, with its distillation as a call of its own."""
