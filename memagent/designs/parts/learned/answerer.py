"""Short answers: the span that the network marks in the evidence that the rules choose.

The rules find the statement, judge it and quote it (`rules.answerer`); this slot only
says which of its words answer: the value, the subject for a question that names the
value, or the time. Where no span fits, the quotation stays the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question
from memagent.core.records import MemoryItem
from memagent.designs.base import SlotContext
from memagent.designs.parts.learned.reading import Clause, TurnText, shipped_reader
from memagent.designs.parts.rules.answerer import EvidenceAnswerer
from memagent.memory.question import QuestionKind, read_question
from memagent.state.effects import tokenize
from memagent.timex.resolve import format_span

SURE: Final = 0.5
"""Least probability of a span that is given as the answer."""
_LEFT: Final = (QuestionKind.YES_NO, QuestionKind.HOW_MANY, QuestionKind.HOW_LONG)
"""Kinds of questions that no span of a statement answers."""


@dataclass(frozen=True, kw_only=True)
class SpanAnswerer:
    """Answers with a span of the evidence where one fits. Asks no model."""

    base: EvidenceAnswerer = EvidenceAnswerer()

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the rules' answer, shortened to a span where the network marks one."""
        answer = await self.base(question, hits, ctx)
        if answer.abstained or not answer.citations:
            return answer
        asked_at = question.asked_at or ctx.clock()
        kind = read_question(question.text, asked_at=asked_at).kind
        if kind in _LEFT:
            return answer
        if kind is QuestionKind.WHEN:
            text = format_span(answer.when) if answer.when is not None else ""
        else:
            by_id = {hit.id: hit.item for hit in hits if hit.item is not None}
            text = _spans(question.text, answer.citations, by_id, ctx)
        if not text:
            return answer
        quotes = tuple(f"Quoted: {citation.quote}" for citation in answer.citations[:1])
        return answer.model_copy(update={"text": text, "notes": (*answer.notes, *quotes)})


def _spans(
    question: str, citations: Sequence[Citation], items: dict[str, MemoryItem], ctx: SlotContext
) -> str:
    """Return the words that answer, "" without any; several for a set of values."""
    asked = frozenset(tokenize(question))
    values: list[str] = []
    for citation in citations:
        item = items.get(citation.hit_id)
        if item is None:
            continue
        versions = ctx.bank.state.versions(item.id) or (item,)
        chosen = next((own for own in versions if own.version == citation.version), item)
        clause = _clause(chosen, asked)
        if words := _answering(clause, chosen, asked):
            values.append(words)
        if clause.kind != "set":
            break
    return ", ".join(dict.fromkeys(values))


def _clause(item: MemoryItem, asked: frozenset[str]) -> Clause:
    """Return the statement of a memory that shares most words with the question."""
    speaker = item.speaker or ""
    reader = shipped_reader()
    clauses = reader.turns([TurnText(item.text, speaker=speaker)])[0].clauses
    if len(clauses) < 2:
        return reader.statements([(item.text, speaker)])[0]
    return max(clauses, key=lambda clause: len(asked & set(tokenize(clause.text))))


def _answering(clause: Clause, item: MemoryItem, asked: frozenset[str]) -> str:
    value = clause.spans.get("value")
    if value is None or value.p < SURE:
        return ""
    words = set(tokenize(value.text))
    if not words or words <= asked:
        subject = clause.spans.get("subject")
        name = subject.text if subject is not None else item.speaker or ""
        return "" if set(tokenize(name)) & asked else name.removesuffix("'s")
    return value.text
