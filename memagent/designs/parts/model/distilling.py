"""An answerer that selects in a call of its own and answers from the selected memories alone.

Memory-R1's distillation as two calls: an answering model that many look-alikes mislead
does not see them when it answers. Both calls are the answerer's, so both are trained.
Where nothing readable is selected, the answer is given from all hits, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from memagent.core.answers import Answer, Hit, Question
from memagent.core.exchange import JsonSchema, Role
from memagent.designs.base import Answerer, SlotContext
from memagent.designs.parts.asking import TEXTS, ask_about, object_schema, question_values
from memagent.designs.parts.lines import hit_line, in_time_order
from memagent.designs.parts.model.answerer import ModelAnswerer
from memagent.designs.prompting import Prompt, fence, load_prompt, prompts_of
from memagent.replies.json_answer import extract_json

DISTIL_SCHEMA: Final[JsonSchema] = object_schema({"useful": TEXTS})
ALL_SHOWN: Final = "no selection of memories could be read; the answer is from all of them"


@dataclass(frozen=True, kw_only=True)
class DistillingAnswerer:
    """Selects the useful hits with one call, then has `base` answer from them."""

    base: Answerer = ModelAnswerer()
    most_unselected: int = 5
    """So many hits are answered from without a selection."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompt of the selection, and those of the base."""
        return (load_prompt("distil"), *prompts_of(self.base))

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the base's answer; it lists all hits, and the cost of both calls."""
        if len(hits) <= self.most_unselected:
            return await self.base(question, hits, ctx)
        response = await ask_about(
            question,
            replace(ctx, tools=(), transcript=()),
            Role.ANSWERER,
            "distil",
            DISTIL_SCHEMA,
            memories=fence("memories", map(hit_line, in_time_order(hits))),
            **question_values(question),
        )
        useful = parse_selection(response.text)
        selected = [hit for hit in hits if useful and hit.id in useful]
        unread = not selected and useful != frozenset()
        answer = await self.base(question, hits if unread else selected, ctx)
        return answer.model_copy(
            update={
                "hits": tuple(in_time_order(hits)),
                "usage": response.usage + answer.usage,
                "response_ids": (response.id, *answer.response_ids),
                "notes": (*([ALL_SHOWN] if unread else []), *answer.notes),
            }
        )


def parse_selection(text: str) -> frozenset[str] | None:
    """Read the selected ids; None when the reply holds no list of them."""
    value = extract_json(text).value
    listed = value.get("useful") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        return None
    return frozenset(str(name).strip().strip("[]") for name in listed)
