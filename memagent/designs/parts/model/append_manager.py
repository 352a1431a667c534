"""A manager that only ever adds: every fact becomes an item, unless memory or an
earlier fact says exactly the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memagent.core.ops import Add, MemoryOp, Noop
from memagent.core.records import Fact
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.state.validation import restates


@dataclass(frozen=True, kw_only=True)
class AppendManager:
    """Facts to ADDs; exact duplicates, of what was shown or of one another, to NOOPs.

    Asks no model.
    """

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """One op a fact, in order."""
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
