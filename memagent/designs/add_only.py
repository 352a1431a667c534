"""The ADD-only control: a manager that keeps every fact and drops only exact repeats.

Facts are extracted as in Memory-R2 and nothing is ever updated or deleted, so the
difference to the scores of Memory-R1 and Memory-R2 is what a learned manager adds.
Retrieval and answering are those of Memory-R2.

    Agent(design="add_only", model=...)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from memagent.core.ops import Add, MemoryOp, Noop, OpLimits
from memagent.core.records import Fact
from memagent.designs.base import MemoryDesign, Proposal, Related, SlotContext
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.state.validation import restates


@dataclass(frozen=True, kw_only=True)
class AppendManager:
    """Adds every fact, unless memory or an earlier fact says exactly the same.

    Asks no model.
    """

    async def __call__(
        self,
        related: Sequence[Related],
        ctx: SlotContext,  # noqa: ARG002 - interface
        /,
    ) -> Proposal[MemoryOp]:
        """Return one op a fact, in order."""
        added: list[Fact] = []
        ops: list[MemoryOp] = []
        for entry in related:
            fact = entry.fact
            items = (hit.item for hit in entry.hits if hit.item is not None and hit.item.active)
            known = next((item.id for item in items if restates(fact, item)), None)
            if known is not None or any(restates(fact, other) for other in added):
                ops.append(Noop(id=known, fact=fact))
            else:
                added.append(fact)
                ops.append(Add(fact=fact))
        return Proposal(values=tuple(ops))


DESIGN: Final[MemoryDesign] = replace(
    MEMORY_R2,
    name="add_only",
    manager=AppendManager(),
    limits=OpLimits(allow=frozenset({"ADD", "NOOP"})),
)
