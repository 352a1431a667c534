"""The memories behind mem0's calls: one agent per owner's scope, over one store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memagent.async_agent import AsyncAgent
from memagent.build import Store
from memagent.core.records import MemoryItem, Scope
from memagent.designs.base import MemoryDesign
from memagent.integrations import mem0_records as records
from memagent.integrations.mem0_calls import unknown
from memagent.integrations.mem0_records import Owner
from memagent.protocols import ChatModel


class OwnersAgents:
    """The agents of a store, made when a call needs them."""

    def __init__(
        self, store: Store, *, model: ChatModel | str | None, design: MemoryDesign | str | None
    ) -> None:
        self.store = store
        self._model, self._design = model, design
        self._agents: dict[Scope, AsyncAgent] = {}

    def of_scope(self, scope: Scope) -> AsyncAgent:
        """Return the agent of a scope."""
        if scope not in self._agents:
            self._agents[scope] = self.store.agent(scope, model=self._model, design=self._design)
        return self._agents[scope]

    async def every(self) -> list[AsyncAgent]:
        """Return the agents of all scopes in use and in the store."""
        known = dict.fromkeys((*self._agents, *await self.store.journal.scopes()))
        return [self.of_scope(scope) for scope in known]

    async def find(self, memory_id: str) -> AsyncAgent | None:
        """Return the agent that has an active memory of this id."""
        for agent in await self.every():
            item = (await agent.bank.sync()).items.get(memory_id)
            if item is not None and item.active:
                return agent
        return None

    async def get(self, memory_id: str) -> AsyncAgent:
        """Return the agent that has an active memory of this id. Raises `InputError`."""
        if (agent := await self.find(memory_id)) is None:
            raise unknown(memory_id)
        return agent

    async def memories_of(
        self, owner: Owner, conditions: Mapping[str, Any], *, show_expired: bool
    ) -> list[tuple[AsyncAgent, list[MemoryItem]]]:
        """Return each agent that may have memories of an owner, and those that meet a filter."""
        one_scope = owner.user_id is not None
        agents = [self.of_scope(owner.scope)] if one_scope else await self.every()
        return [
            (
                agent,
                [
                    item
                    for item in await agent.memory.get_all(include_deleted=show_expired)
                    if item.active and records.fits(agent.bank.scope, item, owner, conditions)
                ],
            )
            for agent in agents
        ]
