"""`Memory` and `AsyncMemory`: the calls and results of mem0 over memagent's journal and search.

`AsyncMemory` is the one implementation; `Memory` sends each call to an event loop in a
thread of its own. A memory lives with its user, else with its agent or run, and calls
name one of them; ids are random, so `get(id)` finds a memory without an owner, as in
mem0. The surprises: `timestamp` works (it dates the memory), changes and deletions can
be undone with memagent's own verbs, and there is no telemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

from memagent.build import AgentSettings, open_store
from memagent.integrations import mem0_calls as calls
from memagent.integrations.access import (
    Delete,
    Filter,
    InputError,
    MemoryDesign,
    ModelError,
    OpBatch,
    Query,
    SourceRef,
    amend,
    as_session,
    recipe_of,
)
from memagent.protocols import ChatModel, Embedder
from memagent.sync.live_agent import LoopThread, blocking

T = TypeVar("T")


class AsyncMemory:
    """mem0's `AsyncMemory`. It belongs to the event loop that uses it first."""

    def __init__(
        self,
        config: calls.Config | str | Path | None = None,
        *,
        path: str | Path | None = None,
        model: ChatModel | str | None = None,
        embedder: Embedder | str | None = None,
        design: MemoryDesign | str | None = None,
        settings: AgentSettings | None = None,
    ) -> None:
        """Open the store at a path (as in `Agent`), or the one that mem0's configuration names.

        `config` is a path, mem0's `MemoryConfig` or the same as a dict (see
        `from_config`); the keywords win over it. Raises `ConfigError`, `StoreError`.
        """
        place, named = calls.place_of(config)
        store = open_store(settings or named, path=path or place, embedder=embedder)
        self._agents = calls.OwnersAgents(store, model=model, design=design)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Open the memory that mem0's configuration describes.

        The language model and the folder of the vector store are taken over, the rest
        is logged as unused.
        """
        return cls(config_dict)

    async def add(  # noqa: PLR0913 (mem0's own arguments)
        self,
        messages: calls.Messages,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: datetime | float | str | None = None,
        expiration_date: Any = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
    ) -> dict[str, Any]:
        """Remember messages: `{"results": [{"id", "memory", "event"}]}`.

        An event is ADD, UPDATE, DELETE or NOOP. With `infer` the design decides
        (without a model: every utterance as it is), else each message is kept raw.
        `timestamp` says when it was said. Raises `ModelError` when the model failed;
        the messages are stored all the same and the next `add` goes on with them.
        """
        ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        owner = calls.owner_of(ids, needed_for="add()")
        if memory_type is not None or prompt is not None:
            raise InputError("memory_type and prompt are not supported; choose a design instead")
        utterances = calls.messages_of(messages)
        agent = self._agents.of_scope(owner.scope)
        at = calls.moment_of(timestamp) or agent.clock()
        note = calls.Note(owner, metadata, calls.expiration_of(expiration_date))
        if not infer:
            return {"results": await calls.add_raw(agent.bank, utterances, note, at=at)}
        if not utterances:
            return {"results": []}
        await agent.resume(on_error="keep")
        session = as_session(utterances, at=at, session_id=f"ses_{uuid4().hex}", now=at)
        before = (await agent.bank.sync()).items
        report = await agent.remember(session, on_error="keep")
        end = calls.end_of(note.last_day)
        await amend(agent.bank, report, note.reserved(), actor=calls.AMENDED, expires_at=end)
        if report.failed_chunks:
            raise ModelError(
                f"the messages are stored and not yet remembered: {report.failed_chunks[0].failure}"
            )
        return {"results": calls.events(report, before, agent.bank.state)}

    async def search(  # noqa: PLR0913 (mem0's own arguments)
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """Find the best memories: `{"results": [{"id", "memory", "score", ...}]}`.

        `filters` names the owner and may bound metadata by `eq ne gt gte lt lte in nin
        contains icontains`, `"*"`, AND, OR, NOT; owners and `limit` may also be given
        as arguments, as in earlier versions. `rerank` uses the recipe `deep`. A score
        lies between 0 and 1, and so does `threshold`; None is 0. Raises `InputError`.
        """
        calls.check_search(query, threshold, reference_date)
        ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        top_k = top_k if limit is None else limit
        owner, conditions = calls.read_request(filters, ids, top_k, verb="search()")
        ranked: list[tuple[float, dict[str, Any]]] = []
        for agent, items in await self._agents.memories_of(
            owner, conditions, show_expired=show_expired
        ):
            if not items or top_k == 0:
                continue
            bank, state = agent.bank, agent.bank.state
            recipe = recipe_of("deep") if rerank else agent.memory.recipe
            where = Filter(ids=frozenset(item.id for item in items))
            if show_expired:
                bank = bank.showing(state, at=datetime.min.replace(tzinfo=agent.clock().tzinfo))
            for hit in await bank.search(Query(text=query, where=where, recipe=recipe), k=top_k):
                score = max(0.0, min(1.0, hit.score))
                if score < (threshold or 0.0):
                    continue
                row = calls.envelope(bank.scope, state.versions(hit.id), score=score)
                if explain:
                    row["score_details"] = hit.why.model_dump(mode="json", exclude_defaults=True)
                ranked.append((hit.score, row))
        ranked.sort(key=lambda scored: (-scored[0], scored[1]["id"]))
        return {"results": [row for _, row in ranked[:top_k]]}

    async def get_all(  # noqa: PLR0913 (mem0's own arguments)
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int | None = None,
        page: int | None = None,
        page_size: int = 100,
        show_expired: bool = False,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """Return the memories of an owner, latest first: `{"results": [...]}`.

        There are at most `top_k` (20) of them, or a page of `page_size`, counted from
        1. A page comes with `count` (all that match) and the numbers of the `next` and
        `previous` page, or None.
        """
        limit = limit if limit is not None else 20 if top_k is None else top_k
        ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        owner, conditions = calls.read_request(filters, ids, limit, verb="get_all()")
        rows = [
            calls.envelope(agent.bank.scope, agent.bank.state.versions(item.id))
            for agent, items in await self._agents.memories_of(
                owner, conditions, show_expired=show_expired
            )
            for item in items
        ]
        rows.sort(key=lambda row: (row["created_at"] or "", row["id"]), reverse=True)
        return {"results": rows[:limit]} if page is None else calls.page_of(rows, page, page_size)

    async def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return a memory, or None."""
        agent = await self._agents.find(memory_id)
        if agent is None:
            return None
        row = calls.envelope(agent.bank.scope, agent.bank.state.versions(memory_id))
        return {**row, "score": None}

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = calls.UNSET,
        data: str | None = None,
    ) -> dict[str, Any]:
        """Change the text (also as `data`), metadata keys or last day (None for none) of a memory.

        Raises `InputError`.
        """
        text = data if text is None else text
        if text is None and metadata is None and expiration_date is calls.UNSET:
            raise InputError("there is nothing to update: give text, metadata or expiration_date")
        if text is not None and not text.strip():
            raise InputError("the text is empty; delete the memory instead")
        agent = await self._agents.get(memory_id)
        await calls.update(agent, memory_id, text, metadata, expiration_date)
        return {"message": "Memory updated successfully!"}

    async def delete(self, memory_id: str) -> dict[str, Any]:
        """Delete a memory; memagent's `restore` brings it back.

        Raises `InputError` when there is none.
        """
        agent = await self._agents.get(memory_id)
        await agent.memory.delete(memory_id)
        return {"message": "Memory deleted successfully!"}

    async def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, Any]:
        """Delete every memory of an owner, one commit per scope.

        Raises `InputError` without an owner.
        """
        ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        owner = calls.owner_of(ids, needed_for="delete_all()")
        for agent, items in await self._agents.memories_of(owner, {}, show_expired=True):
            if items:
                batch = OpBatch(accepted=tuple(Delete(id=item.id) for item in items))
                await agent.bank.commit(batch, source=SourceRef(actor="user"))
        return {"message": "Memories deleted successfully!"}

    async def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return the changes of a memory, oldest first; [] when there never was one."""
        for agent in await self._agents.every():
            if memory_id in (await agent.bank.sync()).touched:
                return calls.history(memory_id, await agent.memory.history(memory_id))
        return []

    async def reset(self) -> None:
        """Erase every memory of every owner, with history and turns, beyond recovery."""
        for agent in await self._agents.every():
            await agent.memory.reset(user_id=agent.bank.scope.user_id)

    def close(self) -> None:
        """Release the store; harmless when repeated."""
        self._agents.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Memory:
    """mem0's `Memory`: `AsyncMemory` for synchronous code.

    Arguments, results and errors are the same. Close it, or use it in a `with`.
    """

    add = blocking(AsyncMemory.add)
    search = blocking(AsyncMemory.search)
    get_all = blocking(AsyncMemory.get_all)
    get = blocking(AsyncMemory.get)
    update = blocking(AsyncMemory.update)
    delete = blocking(AsyncMemory.delete)
    delete_all = blocking(AsyncMemory.delete_all)
    history = blocking(AsyncMemory.history)
    reset = blocking(AsyncMemory.reset)

    def __init__(
        self,
        config: calls.Config | str | Path | None = None,
        *,
        path: str | Path | None = None,
        model: ChatModel | str | None = None,
        embedder: Embedder | str | None = None,
        design: MemoryDesign | str | None = None,
        settings: AgentSettings | None = None,
    ) -> None:
        self._memory = AsyncMemory(
            config, path=path, model=model, embedder=embedder, design=design, settings=settings
        )
        self._thread = LoopThread()

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """See `AsyncMemory.from_config`."""
        return cls(config_dict)

    def _run(self, make: Callable[[AsyncMemory], Coroutine[Any, Any, T]]) -> T:
        return self._thread.run(make(self._memory))

    def close(self) -> None:
        """Let running calls finish and release the store; harmless when repeated."""
        self._thread.stop()
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
