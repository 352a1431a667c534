"""Approval of tools that act: what untrusted text asks for does not run by itself.

A tool marked by `side_effects` changes something outside (it pays, sends, deletes).
Where a prompt shows words of tools, documents or strangers, a model may do what they
say, so calls of such tools wait for a person. The rule does not read the arguments: text
that is obeyed can also choose among the user's own words. With a checkpointer the run
stops with LangGraph's `interrupt`; without one the call is refused and the model told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from memagent.core.answers import Hit
from memagent.core.exchange import Message, ToolCall
from memagent.core.records import Trust, Turn, lowest_trust

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

T = TypeVar("T", bound="Callable[..., Any] | BaseTool")
_MARK = "side_effects"
REFUSED = (
    "Not run: this tool acts, and the conversation shows text that is not trusted. "
    "Tell the user what you would do, and ask for approval."
)


def side_effects(tool: T) -> T:
    """Mark a tool as one that changes something outside of the conversation.

    Takes a plain function or a LangChain tool, and returns it.
    """
    known = getattr(tool, "metadata", None)
    if hasattr(tool, "invoke"):
        cast("Any", tool).metadata = {**(known or {}), _MARK: True}
    else:
        setattr(tool, _MARK, True)
    return tool


def acting_names(tools: Iterable[Any]) -> frozenset[str]:
    """Return the names of the tools that are marked by `side_effects`."""
    return frozenset(
        str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))
        for tool in tools
        if getattr(tool, _MARK, False) or _MARK in (getattr(tool, "metadata", None) or ())
    )


def lowest_shown(
    hits: Iterable[Hit], turns: Iterable[Turn | None], transcript: Sequence[Message] = ()
) -> Trust:
    """Return the lowest trust of what a prompt shows; results of tools have `Trust.TOOL`."""
    levels = [hit.trust for hit in hits]
    levels += [turn.trust for turn in turns if turn is not None]
    levels += [Trust.TOOL for message in transcript if message.role == "tool"]
    return lowest_trust(levels)


def tainted(level: Trust) -> bool:
    """Tell whether words of this trust come from a tool, a document or a stranger."""
    return level.rank > Trust.ASSISTANT.rank


def held_calls(request: Message, tools: Iterable[Any], shown: Trust) -> tuple[ToolCall, ...]:
    """Return the calls of a request that may not run without approval."""
    acting = acting_names(tools) if tainted(shown) else frozenset[str]()
    return tuple(call for call in request.tool_calls if call.name in acting)


def refusals(held: Iterable[ToolCall]) -> list[Message]:
    """Return the results of calls that were not run."""
    return [Message(role="tool", content=REFUSED, tool_call_id=call.id) for call in held]


def without(request: Message, held: Sequence[ToolCall]) -> Message:
    """Return a request without the calls that are held."""
    names = {call.id for call in held}
    calls = tuple(call for call in request.tool_calls if call.id not in names)
    return request.model_copy(update={"tool_calls": calls})
