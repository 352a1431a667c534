"""An answerer that shows the memories in order of time, lets the model select, then answer from what it selected.

The selection is the reply's first key, so the answer is written with it in view; it also is the list of citations,
which the `cite` step checks against what was shown. Nothing found and no tools to ask: it abstains without a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.exchange import JsonSchema, Role
from memagent.designs.base import SlotContext
from memagent.designs.parts.lines import day_of, hit_line
from memagent.designs.parts.prompting import fence, load_prompt, quoted
from memagent.memory.parsing import parse_answer

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


@dataclass(frozen=True, kw_only=True)
class ModelAnswerer:
    """Question and hits to an answer with one model call."""

    prompt: str = "answer"

    async def __call__(self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /) -> Answer:
        """The answer with the citations the model gave, unchecked.

        UNSUPPORTED when it gave none; ABSTAINED when it says so, when its reply cannot be read, and when there is nothing to show.
        """
        if not hits and not ctx.tools and not ctx.transcript:
            return Answer(
                text=NO_ANSWER, verdict=Verdict.ABSTAINED, notes=("nothing in memory bears on this",), question=question
            )
        prompt = load_prompt(self.prompt)
        shown = in_time_order(hits)
        messages = prompt.messages(
            memories=fence("memories", (hit_line(hit, version=False) for hit in shown)),
            asked=f"The question is asked on {day_of(question.asked_at)}." if question.asked_at else "",
            question=fence("question", [quoted(question.text)]),
        )
        response = await ctx.call(
            Role.ANSWERER, messages, schema=ANSWER_SCHEMA, question_id=question.id, prompt_digest=prompt.digest
        )
        parsed = parse_answer(response.text)
        draft = parsed.values[0] if parsed.values else None
        abstained = draft is None or draft.abstain
        citations = () if draft is None or abstained else tuple(Citation(hit_id=cited) for cited in draft.citations)
        return Answer(
            text=(draft.text if draft else "") or NO_ANSWER,
            citations=citations,
            verdict=Verdict.ABSTAINED if abstained else Verdict.SUPPORTED if citations else Verdict.UNSUPPORTED,
            notes=("the model's reply could not be read",) if draft is None else (),
            hits=tuple(shown),
            usage=response.usage,
            response_ids=(response.id,),
            question=question,
        )


def in_time_order(hits: Sequence[Hit]) -> list[Hit]:
    """Hits by the day they were said, undated ones first; as given within a moment."""
    return sorted(hits, key=_moment)


def _moment(hit: Hit) -> float:
    known = hit.item or hit.event
    when: datetime | None = (known.said_at or (known.valid.start if known.valid else None)) if known else None
    return when.timestamp() if when else float("-inf")
