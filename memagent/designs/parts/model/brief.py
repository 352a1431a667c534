"""Slots for small models: short prompts in which turns and memories go by small numbers.

A hash id costs a small model a dozen tokens to read and as many chances to miscopy it;
a number costs one. Numbers are the places in what was shown, so an unknown number stays
as it is and is refused like any unknown id. Replies have the same JSON form as
everywhere, and everything behind them (grounding, validation, citing) is the same. An
entry begins with the number of what it speaks of, so that a model has looked there
before it says the rest, and an UPDATE writes its fact unless it brings another text:
what need not be copied cannot be miscopied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question
from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Add, MemoryOp, Noop
from memagent.core.records import Chunk, Fact, TimeSpan
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.parts.asking import (
    INTEGER,
    TEXT,
    JsonCall,
    ask_for_json,
    list_schema,
    object_schema,
)
from memagent.designs.parts.lines import in_time_order
from memagent.designs.parts.model.answerer import (
    ANSWER_SCHEMA,
    ask_for_answer,
    no_evidence,
)
from memagent.designs.parts.model.extractor import FactReading, turns_before
from memagent.designs.parts.model.manager import op_schema
from memagent.designs.prompting import OnePrompt, load_prompt, quoted
from memagent.replies.ops import parse_ops
from memagent.timex.resolve import format_span


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
    retry: bool = False

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
        reply = await ask_for_json(
            ctx, reading.call(BRIEF_FACTS_SCHEMA), values, ordinal=0, retry=self.retry
        )
        return reply.proposal(reply.parsed.values)


@dataclass(frozen=True, kw_only=True)
class BriefManager(OnePrompt):
    """Turns facts and related memories, by their number, into ops with one call.

    Without facts, no call.
    """

    prompt: str = "manage_brief"
    retry: bool = False

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
            retry=self.retry,
        )
        ids = _by_number(hits)
        return reply.proposal(_with_id(op, ids) for op in reply.parsed.values)


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


def _with_id(op: MemoryOp, ids: Mapping[str, str]) -> MemoryOp:
    if isinstance(op, Add) or (isinstance(op, Noop) and op.id is None):
        return op
    return op.model_copy(update={"id": ids.get((op.id or "").strip(), op.id)})
