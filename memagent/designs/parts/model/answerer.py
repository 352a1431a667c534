"""An answerer that shows the memories in order of time, lets the model select, then
answer from what it selected.

The selection is the reply's first key, so the answer is written with it in view; it
also is the list of citations, which the `cite` step checks against what was shown.
Nothing found and no tools to ask: it abstains without a call. Where one memory shown
replaced another or contradicts it, the prompt names both with their dates, and so do
the answer's notes, by rule and whatever the model wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.exchange import JsonSchema, ModelResponse, Role
from memagent.designs.base import SlotContext
from memagent.designs.parts.changes import change_lines, change_notes
from memagent.designs.parts.lines import day_of, hit_line
from memagent.designs.prompting import Prompt, fence, load_prompt, quoted
from memagent.replies.answers import AnswerDraft, parse_answer
from memagent.state.versions import clashes

ANSWER_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["citations", "answer", "abstain"],
    "properties": {
        "citations": {"type": "array", "items": {"type": "string"}},
        "answer": {"type": "string"},
        "abstain": {"type": "boolean"},
    },
}
"""What the answerer's reply should look like."""

NO_ANSWER: Final = "I don't know."
"""The text of an answer that abstains without words of its own."""
UNREADABLE: Final = "the model's reply could not be read"


@dataclass(frozen=True, kw_only=True)
class ModelAnswerer:
    """Question and hits to an answer with one model call."""

    prompt: str = "answer"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """The answer with the citations the model gave, unchecked.

        UNSUPPORTED when it gave none; ABSTAINED when it says so, when its reply cannot
        be read, and when there is nothing to show.
        """
        if not hits and not ctx.tools and not ctx.transcript:
            return nothing_found(question)
        shown = in_time_order(hits)
        found = clashes(shown, ctx.bank.state)
        response, draft = await asked_for(
            question,
            ctx,
            load_prompt(self.prompt),
            schema=ANSWER_SCHEMA,
            memories=fence("memories", (hit_line(hit, version=False) for hit in shown)),
            changes=fence("changes", change_lines(found)) if found else "",
        )
        abstained = draft is None or draft.abstain
        citations = (
            ()
            if draft is None or abstained
            else tuple(Citation(hit_id=cited) for cited in draft.citations)
        )
        return Answer(
            text=(draft.text if draft else "") or NO_ANSWER,
            citations=citations,
            verdict=Verdict.ABSTAINED
            if abstained
            else Verdict.SUPPORTED
            if citations
            else Verdict.UNSUPPORTED,
            notes=(
                *((UNREADABLE,) if draft is None else ()),
                *change_notes(found, draft.citations if draft else ()),
            ),
            hits=tuple(shown),
            usage=response.usage,
            response_ids=(response.id,),
            question=question,
        )


async def asked_for(
    question: Question, ctx: SlotContext, prompt: Prompt, *, schema: JsonSchema, **values: str
) -> tuple[ModelResponse, AnswerDraft | None]:
    """One answerer call, with the day and the words of the question filled in beside
    `values`; None for an unreadable reply.
    """
    messages = prompt.messages(
        asked=f"The question is asked on {day_of(question.asked_at)}." if question.asked_at else "",
        question=fence("question", [quoted(question.text)]),
        **values,
    )
    response = await ctx.call(
        Role.ANSWERER, messages, schema=schema, question_id=question.id, prompt_digest=prompt.digest
    )
    parsed = parse_answer(response.text)
    return response, parsed.values[0] if parsed.values else None


def nothing_found(question: Question) -> Answer:
    """The abstention where there was nothing to show."""
    return Answer(
        text=NO_ANSWER,
        verdict=Verdict.ABSTAINED,
        notes=("nothing in memory bears on this",),
        question=question,
    )


def in_time_order(hits: Sequence[Hit]) -> list[Hit]:
    """Hits by the day they were said, undated ones first; as given within a moment."""
    return sorted(hits, key=_moment)


def _moment(hit: Hit) -> float:
    known = hit.item or hit.event
    when: datetime | None = (
        (known.said_at or (known.valid.start if known.valid else None)) if known else None
    )
    return when.timestamp() if when else float("-inf")
