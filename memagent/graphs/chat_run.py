"""A run of the chat graph: fresh, or continued where a killed one stopped (`stream_chat`).

A checkpointer keeps what a run may continue from. `ThreadedSaver` lets coroutines use one
that has no asynchronous methods, such as `SqliteSaver`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypedDict, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

from memagent.core.answers import Reply, ReplyDelta, Verdict
from memagent.core.errors import ConfigError, InputError, ModelError, check_keywords, check_type
from memagent.core.exchange import ToolCall
from memagent.core.records import DEFAULT_THREAD, Trust
from memagent.graphs.state import AgentContext, ChatState, Tool, langsmith_tracing
from memagent.memory.options import trusting
from memagent.tracing import agent_span, within


class ThreadedSaver(BaseCheckpointSaver[Any]):
    """Runs the methods of a synchronous checkpointer in threads."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version that follows one of a channel."""
        return self._saver.get_next_version(current, channel)

    async def aget_tuple(self, config: Any) -> Any:
        """Return the checkpoint of a thread, or None."""
        return await asyncio.to_thread(self._saver.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        """Yield checkpoints, newest first."""
        for found in await asyncio.to_thread(lambda: list(self._saver.list(config, **options))):
            yield found

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Store a checkpoint and return its configuration."""
        return await asyncio.to_thread(self._saver.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what the nodes of a step have written so far."""
        await asyncio.to_thread(self._saver.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread."""
        await asyncio.to_thread(self._saver.delete_thread, thread_id)


_MOST_MEMORIES = 200


class ChatOptions(TypedDict, total=False):
    """Options of one message of a conversation."""

    thread: str | None
    """The conversation it belongs to; None for the agent's own."""
    speaker: str
    """Who writes; `user` unless said."""
    system: str | None
    """Replaces the system message of the shipped prompt."""
    tools: Sequence[Tool] | None
    """Tools of this message; None for the agent's own."""
    k: int | None
    """Most memories recalled."""
    max_tool_rounds: int | None
    """Most rounds of tool calls before a reply is demanded."""
    min_trust: Trust | str | None
    """Recall nothing that is trusted less."""
    approve: bool | None
    """Whether tools that act may run though the prompt shows text that is not trusted; the
    answer to a reply with `approvals`, given with the same message.
    """
    remember: bool
    """Whether the exchange is remembered; its turns are stored in any case."""


def chat_context(context: AgentContext, options: ChatOptions) -> AgentContext:
    """Return a context with the tools and bounds that the options of a message name."""
    tools, k, rounds = (options.get(name) for name in ("tools", "k", "max_tool_rounds"))
    check_type("k", k, int | None, "a whole number")
    check_type("max_tool_rounds", rounds, int | None, "a whole number")
    check_type("tools", tools, Iterable | None, "a list of functions")
    if k is not None and not 1 <= k <= _MOST_MEMORIES:
        raise InputError(f"k is {k}; recall 1 to {_MOST_MEMORIES} memories")
    chosen = context.tools if tools is None else tuple(tools)
    for tool in chosen:
        if not callable(tool) and not hasattr(tool, "name"):
            raise ConfigError(f"{str(tool)[:40]!r} is no tool; give a function with type hints")
    where = trusting(context.chat.where, options.get("min_trust"))
    return replace(
        context,
        tools=chosen,
        approve=options.get("approve"),
        tool_rounds=context.tool_rounds if rounds is None else rounds,
        chat=replace(context.chat, where=where, memories=context.chat.memories if k is None else k),
    )


def start_state(message: str, options: ChatOptions, *, thread: str) -> ChatState:
    """Return the state that a run of the graph begins with; `thread` is the default.

    Raises `InputError` for a message that is no text.
    """
    if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"the message is of type {type(message).__name__}; give a text")
    check_keywords("chat()", options, ChatOptions.__annotations__)
    for name in ("thread", "speaker", "system"):
        check_type(name, options.get(name), str | None, "a text")
    return {
        "message": message,
        "thread": options.get("thread") or thread,
        "speaker": options.get("speaker") or "user",
        "system": options.get("system"),
        "remember": options.get("remember", True),
    }


async def stream_chat(
    start: ChatState, *, context: AgentContext, checkpointer: Any | None, tracing: bool
) -> AsyncGenerator[ReplyDelta]:
    """Run the chat graph and yield the reply's words as they come; the last has the `Reply`.

    With a checkpointer, a run that stopped before its reply to the same message goes on
    with the node that had not finished. Raises `ModelError` when the model fails; the
    message is stored then.
    """
    graph = await _graph(checkpointer)
    config = {"configurable": {"thread_id": start.get("thread")}}
    given: Any = start
    if checkpointer is not None:
        context = replace(context, can_ask=True)
        last = await graph.aget_state(config)
        same = all(last.values.get(key) == start.get(key) for key in ("message", "speaker"))
        if last.next and same:  # it stopped on the way to its reply to this message
            given = None
    reply: dict[str, Any] | None = None
    span = agent_span(context.design.name, capture=context.capture_content)
    with langsmith_tracing(enabled=tracing):
        steps = graph.astream(given, config, context=context, stream_mode=["custom", "updates"])
        async with aclosing(within(span, cast("AsyncGenerator[tuple[str, Any]]", steps))) as stream:
            async for mode, value in stream:
                if mode == "custom":
                    yield ReplyDelta(text=value["text"])
                    continue
                if "__interrupt__" in value:
                    stopped = await graph.aget_state(config)
                    yield ReplyDelta(reply=_waiting(stopped.values, value["__interrupt__"]))
                    return
                for update in cast("dict[str, dict[str, Any] | None]", value).values():
                    reply = (update or {}).get("reply") or reply
    if reply is None:
        raise ModelError("the chat graph ended without a reply")
    yield ReplyDelta(reply=Reply.model_validate(reply))


async def last_reply(deltas: AsyncGenerator[ReplyDelta]) -> Reply:
    """Return the reply that a stream ends with."""
    reply: Reply | None = None
    async with aclosing(deltas):
        async for delta in deltas:
            reply = delta.reply or reply
    assert reply is not None
    return reply


def _waiting(state: ChatState, interrupts: Sequence[Any]) -> Reply:
    """Return the reply of a run that waits for approval."""
    calls = tuple(ToolCall.model_validate(call) for call in interrupts[0].value["approve"])
    names = ", ".join(call.name for call in calls)
    return Reply(
        text=f"Waiting for approval: {names}.",
        verdict=Verdict.UNSUPPORTED,
        thread=state.get("thread", DEFAULT_THREAD),
        session_id=state.get("session_id", DEFAULT_THREAD),
        turn_ids=tuple(state.get("turn_ids", ())),
        approvals=calls,
    )


# The compiled graph of each checkpointer.
_GRAPHS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


async def _graph(checkpointer: Any | None) -> Any:
    """Return the compiled graph; a checkpointer without asynchronous methods runs in threads."""
    from memagent.graphs.chat import CHAT

    if checkpointer is None:
        return CHAT.compiled
    graph = _GRAPHS.get(checkpointer)
    if graph is None:
        saver = checkpointer
        try:
            await saver.aget_tuple({"configurable": {"thread_id": "", "checkpoint_ns": ""}})
        except NotImplementedError:
            saver = ThreadedSaver(checkpointer)
        graph = _GRAPHS[checkpointer] = CHAT.compile(checkpointer=saver)
    return graph
