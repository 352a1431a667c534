"""Attributes of spans: numbers of searches, answers and writes, and texts.

Numbers and names are always told; texts, ids that a caller chose and users are not. The
`..._content` functions make the texts, for `Span.content` alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from memagent.core.answers import Answer, Hit
from memagent.core.exchange import Message, Usage
from memagent.core.recipes import RECIPES, Recipe
from memagent.core.records import MemoryItem
from memagent.core.snapshot import Commit

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]
"""Attributes of a span, by OpenTelemetry's names or ours (`memagent.*`)."""
_OWN_ID: Final = re.compile(r"[a-z]{1,6}_[0-9a-f]{20,64}")
"""The shape of ids that this library makes; ids that somebody chose may say something."""


def usage_figures(usage: Usage) -> Attributes:
    """Return tokens and cost; no cost where the price is not known."""
    cost = {} if usage.cost_usd is None else {"memagent.usage.cost_usd": usage.cost_usd}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        **cost,
    }


def own_id(name: str, value: str | None) -> Attributes:
    """Return an id as an attribute if this library made it, and nothing otherwise."""
    return {name: value} if value is not None and _OWN_ID.fullmatch(value) else {}


def search_figures(recipe: Recipe | None, count: int, *, k: int | None = None) -> Attributes:
    """Describe a search in numbers; `recipe` None is the design's own way."""
    name = "design"
    if recipe is not None:
        plain = recipe.model_copy(update={"max_tokens": None})
        name = next((name for name, known in RECIPES.items() if known == plain), "custom")
    return {
        "memagent.recipe": name,
        "gen_ai.memory.record.count": count,
        **({"memagent.k": k} if k is not None else {}),
    }


def answer_figures(answer: Answer) -> Attributes:
    """Describe an answer in numbers."""
    return {
        **usage_figures(answer.usage),
        "memagent.citations": len(answer.citations),
        "memagent.verdict": answer.verdict.value,
    }


def result_figures(result: object) -> Attributes:
    """Describe the result of a verb: the number of memories, and the id of a single one."""
    if isinstance(result, MemoryItem):
        return {"gen_ai.memory.record.count": 1, **own_id("gen_ai.memory.record.id", result.id)}
    if isinstance(result, Commit):
        count = len(result.changes)
    elif isinstance(result, list):
        count = len(items_of(cast(object, result)))
    else:
        count = int(result) if isinstance(result, bool | int) else 1
    return {"gen_ai.memory.record.count": count}


def items_of(result: object) -> list[MemoryItem]:
    """Return the memories that a verb gave or left."""
    if isinstance(result, Commit):
        return [change.after for change in result.changes if change.after is not None]
    entries = cast("list[object]", result) if isinstance(result, list) else [result]
    return [entry for entry in entries if isinstance(entry, MemoryItem)]


def messages_content(name: str, messages: Iterable[Message]) -> Attributes:
    """Write messages as the conventions do."""
    rows = [
        {"role": message.role, "parts": [{"type": "text", "content": message.content}]}
        for message in messages
    ]
    return {name: json.dumps(rows, ensure_ascii=False)}


def records_content(records: Iterable[MemoryItem | Hit]) -> Attributes:
    """Write memories as the conventions do."""
    rows = [
        {
            "id": record.id,
            "content": record.text,
            **({"score": record.score} if isinstance(record, Hit) else {}),
        }
        for record in records
    ]
    return {"gen_ai.memory.records": json.dumps(rows, ensure_ascii=False)}
