"""A keeper of layers: each kind of memory has a cap, and what is over it moves on or goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memagent.core.ops import Delete, MemoryOp, Update
from memagent.core.records import ItemStats, MemoryItem
from memagent.designs.base import SlotContext


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Keeps each kind within its cap, in the order in which the caps are named.

    What is worth least, then used least, then oldest, moves to the kind that `below`
    names, where it may push others on; without one it is deleted.
    """

    caps: Mapping[str, int]
    below: Mapping[str, str] = field(default_factory=dict[str, str])

    async def __call__(self, budget: int | None, ctx: SlotContext, /) -> Sequence[MemoryOp]:
        """Return the ops, one an item; a budget cuts every cap to its share of it."""
        kinds: dict[str, list[MemoryItem]] = defaultdict(list)
        for item in ctx.bank.state.active():
            kinds[item.kind].append(item)
        ends: dict[str, str | None] = {}
        for kind, cap in self._shares(budget).items():
            items = sorted(kinds[kind], key=lambda item: _worth(item, ctx))
            for item in items[: max(len(items) - cap, 0)]:
                ends[item.id] = self.below.get(kind)
                if (lower := ends[item.id]) is not None:
                    kinds[lower].append(item)
        state = ctx.bank.state.items
        return [_op(state[item_id], kind) for item_id, kind in ends.items()]

    def _shares(self, budget: int | None) -> Mapping[str, int]:
        total = sum(self.caps.values())
        if budget is None or budget >= total:
            return self.caps
        return {kind: budget * cap // total for kind, cap in self.caps.items()}


def _op(item: MemoryItem, kind: str | None) -> MemoryOp:
    if kind is None:
        return Delete(id=item.id, version=item.version, reason="over the cap of its kind")
    return Update(id=item.id, text=item.text, kind=kind, source_turn_ids=item.source_turn_ids)


def _worth(item: MemoryItem, ctx: SlotContext) -> tuple[float, int, float, str]:
    stats = ctx.bank.state.stats.get(item.id, ItemStats())
    said = item.said_at.timestamp() if item.said_at else 0.0
    return stats.q_value, stats.uses, said, item.id


async def keep_helpful(budget: int | None, ctx: SlotContext, /) -> Sequence[MemoryOp]:  # noqa: ARG001 - interface
    """Delete bullets of a playbook that were tagged harmful more often than helpful."""
    stats = ctx.bank.state.stats
    balance = {
        item.id: stats.get(item.id, ItemStats()).counters.get("tagged_helpful", 0.0)
        - stats.get(item.id, ItemStats()).counters.get("tagged_harmful", 0.0)
        for item in ctx.bank.state.active()
        if item.kind == "bullet"
    }
    return [Delete(id=item_id) for item_id, worth in sorted(balance.items()) if worth < 0]
