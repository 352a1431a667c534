"""A manager that asks a model what each fact does to memory.

It decides about all facts of a chunk at once, or about a few at a time. With
`facts_per_call` the calls follow one another, and each sees what the earlier ones
decided: changed texts in place of the old, deleted memories gone, added facts listed
without an id. Two changes of one memory become one op, the later wording on both
sources, so that the batch still holds at most one op an item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from memagent.core.answers import Hit
from memagent.core.exchange import JsonSchema, ModelResponse, Role
from memagent.core.ops import Add, Delete, MemoryOp, ParseStatus, Rejected, Repair, Update
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.parts.asking import (
    INTEGER,
    TEXT,
    TEXT_OR_NULL,
    UNREAD,
    JsonCall,
    ask_for_json,
    list_schema,
    object_schema,
)
from memagent.designs.parts.lines import (
    fact_lines,
    hit_lines,
    in_time_order,
    named,
    short_names,
)
from memagent.designs.prompting import OnePrompt, fence, load_prompt, quoted
from memagent.replies.ops import parse_ops
from memagent.search.cuts import budget, token_estimate

_LINE_TOKENS: Final = 12
"""About what a line costs besides its text: name, speaker, time."""


def op_schema(op: str) -> JsonSchema:
    """Describe the name of an op."""
    return {"type": "string", "const": op}


OPS_SCHEMA: Final[JsonSchema] = list_schema(
    "ops",
    {
        "anyOf": [
            object_schema({"op": op_schema("ADD"), "fact": INTEGER}),
            object_schema({"op": op_schema("UPDATE"), "id": TEXT, "text": TEXT, "fact": INTEGER}),
            object_schema({"op": op_schema("DELETE"), "id": TEXT, "fact": INTEGER}),
            object_schema({"op": op_schema("NOOP"), "fact": INTEGER, "id": TEXT_OR_NULL}),
        ]
    },
)


@dataclass(frozen=True, kw_only=True)
class ModelManager(OnePrompt):
    """Turns facts, and the memories that bear on them, into ops. Without facts, no call.

    The prompt may use the slots `facts`, `memories`, `graph` (linked events) and
    `recent` (facts added by earlier calls).
    """

    facts_per_call: int | None = None
    """Facts decided by one call; None for all facts of the chunk."""
    memory_tokens: int = 1_200
    """Most tokens (estimated) of the memories shown to one call; of each fact the best hits
    come before the next ones, and the best hit of all is always shown.
    """
    retry: bool = True

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return ops in the order decided, ids unchecked."""
        plan = _Plan()
        size = self.facts_per_call or max(1, len(related))
        for start in range(0, len(related), size):
            await self._decide(related[start : start + size], ctx, plan, start)
            if ctx.strict and plan.statuses[-1] in UNREAD:
                break  # asked twice; the guard adds what is not decided
        return Proposal(
            values=tuple(plan.ops),
            rejected=tuple(plan.rejected),
            parse=tuple(plan.statuses),
            repairs=tuple(plan.repairs),
            responses=tuple(plan.responses),
        )

    async def _decide(
        self, related: Sequence[Related], ctx: SlotContext, plan: _Plan, first: int
    ) -> None:
        prompt = load_prompt(self.prompt)
        facts = [entry.fact for entry in related]
        ranks = zip_longest(*(entry.hits for entry in related))
        hits = {hit.id: hit for rank in ranks for hit in rank if hit is not None}.values()
        current = in_time_order(self._affordable(plan.start_call(hits)))
        events = in_time_order(hit for hit in hits if hit.item is None)
        names = short_names((*current, *events))
        lines = {
            "facts": fact_lines(facts),
            "memories": hit_lines(current, names),
            "graph": hit_lines(events, names),
            "recent": (f"- {quoted(op.fact.text)}" for op in plan.ops if isinstance(op, Add)),
        }
        reply = await ask_for_json(
            ctx,
            JsonCall(
                role=Role.MANAGER,
                prompt=prompt,
                schema=OPS_SCHEMA,
                parse=lambda text: parse_ops(text, facts=facts),
            ),
            {name: fence(name, lines[name]) for name in lines if name in prompt.slots},
            ordinal=len(plan.responses),
            retry=self.retry,
        )
        for op in reply.parsed.values:
            places = tuple(first + place for place in op.about)
            plan.add(with_id(op, names).model_copy(update={"about": places}))
        plan.rejected += reply.parsed.rejected
        plan.statuses += reply.statuses
        plan.repairs += reply.repairs
        plan.responses += reply.responses

    def _affordable(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits whose lines fit the budget, at least one."""
        costs = [token_estimate(hit.text) + _LINE_TOKENS for hit in hits]
        return [hits[at] for at in budget(costs, most=self.memory_tokens)] or list(hits[:1])


@dataclass(slots=True)
class _Plan:
    """The decisions of a chunk's calls so far."""

    ops: list[MemoryOp] = field(default_factory=list[MemoryOp])
    changed: dict[str, int] = field(default_factory=dict[str, int])
    """Item id to the place of the op that changes it."""
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    statuses: list[ParseStatus] = field(default_factory=list[ParseStatus])
    repairs: list[Repair] = field(default_factory=list[Repair])
    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    settled: int = 0
    """Number of ops that earlier calls decided."""

    def add(self, op: MemoryOp) -> None:
        """Add an op; it replaces an earlier call's op on the same item."""
        if isinstance(op, Update | Delete):
            place = self.changed.setdefault(op.id, len(self.ops))
            if place < self.settled:
                self.ops[place] = _merged(self.ops[place], op)
                return
        self.ops.append(op)

    def start_call(self, hits: Iterable[Hit]) -> list[Hit]:
        """Settle the ops so far and return the active items as these ops leave them."""
        self.settled = len(self.ops)
        current: list[Hit] = []
        for hit in hits:
            if hit.item is None or not hit.item.active:
                continue
            op = self.ops[self.changed[hit.id]] if hit.id in self.changed else None
            if isinstance(op, Update):
                item = hit.item.model_copy(update={"text": op.text, "valid": op.valid})
                current.append(hit.model_copy(update={"item": item}))
            elif op is None:
                current.append(hit)
        return current


def with_id(op: MemoryOp, names: Mapping[str, str]) -> MemoryOp:
    """Return an op on the memory whose short name it gives; an unknown name stays."""
    if isinstance(op, Add) or op.id is None:
        return op
    return op.model_copy(update={"id": named(names, op.id)})


def _merged(old: MemoryOp, new: Update | Delete) -> MemoryOp:
    """Return the later change of an item on the turns of both; a deletion stays."""
    if not isinstance(old, Update):
        return old.model_copy(update={"about": (*old.about, *new.about)})
    update: dict[str, object] = {
        "about": (*old.about, *new.about),
        "source_turn_ids": tuple(dict.fromkeys((*old.source_turn_ids, *new.source_turn_ids))),
    }
    if isinstance(new, Update):
        update["valid"] = new.valid or old.valid
    return new.model_copy(update=update)
