"""The ADD-only control: facts are extracted as in Memory-R2 and all of them are kept;
only exact repeats are passed over.

Nothing is ever updated or deleted, so what it scores beside Memory-R1 and Memory-R2 is
what a learned manager adds. Retrieval and answering are those of Memory-R2.

    Agent(design="add_only", model=...)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.base import MemoryDesign
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.parts.model.append_manager import AppendManager

DESIGN: Final[MemoryDesign] = replace(
    MEMORY_R2,
    name="add_only",
    manager=AppendManager(),
    limits=OpLimits(allow=frozenset({"ADD", "NOOP"})),
)
"""Memory-R2 with a manager that only adds."""
