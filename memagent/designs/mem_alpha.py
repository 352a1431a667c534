"""Mem-alpha (arXiv 2509.25911): core, episodic and semantic memory, each of limited size.

Claim: an agent trained to build a memory of three kinds, with a reward for answers and
one for compression, generalises from short to very long inputs.
Changed: one call sorts what a chunk says into the kinds; caps are kept by the keeper, so
they hold after each `agent.tidy()`, and `undo` takes a cut back. The compression term is
`environments.rewards.terms.CompressionTerm`. The weights of the paper are not here.

    Agent(design="mem_alpha", model=...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.add_only import AppendManager
from memagent.designs.base import MemoryDesign
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.parts.lessons import Layers
from memagent.designs.parts.model_extractor import ModelExtractor
from memagent.designs.parts.rewriting import no_indexer

DESIGN: Final[MemoryDesign] = replace(
    MEMORY_R2,
    name="mem_alpha",
    extractor=ModelExtractor(prompt="sort_kinds"),
    manager=AppendManager(),
    indexer=no_indexer,
    keeper=Layers(caps={"core": 10, "episodic": 500, "semantic": 500}),
    limits=OpLimits(max_ops=2_000, allow=frozenset({"ADD", "NOOP"})),
)
