"""One model call whose reply is read as JSON, with one more try when nothing could be read.

The second try is a call of its own, with its own response and parse status: nothing is
hidden from traces, budgets or credit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from memagent.core.exchange import JsonSchema, Message, ModelResponse, Role
from memagent.core.ops import Parsed, ParseStatus
from memagent.designs.base import SlotContext
from memagent.designs.prompting import Prompt

T = TypeVar("T")

_ECHO_CHARS = 2_000
_AGAIN = "That reply could not be read. Reply once more, with the JSON object described above and nothing else."


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """The last reply as read, and every call made for it with its parse status, in order."""

    parsed: Parsed[T]
    statuses: tuple[ParseStatus, ...]
    responses: tuple[ModelResponse, ...]


async def ask(
    ctx: SlotContext,
    role: Role,
    prompt: Prompt,
    *,
    values: dict[str, str],
    schema: JsonSchema,
    parse: Callable[[str], Parsed[T]],
    call: int,
    retry: bool,
) -> Asked[T]:
    """Fill the prompt, ask, read; when the reply is empty or unreadable and `retry` is
    set, ask once more.

    `call` is the ordinal of this call among the role's calls for the chunk.
    """
    messages = prompt.messages(**values)
    response = await ctx.call(role, messages, schema=schema, call=call, prompt_digest=prompt.digest)
    parsed = parse(response.text)
    if not retry or parsed.status not in (ParseStatus.FAILED, ParseStatus.EMPTY):
        return Asked(parsed, (parsed.status,), (response,))
    echo = (
        (Message(role="assistant", content=response.text[:_ECHO_CHARS]),)
        if response.text.strip()
        else ()
    )
    again = (*messages, *echo, Message(role="user", content=_AGAIN))
    second = await ctx.call(role, again, schema=schema, call=call + 1, prompt_digest=prompt.digest)
    reread = parse(second.text)
    return Asked(reread, (parsed.status, reread.status), (response, second))
