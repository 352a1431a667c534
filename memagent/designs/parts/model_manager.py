"""Slots for small models: short prompts in which turns and memories go by small numbers.

A hash id costs a small model a dozen tokens to read and as many chances to miscopy it;
a number costs one. Numbers are the places in what was shown, so an unknown number stays
as it is and is refused like any unknown id. Replies have the same JSON form as
everywhere, and everything behind them (grounding, validation, citing) is the same. An
entry begins with the number of what it speaks of, so that a model has looked there
before it says the rest, and an UPDATE writes its fact unless it brings another text:
what need not be copied cannot be miscopied.

A manager that asks a model what each fact does to memory.

It decides about all facts of a chunk at once, or about a few at a time. With
`facts_per_call` the calls follow one another, and each sees what the earlier ones
decided: changed texts in place of the old, deleted memories gone, added facts listed
without an id. Two changes of one memory become one op, the later wording on both
sources, so that the batch still holds at most one op an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question
from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Add, Delete, MemoryOp, Update
from memagent.core.records import Chunk, Fact, TimeSpan
from memagent.designs.base import (
    OnePrompt,
    Proposal,
    Related,
    SlotContext,
    fence,
    load_prompt,
    quoted,
)
from memagent.designs.parts.lines import (
    INTEGER,
    TEXT,
    TEXT_OR_NULL,
    UNREAD,
    JsonCall,
    JsonReply,
    ask_for_json,
    fact_lines,
    hit_lines,
    in_time_order,
    list_schema,
    named,
    object_schema,
    short_names,
)
from memagent.designs.parts.model_answerer import ANSWER_SCHEMA, ask_for_answer, no_evidence
from memagent.designs.parts.model_extractor import FactReading, turns_before
from memagent.replies.readers import parse_ops
from memagent.search.cuts import budget, token_estimate
from memagent.timex.resolve import format_span

# About what a line costs besides its text: name, speaker, time.
_LINE_TOKENS: Final = 12


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
            if ctx.strict and plan.replies[-1].statuses[-1] in UNREAD:
                break  # asked twice; the guard adds what is not decided
        return Proposal(
            values=tuple(plan.ops),
            rejected=tuple(bad for reply in plan.replies for bad in reply.parsed.rejected),
            parse=tuple(status for reply in plan.replies for status in reply.statuses),
            repairs=tuple(repair for reply in plan.replies for repair in reply.repairs),
            responses=tuple(call for reply in plan.replies for call in reply.responses),
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
            ordinal=sum(len(earlier.responses) for earlier in plan.replies),
            retry=self.retry,
        )
        for op in reply.parsed.values:
            places = tuple(first + place for place in op.about)
            own = with_id(op, lambda shown: named(names, shown))
            plan.add(own.model_copy(update={"about": places}))
        plan.replies.append(reply)

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
    replies: list[JsonReply[MemoryOp]] = field(default_factory=list[JsonReply[MemoryOp]])
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


def with_id(op: MemoryOp, id_of: Callable[[str], str]) -> MemoryOp:
    """Return an op on the memory whose name in the prompt it gives, by `id_of`."""
    if isinstance(op, Add) or op.id is None:
        return op
    return op.model_copy(update={"id": id_of(op.id)})


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


def _op(op: str, **fields: JsonSchema) -> JsonSchema:
    return object_schema({"fact": INTEGER, "op": op_schema(op), **fields})


BRIEF_FACTS_SCHEMA: Final[JsonSchema] = list_schema(
    "facts", object_schema({"source": TEXT, "text": TEXT})
)
BRIEF_OPS_SCHEMA: Final[JsonSchema] = list_schema(
    "ops",
    {
        "anyOf": [
            _op("ADD"),
            _op("UPDATE", id=TEXT),
            _op("UPDATE", id=TEXT, text=TEXT),
            _op("DELETE", id=TEXT),
            _op("NOOP", id=TEXT),
            _op("NOOP"),
        ]
    },
)
"""An UPDATE may bring its own text, a NOOP may name the memory that says it already."""


@dataclass(frozen=True, kw_only=True)
class BriefExtractor(OnePrompt):
    """Turns a chunk into facts with one call; turns go by their number in the chunk."""

    prompt: str = "extract_brief"

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Return facts in the order written.

        Entries that name no turn of the chunk are rejected.
        """
        prompt = load_prompt(self.prompt)
        lines = (f"{quoted(turn.speaker)}: {quoted(turn.said)}" for turn in chunk.turns)
        values = {
            "date": f"{chunk.at:%d %B %Y}".lstrip("0") if chunk.at else "",
            "dialogue": _numbered(lines),
        }
        values = {name: text for name, text in values.items() if name in prompt.slots}
        reading = FactReading(
            chunk=chunk,
            earlier=turns_before(chunk, ctx, 1),
            prompt=prompt,
            turn_ids=_by_number(turn.id for turn in chunk.turns),
        )
        return await reading.ask(ctx, BRIEF_FACTS_SCHEMA, values, retry=False)


@dataclass(frozen=True, kw_only=True)
class BriefManager(OnePrompt):
    """Turns facts and related memories, by their number, into ops with one call.

    Without facts, no call.
    """

    prompt: str = "manage_brief"

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return ops in the order decided.

        A number that was not shown stays as it is, for validation to refuse.
        """
        if not related:
            return Proposal()
        facts = [entry.fact for entry in related]
        hits = {
            hit.id: hit for entry in related for hit in entry.hits if hit.item and hit.item.active
        }
        reply = await ask_for_json(
            ctx,
            JsonCall(
                role=Role.MANAGER,
                prompt=load_prompt(self.prompt),
                schema=BRIEF_OPS_SCHEMA,
                parse=lambda text: parse_ops(text, facts=facts, fact_is_text=True),
            ),
            {
                "facts": _numbered(_line(fact.text, fact.valid) for fact in facts),
                "memories": _memory_lines(hits.values()),
            },
            ordinal=0,
            retry=False,
        )
        ids = _by_number(hits)
        return reply.proposal(
            with_id(op, lambda shown: ids.get(shown.strip(), shown)) for op in reply.parsed.values
        )


@dataclass(frozen=True, kw_only=True)
class BriefAnswerer(OnePrompt):
    """Answers a question from its hits, by their number in order of time, with one call."""

    prompt: str = "answer_brief"

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the answer; UNSUPPORTED without citations.

        It is ABSTAINED when the reply says so or cannot be read, and without hits.
        """
        if not hits:
            return no_evidence(question)
        shown = in_time_order(hits)
        reply = await ask_for_answer(
            question,
            ctx,
            self.prompt,
            ANSWER_SCHEMA,
            memories=_memory_lines(shown),
            question=quoted(question.text),
        )
        ids = _by_number(hit.id for hit in shown)
        citations = [Citation(hit_id=ids.get(cited.strip(), cited)) for cited in reply.cited]
        return reply.answer(question, shown, citations)


def _memory_lines(hits: Iterable[Hit]) -> str:
    return _numbered(_line(hit.text, hit.item.valid if hit.item else None) for hit in hits)


def _line(text: str, valid: TimeSpan | None) -> str:
    """Write a text, with its time unless the text has figures itself."""
    if valid is None or any(sign.isdigit() for sign in text):
        return quoted(text)
    return f"{quoted(text)} ({format_span(valid)})"


def _numbered(lines: Iterable[str]) -> str:
    return "\n".join(f"{place} {line}" for place, line in enumerate(lines)) or "none"


def _by_number(ids: Iterable[str]) -> Mapping[str, str]:
    return {str(place): name for place, name in enumerate(ids)}
