"""Semantic cache: an answer that earned a reward answers a question that means the same.

Claim (GPTCache and its like): a good part of the questions put to an assistant were put
before in other words; serving those from a cache saves the model call.
Changed: only answers reported as good are kept, each as a memory that rests on the trial.
An entry is served while its trial's evidence still stands at the versions that were
shown; after a change the question goes to the model again. A report below 0 on an entry
lowers its value, and an entry of negative value is not served. `tidy` keeps the cap.

    Agent(design="semantic_cache", model=...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.designs.base import MemoryDesign
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.parts.lessons import (
    KIND,
    CachedAnswerer,
    CachedRetriever,
    Layers,
    keep_answer,
)

DESIGN: Final[MemoryDesign] = replace(
    MEMORY_R2,
    name="semantic_cache",
    retriever=CachedRetriever(inner=MEMORY_R2.retriever),
    answerer=CachedAnswerer(inner=MEMORY_R2.answerer),
    learner=keep_answer,
    keeper=Layers(caps={KIND: 200}),
)
