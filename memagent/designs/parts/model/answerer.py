"""An answerer that shows the memories in order of time and has the model select first.

The selection is the reply's first key, so the answer is written with it in view. It is
also the list of citations, which the `cite` step checks against what was shown. Without
hits and without tools it abstains without a call. Where one memory shown replaced
another or contradicts it, the prompt names both with their dates, and so do the
answer's notes, by rule and whatever the model wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.exchange import JsonSchema, ModelResponse, Role
from memagent.designs.base import SlotContext
from memagent.designs.parts.asking import TEXT, TEXTS, ask_about, object_schema, question_values
from memagent.designs.parts.changes import change_lines, change_notes
from memagent.designs.parts.lines import hit_lines, in_time_order, named, short_names
from memagent.designs.parts.rules.overview import overview
from memagent.designs.prompting import OnePrompt, fence
from memagent.replies.answers import AnswerDraft, parse_answer
from memagent.state.versions import clashes

ANSWER_SCHEMA: Final[JsonSchema] = object_schema(
    {"citations": TEXTS, "answer": TEXT, "abstain": {"type": "boolean"}}
)
NO_ANSWER: Final = "I don't know."
"""The text of an answer that abstains without words of its own."""
UNREADABLE: Final = "the model's reply could not be read"


@dataclass(frozen=True, kw_only=True)
class ModelAnswerer(OnePrompt):
    """Answers a question from its hits with one model call."""

    prompt: str = "answer"

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the answer with the citations the model gave, unchecked.

        It is UNSUPPORTED without citations, and ABSTAINED when the model says so, when
        its reply cannot be read, and when there is nothing to show.
        """
        if (listed := overview(question, ctx)) is not None:
            return listed
        if nothing_to_show(hits, ctx):
            return no_evidence(question)
        shown = in_time_order(hits)
        names = short_names(shown)
        changes = clashes(shown, ctx.bank.state)
        reply = await ask_for_answer(
            question,
            ctx,
            self.prompt,
            ANSWER_SCHEMA,
            memories=fence("memories", hit_lines(shown, names)),
            changes=fence("changes", change_lines(changes, names)) if changes else "",
            **question_values(question),
        )
        said = reply.draft.citations if reply.draft else ()
        return reply.answer(
            question,
            shown,
            [Citation(hit_id=named(names, cited)) for cited in reply.cited],
            notes=change_notes(changes, [named(names, cited) for cited in said]),
        )


@dataclass(frozen=True, slots=True)
class AnswerReply:
    """A reply of the answerer's model; `draft` is None when it cannot be read."""

    response: ModelResponse
    draft: AnswerDraft | None

    @property
    def abstained(self) -> bool:
        """Whether the model gives no answer."""
        return self.draft is None or self.draft.abstain

    @property
    def cited(self) -> tuple[str, ...]:
        """The ids cited; () for an abstention."""
        return () if self.draft is None or self.draft.abstain else self.draft.citations

    def answer(
        self,
        question: Question,
        shown: Sequence[Hit],
        citations: Sequence[Citation],
        *,
        notes: Iterable[str] = (),
        sessions: tuple[str, ...] = (),
    ) -> Answer:
        """Return the answer; an abstention drops citations and evidence sessions."""
        supported = Verdict.SUPPORTED if citations else Verdict.UNSUPPORTED
        return Answer(
            text=(self.draft.text if self.draft else "") or NO_ANSWER,
            citations=() if self.abstained else tuple(citations),
            verdict=Verdict.ABSTAINED if self.abstained else supported,
            notes=(*((UNREADABLE,) if self.draft is None else ()), *notes),
            hits=tuple(shown),
            evidence_sessions=() if self.abstained else sessions,
            usage=self.response.usage,
            response_ids=(self.response.id,),
            question=question,
        )


async def ask_for_answer(
    question: Question, ctx: SlotContext, prompt: str, schema: JsonSchema, /, **values: str
) -> AnswerReply:
    """Fill the prompt with `values`, ask the answerer's model once and read its reply."""
    response = await ask_about(question, ctx, Role.ANSWERER, prompt, schema, **values)
    parsed = parse_answer(response.text)
    return AnswerReply(response, parsed.values[0] if parsed.values else None)


def nothing_to_show(hits: Sequence[Hit], ctx: SlotContext) -> bool:
    """Say whether there are neither hits nor tools that could find some."""
    return not (hits or ctx.tools or ctx.transcript)


def no_evidence(question: Question) -> Answer:
    """Abstain because memory holds nothing to show."""
    return Answer(
        text=NO_ANSWER,
        verdict=Verdict.ABSTAINED,
        notes=("nothing in memory bears on this",),
        question=question,
    )
