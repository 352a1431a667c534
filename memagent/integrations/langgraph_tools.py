"""Tools by which a model keeps and searches notes, in any LangGraph store.

They have the names that users of langmem know. The store or the run's configuration
fix the user, never a tool's arguments. The nodes can be imported here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from typing import Annotated, Any, Literal, TypeVar
from uuid import uuid4

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_config, get_store
from langgraph.store.base import BaseStore
from pydantic import BaseModel, Field, create_model

from memagent.core.errors import ConfigError

# isort: off
from memagent.integrations.frameworks.langgraph_nodes import (
    RECALLED as RECALLED,
    answer_node as answer_node,
    chat_node as chat_node,
    ingest_node as ingest_node,
    recall_node as recall_node,
    remember_node as remember_node,
    report_node as report_node,
    trial_node as trial_node,
)
# isort: on

T = TypeVar("T")
Action = Literal["create", "update", "delete"]
Namespace = tuple[str, ...] | str
_SLOT = re.compile(r"\{(\w+)\}")

# -- tools -----------------------------------------------------------------------------

Steps = Generator[tuple[str, tuple[Any, ...], dict[str, Any]], Any, T]
"""Calls of a store's methods, each yielded as (name, arguments, keywords) for its result."""


def _run(steps: Steps[T], store: BaseStore | None) -> T:
    """Carry the calls out and return the result of the steps."""
    result: Any = None
    while True:
        try:
            name, arguments, keywords = steps.send(result)
        except StopIteration as end:
            return end.value
        result = getattr(store or get_store(), name)(*arguments, **keywords)


async def _arun(steps: Steps[T], store: BaseStore | None) -> T:
    """`_run`, by the store's asynchronous methods."""
    result: Any = None
    while True:
        try:
            name, arguments, keywords = steps.send(result)
        except StopIteration as end:
            return end.value
        result = await getattr(store or get_store(), f"a{name}")(*arguments, **keywords)


def create_manage_memory_tool(
    namespace: Namespace,
    *,
    instructions: str = "Call it when the user says something worth keeping, "
    "asks to remember it, or corrects it.",
    actions_permitted: Sequence[Action] = ("create", "update", "delete"),
    store: BaseStore | None = None,
    name: str = "manage_memory",
) -> BaseTool:
    """Make a tool by which a model keeps notes: `content`, `action` and the `id` of a note.

    Labels such as `{user_id}` in the namespace are filled from the run's configuration.
    `store` None is the store of the running graph. Raises `ConfigError` for no action
    or an unknown one.
    """
    allowed = tuple(actions_permitted)
    if not allowed or not set(allowed) <= {"create", "update", "delete"}:
        raise ConfigError(f"actions_permitted is {allowed}; permit some of create, update, delete")

    def steps(action: str, content: str | None, id: str | None) -> Steps[str]:
        fault = _fault_in(action, content, id, allowed)
        if fault is not None:
            return fault
        place = (_filled(namespace), id or str(uuid4()))
        if action != "create" and (yield "get", place, {}) is None:
            return f"there is no memory {place[1]!r}; search_memory tells the ids"
        if action == "delete":
            yield "delete", place, {}
        else:
            yield "put", (*place, {"content": content}), {}
        return f"{action}d memory {place[1]}"

    def manage(action: str = allowed[0], content: str | None = None, id: str | None = None) -> str:
        return _run(steps(action, content, id), store)

    async def amanage(
        action: str = allowed[0], content: str | None = None, id: str | None = None
    ) -> str:
        return await _arun(steps(action, content, id), store)

    return StructuredTool.from_function(
        manage,
        amanage,
        name=name,
        description=f"Keep a long-term memory ({', '.join(allowed)}). {instructions}",
        args_schema=_manage_schema(allowed),
    )


def _manage_schema(allowed: Sequence[str]) -> type[BaseModel]:
    content = Field(description="One self-contained statement.")
    note_id = Field(description="Id of the memory to update or delete.")
    return create_model(
        "ManageMemory",
        action=(Annotated[str, Field(json_schema_extra={"enum": list(allowed)})], allowed[0]),
        content=(Annotated[str | None, content], None),
        id=(Annotated[str | None, note_id], None),
    )


def _fault_in(
    action: str, content: str | None, id: str | None, allowed: Sequence[str]
) -> str | None:
    """Describe for the model what is wrong with its call, if anything is."""
    if action not in allowed:
        return f"{action!r} is not permitted; permitted: {', '.join(allowed)}"
    if action == "create" and id is not None:
        return "a new memory gets its id here; leave `id` out"
    if action != "create" and not id:
        return f"to {action} a memory, give its `id`"
    if action != "delete" and not (content and content.strip()):
        return "there is no `content` to remember"
    return None


class _SearchMemory(BaseModel):
    query: Annotated[str, Field(description="What to look for.")]
    limit: int = 10
    offset: int = 0
    filter: Annotated[
        dict[str, Any] | None,
        Field(description='Fields that must match, such as {"kind": "plan"}.'),
    ] = None


def create_search_memory_tool(
    namespace: Namespace,
    *,
    instructions: str = "",
    store: BaseStore | None = None,
    response_format: Literal["content", "content_and_artifact"] = "content",
    name: str = "search_memory",
) -> BaseTool:
    """Make a tool by which a model searches its notes: `query`, `limit`, `offset`, `filter`.

    The answer is JSON, a list of documents; with `content_and_artifact` the store's
    items come along. Namespace and store are as in `create_manage_memory_tool`.
    """

    def steps(query: str, limit: int, offset: int, filter: dict[str, Any] | None) -> Steps[Any]:
        page = {"limit": max(1, min(int(limit), 100)), "offset": max(0, int(offset))}
        items = yield "search", (_filled(namespace),), {"query": query, "filter": filter, **page}
        text = json.dumps([item.dict() for item in items], ensure_ascii=False)
        return text if response_format == "content" else (text, list(items))

    def search(
        query: str, limit: int = 10, offset: int = 0, filter: dict[str, Any] | None = None
    ) -> Any:
        return _run(steps(query, limit, offset, filter), store)

    async def asearch(
        query: str, limit: int = 10, offset: int = 0, filter: dict[str, Any] | None = None
    ) -> Any:
        return await _arun(steps(query, limit, offset, filter), store)

    about = "Search your long-term memories for what fits the current talk."
    return StructuredTool.from_function(
        search,
        asearch,
        name=name,
        description=f"{about} {instructions}".strip(),
        response_format=response_format,
        args_schema=_SearchMemory,
    )


def _filled(namespace: Namespace) -> tuple[str, ...]:
    """Fill the `{slots}` of a namespace from the configuration of the run.

    Raises `ConfigError` for one that is not set.
    """
    labels = (namespace,) if isinstance(namespace, str) else tuple(namespace)
    if not any(_SLOT.search(label) for label in labels):
        return labels
    configured = get_config().get("configurable", {})

    def value(match: re.Match[str]) -> str:
        setting = configured.get(match[1])
        if not setting:
            raise ConfigError(
                f"the namespace needs {match[1]!r}; invoke the graph with "
                f"config={{'configurable': {{{match[1]!r}: ...}}}}"
            )
        return str(setting)

    return tuple(_SLOT.sub(value, label) for label in labels)
