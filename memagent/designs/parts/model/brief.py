"""Slots for small models: short prompts in which turns and memories go by small numbers.

A hash id costs a small model a dozen tokens to read and as many chances to miscopy it;
a number costs one. Numbers are the places in what was shown, so a number that was not
shown stays what it is and is refused like any unknown id. Replies have the same JSON
form as everywhere, and everything behind them (grounding, validation, citing) is the
same. An entry begins with the number of what it speaks of, so that a model has looked
there before it says the rest, and an UPDATE writes its fact unless it brings another
text: what need not be copied cannot be miscopied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Add, MemoryOp, Noop, Rejected
from memagent.core.records import Chunk, Fact, TimeSpan
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.parts.asking import ask
from memagent.designs.parts.model.answerer import (
    ANSWER_SCHEMA,
    NO_ANSWER,
    UNREADABLE,
    in_time_order,
    nothing_found,
)
from memagent.designs.parts.model.extractor import ground
from memagent.designs.parts.model.manager import op_form
from memagent.designs.prompting import Prompt, load_prompt, quoted
from memagent.replies.answers import parse_answer
from memagent.replies.facts import parse_facts
from memagent.replies.ops import parse_ops
from memagent.timex.resolve import format_span

_TEXT: Final[JsonSchema] = {"type": "string"}


def _form(op: str, **fields: JsonSchema) -> JsonSchema:
    """One kind of op in a reply: which fact, what it does, to which memory, in this order."""
    form = op_form(op, **fields)
    properties = {"fact": {"type": "integer"}, **form["properties"]}
    return {**form, "required": list(properties), "properties": properties}


BRIEF_FACTS_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["source", "text"],
                "properties": {"source": _TEXT, "text": _TEXT},
            },
        }
    },
}
"""What the extractor's reply should look like: turn and text, no more."""
BRIEF_OPS_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ops"],
    "properties": {
        "ops": {
            "type": "array",
            "items": {
                "anyOf": [
                    _form("ADD"),
                    _form("UPDATE", id=_TEXT),
                    _form("UPDATE", id=_TEXT, text=_TEXT),
                    _form("DELETE", id=_TEXT),
                    _form("NOOP", id=_TEXT),
                    _form("NOOP"),
                ]
            },
        }
    },
}
"""What the manager's reply should look like; an UPDATE may bring its own text, a NOOP may
name the memory that says it already.
"""


@dataclass(frozen=True, kw_only=True)
class BriefExtractor:
    """Chunk to facts with one call; turns go by their number in the chunk."""

    prompt: str = "extract_brief"
    retry: bool = False

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Facts in the order written; entries that name no turn of the chunk are rejected."""
        prompt = load_prompt(self.prompt)
        values = {
            "date": f"{chunk.at:%d %B %Y}".lstrip("0") if chunk.at else "",
            "dialogue": _numbered(
                f"{quoted(turn.speaker)}: {quoted(turn.said)}" for turn in chunk.turns
            ),
        }
        asked = await ask(
            ctx,
            Role.EXTRACTOR,
            prompt,
            values={name: text for name, text in values.items() if name in prompt.slots},
            schema=BRIEF_FACTS_SCHEMA,
            parse=parse_facts,
            call=0,
            retry=self.retry,
        )
        turns = _places([turn.id for turn in chunk.turns])
        read: list[Fact | Rejected] = []
        for draft in asked.parsed.values:
            sources = tuple(turns.get(source.strip(), source) for source in draft.source_turn_ids)
            read.append(ground(draft.model_copy(update={"source_turn_ids": sources}), chunk))
        return Proposal(
            values=tuple(fact for fact in read if isinstance(fact, Fact)),
            rejected=(*asked.parsed.rejected, *(bad for bad in read if isinstance(bad, Rejected))),
            parse=asked.statuses,
            responses=asked.responses,
        )


@dataclass(frozen=True, kw_only=True)
class BriefManager:
    """Facts and the memories that bear on them to ops with one call; memories go by their number.

    No facts, no call.
    """

    prompt: str = "manage_brief"
    retry: bool = False

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Ops in the order decided; a number that was not shown stays as it is, for
        validation to refuse.
        """
        if not related:
            return Proposal()
        facts = [entry.fact for entry in related]
        hits = [
            *{
                hit.id: hit
                for entry in related
                for hit in entry.hits
                if hit.item and hit.item.active
            }.values()
        ]
        asked = await ask(
            ctx,
            Role.MANAGER,
            load_prompt(self.prompt),
            values={
                "facts": _numbered(_line(fact.text, fact.valid) for fact in facts),
                "memories": memory_lines(hits),
            },
            schema=BRIEF_OPS_SCHEMA,
            parse=lambda text: parse_ops(text, facts=facts, fact_is_text=True),
            call=0,
            retry=self.retry,
        )
        ids = _places([hit.id for hit in hits])
        return Proposal(
            values=tuple(_with_id(op, ids) for op in asked.parsed.values),
            rejected=asked.parsed.rejected,
            parse=asked.statuses,
            responses=asked.responses,
        )


@dataclass(frozen=True, kw_only=True)
class BriefAnswerer:
    """Question and hits to an answer with one call; memories stand in order of time and
    go by their number.
    """

    prompt: str = "answer_brief"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """UNSUPPORTED without citations; ABSTAINED when the reply says so, cannot be
        read, or nothing is to be shown.
        """
        if not hits:
            return nothing_found(question)
        prompt, shown = load_prompt(self.prompt), in_time_order(hits)
        messages = prompt.messages(memories=memory_lines(shown), question=quoted(question.text))
        response = await ctx.call(
            Role.ANSWERER,
            messages,
            schema=ANSWER_SCHEMA,
            question_id=question.id,
            prompt_digest=prompt.digest,
        )
        parsed = parse_answer(response.text)
        draft = parsed.values[0] if parsed.values else None
        abstained = draft is None or draft.abstain
        ids = _places([hit.id for hit in shown])
        cited = (
            ()
            if draft is None or abstained
            else tuple(ids.get(one.strip(), one) for one in draft.citations)
        )
        return Answer(
            text=(draft.text if draft else "") or NO_ANSWER,
            citations=tuple(Citation(hit_id=one) for one in cited),
            verdict=Verdict.ABSTAINED
            if abstained
            else Verdict.SUPPORTED
            if cited
            else Verdict.UNSUPPORTED,
            notes=() if draft else (UNREADABLE,),
            hits=tuple(shown),
            usage=response.usage,
            response_ids=(response.id,),
            question=question,
        )


def memory_lines(hits: Sequence[Hit]) -> str:
    """The items under their numbers, each with the time it speaks of."""
    return _numbered(_line(hit.text, hit.item.valid if hit.item else None) for hit in hits)


def _line(text: str, valid: TimeSpan | None) -> str:
    """The text, with its time where it names none in figures itself."""
    untold = valid is not None and not any(sign.isdigit() for sign in text)
    return f"{quoted(text)} ({format_span(valid)})" if valid and untold else quoted(text)


def _numbered(lines: Iterable[str]) -> str:
    return "\n".join(f"{place} {line}" for place, line in enumerate(lines)) or "none"


def _places(ids: Sequence[str]) -> Mapping[str, str]:
    """Number as text to id."""
    return {str(place): one for place, one in enumerate(ids)}


def _with_id(op: MemoryOp, ids: Mapping[str, str]) -> MemoryOp:
    """The op with the id behind its number."""
    if isinstance(op, Add) or (isinstance(op, Noop) and op.id is None):
        return op
    return op.model_copy(update={"id": ids.get((op.id or "").strip(), op.id)})
