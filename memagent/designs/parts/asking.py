"""Model calls with a prompt file, and the JSON schemas of the replies.

A reply that cannot be read is asked for once more where the slot says so. The second
try is a call of its own, with its own response and parse status: nothing is hidden from
traces, budgets or credit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from memagent.core.answers import Question
from memagent.core.exchange import JsonSchema, Message, ModelResponse, Role
from memagent.core.ops import Parsed, ParseStatus, Rejected, RejectReason, Repair
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.parts.lines import weekday_text
from memagent.designs.prompting import Prompt, fence, load_prompt, quoted

T = TypeVar("T")
V = TypeVar("V")

TEXT: Final[JsonSchema] = {"type": "string"}
TEXT_OR_NULL: Final[JsonSchema] = {"type": ["string", "null"]}
TEXTS: Final[JsonSchema] = {"type": "array", "items": TEXT}
INTEGER: Final[JsonSchema] = {"type": "integer"}
UNREAD = frozenset({ParseStatus.FAILED, ParseStatus.EMPTY})
_ECHO_CHARS = 2_000
_AGAIN = (
    "That reply could not be used. Reply once more about what is quoted above, with the "
    "JSON object described and nothing else."
)


def object_schema(properties: JsonSchema) -> JsonSchema:
    """Describe a closed JSON object that must have all these properties, in this order."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def list_schema(key: str, entry: JsonSchema) -> JsonSchema:
    """Describe a JSON object with one property, a list of entries."""
    return object_schema({key: {"type": "array", "items": entry}})


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCall(Generic[T]):
    """A prompt, the JSON that it asks for, and the function that reads the reply."""

    role: Role
    prompt: Prompt
    schema: JsonSchema
    parse: Callable[[str], Parsed[T]]


@dataclass(frozen=True, slots=True)
class JsonReply(Generic[T]):
    """The last reply as read, and every call made for it with its parse status, in order."""

    parsed: Parsed[T]
    statuses: tuple[ParseStatus, ...]
    responses: tuple[ModelResponse, ...]
    repairs: tuple[Repair, ...] = ()

    def proposal(self, values: Iterable[V], rejected: Iterable[Rejected] = ()) -> Proposal[V]:
        """Propose `values`; `rejected` follows the entries that could not be read."""
        return Proposal(
            values=tuple(values),
            rejected=(*self.parsed.rejected, *rejected),
            parse=self.statuses,
            repairs=self.repairs,
            responses=self.responses,
        )


async def ask_for_json(
    ctx: SlotContext, json_call: JsonCall[T], values: dict[str, str], *, ordinal: int, retry: bool
) -> JsonReply[T]:
    """Fill the prompt with `values`, ask the model and read its reply.

    Ask once more when the reply is empty, unreadable or ambiguous and `retry` is set;
    the first reading stands when the second reads nothing. `ordinal` counts this call
    among the role's calls for the chunk, from 0.
    """
    role, schema, digest = json_call.role, json_call.schema, json_call.prompt.digest
    messages = json_call.prompt.messages(**values)
    first = await ctx.call(role, messages, schema=schema, call=ordinal, prompt_digest=digest)
    parsed = json_call.parse(first.text)
    if not (retry and ctx.again) or not _ask_again(parsed):
        return JsonReply(parsed, (parsed.status,), (first,), parsed.repairs)
    if first.text.strip():
        messages = (*messages, Message(role="assistant", content=first.text[:_ECHO_CHARS]))
    messages = (*messages, Message(role="user", content=_AGAIN))
    second = await ctx.call(role, messages, schema=schema, call=ordinal + 1, prompt_digest=digest)
    reread = json_call.parse(second.text)
    statuses, repairs = (parsed.status, reread.status), (*parsed.repairs, *reread.repairs)
    better = reread if reread.status not in UNREAD or not parsed.values else parsed
    return JsonReply(better, statuses, (first, second), repairs)


def _ask_again(parsed: Parsed[Any]) -> bool:
    return parsed.status in UNREAD or any(
        bad.reason is RejectReason.AMBIGUOUS for bad in parsed.rejected
    )


async def ask_about(
    question: Question,
    ctx: SlotContext,
    role: Role,
    prompt_name: str,
    schema: JsonSchema,
    ordinal: int = 0,
    /,
    **values: str,
) -> ModelResponse:
    """Fill a prompt with `values` and ask the model once, in the course of a question."""
    prompt = load_prompt(prompt_name)
    return await ctx.call(
        role,
        prompt.messages(**values),
        schema=schema,
        question_id=question.id,
        call=ordinal,
        prompt_digest=prompt.digest,
    )


def question_values(question: Question) -> dict[str, str]:
    """Return the prompt slots `asked` (the day, "" when unknown) and `question`."""
    asked_at = question.asked_at
    return {
        "asked": f"The question is asked on {weekday_text(asked_at)}." if asked_at else "",
        "question": fence("question", [quoted(question.text)]),
    }
