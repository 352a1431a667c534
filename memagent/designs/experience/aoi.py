"""AOI (AI-oriented operations): working, task and long-term layers of what was tried.

Claim: an operations agent that compresses its context from layer to layer, by how far
back it lies, keeps what matters at a fraction of the size.
Changed: the layers hold cases of trials and each has a cap. `agent.tidy()` moves what is
worth and used least one layer down, and out of the last one; all layers are searched.
No text is rewritten, so the compression of the paper is not here.

    Agent(design="aoi")
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.designs.base import MemoryDesign
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.parts.lessons import KindRetriever, Layers

LAYERS: Final = Layers(
    caps={"case": 20, "task": 60, "longterm": 200}, below={"case": "task", "task": "longterm"}
)
DESIGN: Final[MemoryDesign] = replace(
    EXP_RAG,
    name="aoi",
    retriever=KindRetriever(kinds=frozenset(LAYERS.caps)),
    keeper=LAYERS,
)
