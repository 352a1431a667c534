"""`Memory` and `AsyncMemory` with the calls and results of mem0, over memagent's
journal, search and designs.

`AsyncMemory` is the one implementation; `Memory` sends each call to an event loop in a
thread of its own. A memory lives with its user, else with its agent or run, and calls
name one of them; ids are made from random ones, so `get(id)` finds a memory without an
owner, as in mem0. The surprises: `timestamp` works (it dates the memory), what was
changed or deleted can be undone with memagent's own verbs, and there is no telemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

from memagent.async_agent import AsyncAgent
from memagent.build import Store, open_store
from memagent.config import AgentSettings
from memagent.core.answers import Filter, Query
from memagent.core.errors import InputError, ModelError
from memagent.core.ops import Add, Delete, OpBatch, Update
from memagent.core.recipes import recipe_of
from memagent.core.records import Fact, MemoryItem, Scope, SourceRef, Trust
from memagent.designs.base import MemoryDesign
from memagent.integrations import mem0_calls as calls
from memagent.integrations import mem0_records as records
from memagent.integrations.access import Assignment, assign
from memagent.integrations.mem0_records import Owner, envelope, owner_of
from memagent.loop_thread import LoopThread
from memagent.memory.incoming import as_session
from memagent.protocols import ChatModel, Embedder
from memagent.state.fold import BankState

T = TypeVar("T")
_UNSET: Any = object()
_TRUST = {"assistant": Trust.ASSISTANT, "tool": Trust.TOOL, "system": Trust.SYSTEM}


class AsyncMemory:
    """mem0's `AsyncMemory`. It belongs to the event loop that uses it first."""

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        model: ChatModel | str | None = None,
        embedder: Embedder | str | None = None,
        design: MemoryDesign | str | None = None,
        settings: AgentSettings | None = None,
    ) -> None:
        """Open the store (`path` as in `Agent`); `model`, `design` and `settings` as there.

        Raises `ConfigError`, `StoreError`.
        """
        self._store: Store = open_store(settings, path=path, embedder=embedder)
        self._model, self._design = model, design
        self._agents: dict[Scope, AsyncAgent] = {}

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """From mem0's configuration: the language model and the folder of the vector
        store are taken over, the rest is logged as unused.
        """
        return cls(**calls.arguments_of(config_dict))

    async def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
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
        """Remember messages: `{"results": [{"id", "memory", "event"}]}` with the events
        ADD, UPDATE, DELETE and NOOP.

        With `infer` the design decides (without a model: every utterance as it is),
        else each message is kept raw. `timestamp` says when it was said. Raises
        `ModelError` when the model failed; the messages are stored all the same and the
        next `add` goes on with them.
        """
        owner = owner_of(
            {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}, needed_for="add()"
        )
        if memory_type is not None or prompt is not None:
            raise InputError("memory_type and prompt are not supported; choose a design instead")
        told = calls.messages_of(messages)
        agent = self._agent(owner.scope)
        at = records.moment_of(timestamp) or agent.clock()
        day = records.expiration_of(expiration_date)
        if not infer:
            return {"results": await self._add_raw(agent, owner, told, metadata, at=at, day=day)}
        heard = [one for one in told if one.get("role") != "system"]
        if not heard:
            return {"results": []}
        await agent.resume()
        session = as_session(heard, at=at, session_id=f"ses_{uuid4().hex}", now=at)
        before = (await agent.bank.sync()).items
        report = await agent.remember(session)
        kept = records.kept_metadata(owner, metadata, expiration=day)
        if kept:
            await calls.amend(agent.bank, report, kept, day=day)
        if report.failed_chunks:
            raise ModelError(
                f"the messages are stored and not yet remembered: {report.failed_chunks[0].failure}"
            )
        return {"results": calls.events(report, before, agent.bank.state)}

    async def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = 0.1,
        rerank: bool = False,
        explain: bool = False,
        show_expired: bool = False,
        **owner_ids: Any,
    ) -> dict[str, Any]:
        """The memories that fit a query, best first: `{"results": [{"id", "memory",
        "score", ...}]}`.

        `filters` names the owner and may bound metadata by `eq ne gt gte lt lte in nin
        contains icontains`, `"*"`, AND, OR, NOT; owners and `limit` may also be given
        as arguments, as in earlier versions. `rerank` uses the recipe `deep`. A score
        lies between 0 and 1.
        """
        if not query.strip():
            raise InputError("the query is empty")
        owner, wanted, top_k = calls.asked(filters, owner_ids, top_k, needed_for="search()")
        found: list[tuple[float, dict[str, Any]]] = []
        for agent in await self._agents_of(owner):
            state = await agent.bank.sync()
            scope = agent.bank.scope
            items = await self._matching(agent, owner, wanted, show_expired=show_expired)
            if not items or top_k == 0:
                continue
            bank = (
                agent.bank.showing(state, at=datetime.min.replace(tzinfo=agent.clock().tzinfo))
                if show_expired
                else agent.bank
            )
            where = Filter(ids=frozenset(item.id for item in items))
            asked = Query(
                text=query, where=where, recipe=recipe_of("deep") if rerank else agent.memory.recipe
            )
            for hit in await bank.search(asked, k=top_k):
                score = max(0.0, min(1.0, hit.score))
                if score >= (threshold or 0.0):
                    shown = envelope(scope, state.versions(hit.id), score=score)
                    if explain:
                        shown["score_details"] = hit.why.model_dump(
                            mode="json", exclude_defaults=True
                        )
                    found.append((hit.score, shown))
        found.sort(key=lambda one: (-one[0], one[1]["id"]))
        return {"results": [shown for _, shown in found[:top_k]]}

    async def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int | None = None,
        page: int | None = None,
        page_size: int = 100,
        show_expired: bool = False,
        **owner_ids: Any,
    ) -> dict[str, Any]:
        """Memories of an owner, latest first: `{"results": [...]}`, at most `top_k`
        (20), or a page of `page_size`, counted from 1.

        A page comes with `count` (all that match) and the numbers of the `next` and
        `previous` page, or None.
        """
        owner, wanted, limit = calls.asked(
            filters, owner_ids, 20 if top_k is None else top_k, needed_for="get_all()"
        )
        shown: list[dict[str, Any]] = []
        for agent in await self._agents_of(owner):
            items = await self._matching(agent, owner, wanted, show_expired=show_expired)
            shown += [
                envelope(agent.bank.scope, agent.bank.state.versions(item.id)) for item in items
            ]
        shown.sort(key=lambda one: (one["created_at"] or "", one["id"]), reverse=True)
        if page is None:
            return {"results": shown[:limit]}
        if page < 1 or page_size < 1:
            raise InputError(f"page {page}, page_size {page_size}: both count from 1")
        end = page * page_size
        return {
            "count": len(shown),
            "next": page + 1 if end < len(shown) else None,
            "previous": page - 1 or None,
            "results": shown[end - page_size : end],
        }

    async def get(self, memory_id: str) -> dict[str, Any] | None:
        """A memory, or None."""
        found = await self._find(memory_id)
        return (
            envelope(found[0].bank.scope, found[0].bank.state.versions(memory_id))
            if found is not None
            else None
        )

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = _UNSET,
        data: str | None = None,
    ) -> dict[str, Any]:
        """Change text (also as `data`), metadata (keys given) or last day (None for none) of a memory.

        Raises `InputError`.
        """
        text = data if text is None else text
        if text is None and metadata is None and expiration_date is _UNSET:
            raise InputError("there is nothing to update: give text, metadata or expiration_date")
        if text is not None and not text.strip():
            raise InputError("the text is empty; delete the memory instead")
        agent, _ = await self._there(memory_id)
        day = records.expiration_of(expiration_date) if expiration_date is not _UNSET else None
        now = agent.clock()

        def plan(state: BankState, commit_id: str) -> list[Assignment]:
            old = state.items.get(memory_id)
            if old is None or not old.active:
                raise calls.unknown(memory_id)
            kept = dict(old.metadata) | {"_updated_at": now.isoformat()}
            if metadata is not None:
                kept["_metadata"] = records.as_json({**records.metadata_of(old), **metadata})
            changes: dict[str, Any] = {
                "version": old.version + 1,
                "text": text or old.text,
                "metadata": kept,
            }
            if expiration_date is not _UNSET:
                kept["_expiration_date"] = day.isoformat() if day is not None else None
                changes["expires_at"] = records.end_of(day)
            op = Update(id=memory_id, version=old.version, text=text or old.text)
            return [(op, MemoryItem.model_validate({**dict(old), **changes}), None)]

        await assign(agent.bank, plan)
        return {"message": "Memory updated successfully!"}

    async def delete(self, memory_id: str) -> dict[str, Any]:
        """Delete a memory; memagent's `restore` brings it back.

        Raises `InputError` when there is none.
        """
        agent, _ = await self._there(memory_id)
        await agent.memory.delete(memory_id)
        return {"message": "Memory deleted successfully!"}

    async def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, Any]:
        """Delete every memory of an owner, one commit a scope.

        Raises `InputError` without an owner.
        """
        owner = owner_of(
            {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}, needed_for="delete_all()"
        )
        for agent in await self._agents_of(owner):
            items = await self._matching(agent, owner, {}, show_expired=True)
            if items:
                batch = OpBatch(accepted=tuple(Delete(id=item.id) for item in items))
                await agent.bank.commit(batch, source=SourceRef(actor="user"))
        return {"message": "Memories deleted successfully!"}

    async def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Changes of a memory, oldest first; [] when there never was one."""
        for agent in await self._all_agents():
            if memory_id in (await agent.bank.sync()).touched:
                return calls.history(memory_id, await agent.memory.history(memory_id))
        return []

    async def reset(self) -> None:
        """Erase every memory of every owner, with history and turns, beyond recovery."""
        for agent in await self._all_agents():
            await agent.memory.reset(user_id=agent.bank.scope.user_id)

    def close(self) -> None:
        """Release the store; harmless when repeated."""
        self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------

    def _agent(self, scope: Scope) -> AsyncAgent:
        if scope not in self._agents:
            self._agents[scope] = self._store.agent(scope, model=self._model, design=self._design)
        return self._agents[scope]

    async def _all_agents(self) -> list[AsyncAgent]:
        known = dict.fromkeys((*self._agents, *await self._store.journal.scopes()))
        return [self._agent(scope) for scope in known]

    async def _agents_of(self, owner: Owner) -> list[AsyncAgent]:
        if owner.user_id is not None:
            return [self._agent(owner.scope)]
        return await self._all_agents()

    async def _find(self, memory_id: str) -> tuple[AsyncAgent, MemoryItem] | None:
        for agent in await self._all_agents():
            item = (await agent.bank.sync()).items.get(memory_id)
            if item is not None and item.active:
                return agent, item
        return None

    async def _there(self, memory_id: str) -> tuple[AsyncAgent, MemoryItem]:
        found = await self._find(memory_id)
        if found is None:
            raise calls.unknown(memory_id)
        return found

    async def _matching(
        self, agent: AsyncAgent, owner: Owner, wanted: Mapping[str, Any], *, show_expired: bool
    ) -> list[MemoryItem]:
        scope = agent.bank.scope
        return [
            item
            for item in await agent.memory.get_all(include_deleted=show_expired)
            if item.active
            and owner.owns(scope, item)
            and (
                not wanted
                or records.passes(
                    {**records.metadata_of(item), **records.fields_of(scope, item)}, wanted
                )
            )
        ]

    async def _add_raw(
        self,
        agent: AsyncAgent,
        owner: Owner,
        told: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any] | None,
        *,
        at: datetime,
        day: Any,
    ) -> list[dict[str, Any]]:
        ops: list[Add] = []
        for message in told:
            role, text = str(message.get("role") or "user"), message.get("content")
            if role == "system":
                continue
            if not isinstance(text, str) or not text.strip():
                raise InputError(
                    "a message has no text: give it as `content`, a string that is not empty"
                )
            name = message.get("name")
            kept = records.kept_metadata(
                owner, metadata, actor_id=str(name) if name else None, role=role, expiration=day
            )
            trust = _TRUST.get(role, Trust.USER)
            fact = Fact(
                text=text,
                speaker=str(name or role),
                said_at=at,
                trust=trust,
                expires_at=records.end_of(day),
            )
            ops.append(Add(fact=fact, id=str(uuid4()), metadata=kept))
        if ops:
            await agent.bank.commit(OpBatch(accepted=tuple(ops)), source=SourceRef(actor="user"))
        return [
            {
                "id": op.id,
                "memory": op.fact.text,
                "event": "ADD",
                "actor_id": op.metadata.get("_actor_id"),
                "role": op.metadata["_role"],
            }
            for op in ops
        ]


class Memory:
    """mem0's `Memory`: `AsyncMemory` for synchronous code; arguments, results and errors are its.

    Close it, or use it in a `with`.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        model: ChatModel | str | None = None,
        embedder: Embedder | str | None = None,
        design: MemoryDesign | str | None = None,
        settings: AgentSettings | None = None,
    ) -> None:
        self._memory = AsyncMemory(
            path, model=model, embedder=embedder, design=design, settings=settings
        )
        self._thread = LoopThread()

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """See `AsyncMemory.from_config`."""
        return cls(**calls.arguments_of(config_dict))

    def _do(self, make: Callable[[AsyncMemory], Coroutine[Any, Any, T]]) -> T:
        return self._thread.run(make(self._memory))

    def add(
        self, messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]], **given: Any
    ) -> dict[str, Any]:
        """See `AsyncMemory.add`."""
        return self._do(lambda memory: memory.add(messages, **given))

    def search(self, query: str, **given: Any) -> dict[str, Any]:
        """See `AsyncMemory.search`."""
        return self._do(lambda memory: memory.search(query, **given))

    def get_all(self, **given: Any) -> dict[str, Any]:
        """See `AsyncMemory.get_all`."""
        return self._do(lambda memory: memory.get_all(**given))

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """See `AsyncMemory.get`."""
        return self._do(lambda memory: memory.get(memory_id))

    def update(self, memory_id: str, text: str | None = None, **given: Any) -> dict[str, Any]:
        """See `AsyncMemory.update`."""
        return self._do(lambda memory: memory.update(memory_id, text, **given))

    def delete(self, memory_id: str) -> dict[str, Any]:
        """See `AsyncMemory.delete`."""
        return self._do(lambda memory: memory.delete(memory_id))

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, Any]:
        """See `AsyncMemory.delete_all`."""
        return self._do(lambda memory: memory.delete_all(user_id, agent_id, run_id))

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """See `AsyncMemory.history`."""
        return self._do(lambda memory: memory.history(memory_id))

    def reset(self) -> None:
        """See `AsyncMemory.reset`."""
        self._do(lambda memory: memory.reset())

    def close(self) -> None:
        """Let running calls finish and release the store; harmless when repeated."""
        self._thread.stop()
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
