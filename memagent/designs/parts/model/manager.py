"""A manager that asks a model what each fact does to memory, for all facts of a chunk
at once or for a few at a time.

With `facts_per_call` the calls follow one another, and each sees what the earlier ones
decided: changed texts in place of the old, deleted memories gone, added facts listed
without an id. Two changes of one memory become one op, the later wording on both
sources, so that the batch still holds at most one op an item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from memagent.core.answers import Hit
from memagent.core.exchange import JsonSchema, ModelResponse, Role
from memagent.core.ops import Add, Delete, MemoryOp, ParseStatus, Rejected, Update
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.parts.asking import ask
from memagent.designs.parts.lines import fact_line, hit_line
from memagent.designs.prompting import Prompt, fence, load_prompt, quoted
from memagent.replies.ops import parse_ops


def op_form(op: str, **fields: JsonSchema) -> JsonSchema:
    """One kind of op in a reply: its name and the fields it must have, in this order."""
    properties = {"op": {"type": "string", "const": op}, **fields}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


_FACT: Final[JsonSchema] = {"type": "integer"}
_ID: Final[JsonSchema] = {"type": "string"}
OPS_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ops"],
    "properties": {
        "ops": {
            "type": "array",
            "items": {
                "anyOf": [
                    op_form("ADD", fact=_FACT),
                    op_form("UPDATE", id=_ID, text={"type": "string"}, fact=_FACT),
                    op_form("DELETE", id=_ID, fact=_FACT),
                    op_form("NOOP", fact=_FACT, id={"type": ["string", "null"]}),
                ]
            },
        }
    },
}
"""What the manager's reply should look like."""


@dataclass(frozen=True, kw_only=True)
class ModelManager:
    """Facts and what memory holds about them to ops. No facts, no call."""

    prompt: str
    """Prompt file. Slots it may use: `facts`, `memories`, `graph` (linked events),
    `recent` (facts added by earlier calls).
    """
    facts_per_call: int | None = None
    """Facts decided by one call; None for all facts of the chunk."""
    retry: bool = True

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Ops in the order decided, ids unchecked; a reply that cannot be read is asked
        for once more.
        """
        plan = _Plan()
        size = self.facts_per_call or max(1, len(related))
        for start in range(0, len(related), size):
            await self._decide(related[start : start + size], ctx, plan)
        return Proposal(
            values=tuple(plan.ops),
            rejected=tuple(plan.rejected),
            parse=tuple(plan.statuses),
            responses=tuple(plan.responses),
        )

    async def _decide(self, related: Sequence[Related], ctx: SlotContext, plan: _Plan) -> None:
        prompt = load_prompt(self.prompt)
        facts = [entry.fact for entry in related]
        hits = {hit.id: hit for entry in related for hit in entry.hits}.values()
        parts = {
            "facts": fence("facts", (fact_line(index, fact) for index, fact in enumerate(facts))),
            "memories": fence(
                "memories", (hit_line(hit, version=True) for hit in plan.as_it_stands(hits))
            ),
            "graph": fence(
                "graph", (hit_line(hit, version=False) for hit in hits if hit.item is None)
            ),
            "recent": fence(
                "recent", (f"- {quoted(op.fact.text)}" for op in plan.ops if isinstance(op, Add))
            ),
        }
        asked = await ask(
            ctx,
            Role.MANAGER,
            prompt,
            values={name: text for name, text in parts.items() if name in prompt.slots},
            schema=OPS_SCHEMA,
            parse=lambda text: parse_ops(text, facts=facts),
            call=len(plan.responses),
            retry=self.retry,
        )
        for op in asked.parsed.values:
            plan.take(op)
        plan.rejected += asked.parsed.rejected
        plan.statuses += asked.statuses
        plan.responses += asked.responses


@dataclass(slots=True)
class _Plan:
    """What the calls of one chunk have decided so far."""

    ops: list[MemoryOp] = field(default_factory=list[MemoryOp])
    changed: dict[str, int] = field(default_factory=dict[str, int])
    """Item id to the place of the op that changes it."""
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    statuses: list[ParseStatus] = field(default_factory=list[ParseStatus])
    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    settled: int = 0

    def take(self, op: MemoryOp) -> None:
        """Note an op; a change of an item that an earlier call updated takes that op's place."""
        at = self.changed.get(op.id) if isinstance(op, Update | Delete) else None
        if at is not None and at < self.settled and isinstance(op, Update | Delete):
            self.ops[at] = _merged(self.ops[at], op)
            return
        if isinstance(op, Update | Delete):
            self.changed.setdefault(op.id, len(self.ops))
        self.ops.append(op)

    def as_it_stands(self, hits: Iterable[Hit]) -> list[Hit]:
        """The active items among the hits as the decided ops leave them; starts a new call."""
        self.settled = len(self.ops)
        shown: list[Hit] = []
        for hit in hits:
            if hit.item is None or not hit.item.active:
                continue
            op = self.ops[self.changed[hit.id]] if hit.id in self.changed else None
            if isinstance(op, Update):
                shown.append(
                    hit.model_copy(
                        update={
                            "item": hit.item.model_copy(update={"text": op.text, "valid": op.valid})
                        }
                    )
                )
            elif op is None:
                shown.append(hit)
        return shown


def _merged(old: MemoryOp, new: Update | Delete) -> MemoryOp:
    """The later change of an item, resting on the turns of both; a deletion is not taken back."""
    if not isinstance(old, Update):
        return old
    sources = tuple(dict.fromkeys((*old.source_turn_ids, *new.source_turn_ids)))
    if isinstance(new, Delete):
        return new.model_copy(update={"source_turn_ids": sources})
    return new.model_copy(update={"source_turn_ids": sources, "valid": new.valid or old.valid})
