"""A run of the chat graph: fresh, or continued where a killed one stopped."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from memagent.core.answers import Reply, ReplyDelta
from memagent.core.errors import ModelError
from memagent.graphs.state import AgentContext, ChatState


async def stream_chat(
    start: ChatState, *, context: AgentContext, checkpointer: Any | None, tracing: bool
) -> AsyncGenerator[ReplyDelta]:
    """Run the chat graph and yield the reply's words as they come; the last has the `Reply`.

    With a checkpointer, a run that stopped before its reply to the same message goes on
    with the node that had not finished. Raises `ModelError` when the model fails; the
    message is stored then.
    """
    from langsmith import tracing_context  # pyright: ignore[reportUnknownVariableType]

    graph = await _graph(checkpointer)
    config = {"configurable": {"thread_id": start.get("thread")}}
    given: ChatState | None = start
    if checkpointer is not None and await _stopped(graph, config, start):
        given = None
    reply: dict[str, Any] | None = None
    with tracing_context(enabled=tracing):
        steps = graph.astream(given, config, context=context, stream_mode=["custom", "updates"])
        async with aclosing(cast("AsyncGenerator[tuple[str, Any]]", steps)) as stream:
            async for mode, value in stream:
                if mode == "custom":
                    yield ReplyDelta(text=value["text"])
                    continue
                for update in value.values():
                    reply = (update or {}).get("reply") or reply
    if reply is None:
        raise ModelError("the chat graph ended without a reply")
    yield ReplyDelta(reply=Reply.model_validate(reply))


async def _stopped(graph: Any, config: dict[str, Any], start: ChatState) -> bool:
    """Say whether the thread's last run stopped on the way to its reply to this message."""
    last = await graph.aget_state(config)
    keys = ("message", "speaker")
    return bool(last.next) and all(last.values.get(key) == start.get(key) for key in keys)


_GRAPHS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""The compiled graph of each checkpointer."""


async def _graph(checkpointer: Any | None) -> Any:
    """Return the compiled graph; a checkpointer without asynchronous methods runs in threads."""
    from memagent.graphs.chat import CHAT, chat_graph

    if checkpointer is None:
        return CHAT
    graph = _GRAPHS.get(checkpointer)
    if graph is None:
        saver = checkpointer
        try:
            await saver.aget_tuple({"configurable": {"thread_id": "", "checkpoint_ns": ""}})
        except NotImplementedError:
            from memagent.graphs.threaded_saver import ThreadedSaver

            saver = ThreadedSaver(checkpointer)
        graph = _GRAPHS[checkpointer] = chat_graph(saver)
    return graph
