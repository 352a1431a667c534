"""`StoreMirror`: a memory's items as documents of any LangGraph store, for graphs that
read there and know nothing of memagent.

The way back from `MemoryStore`: the journal stays the truth, the store holds a copy of
what is active now. The mirror keeps no state of its own; what it wrote tells by its
versions what is out of date, so a mirror may be stopped, repeated, or begun anew by
another process.
"""

from __future__ import annotations

from typing import Any

from langgraph.store.base import BaseStore, Item, PutOp

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Hit
from memagent.core.errors import InputError
from memagent.core.records import MemoryItem, Record
from memagent.integrations.access import Access
from memagent.integrations.documents import KIND
from memagent.integrations.langgraph_store import MemoryStore

_PAGE = 500


class MirrorReport(Record):
    """What one `sync` wrote and took out, and how much stood there already."""

    written: int
    removed: int
    unchanged: int


class StoreMirror:
    """One namespace of a LangGraph store that shows one user's memory: document key =
    item id, value = text and provenance.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...]) -> None:
        """The namespace belongs to the mirror: what it did not write there is taken out.

        Raises `InputError` for a `MemoryStore`.
        """
        if isinstance(store, MemoryStore):
            raise InputError("a MemoryStore is the memory itself; mirror into another store")
        self.store = store
        self.namespace = namespace

    async def sync(self, agent: Agent | AsyncAgent) -> MirrorReport:
        """Make the documents equal to the agent's active items, in one batch of what differs."""
        items = await Access(agent).arun(lambda live: live.memory.get_all())
        wanted = {item.id: _value(item) for item in items if item.kind != KIND}
        there = {found.key: found.value for found in await self._all()}
        writes = [
            PutOp(self.namespace, key, value, ["text"])
            for key, value in wanted.items()
            if there.get(key) != value
        ]
        removals = [PutOp(self.namespace, key, None) for key in there if key not in wanted]
        if writes or removals:
            await self.store.abatch([*writes, *removals])
        return MirrorReport(
            written=len(writes), removed=len(removals), unchanged=len(wanted) - len(writes)
        )

    async def search(self, text: str, *, k: int = 10) -> list[Hit]:
        """At most k mirrored items by the store's own search, best first; the score is
        the store's, 0 where it gives none.
        """
        found = await self.store.asearch(self.namespace, query=text, limit=k)
        return [Hit(id=one.key, score=one.score or 0.0, item=_item(one)) for one in found]

    async def get(self, item_id: str) -> MemoryItem | None:
        """A mirrored item, or None."""
        found = await self.store.aget(self.namespace, item_id)
        return _item(found) if found is not None else None

    async def _all(self) -> list[Item]:
        found: list[Item] = []
        while True:
            page = await self.store.asearch(self.namespace, limit=_PAGE, offset=len(found))
            found += [one for one in page if one.namespace == self.namespace]
            if len(page) < _PAGE:
                return found


def _value(item: MemoryItem) -> dict[str, Any]:
    return item.model_dump(
        mode="json", exclude={"id", "status", "embedding_missing"}, exclude_defaults=True
    )


def _item(found: Item) -> MemoryItem:
    return MemoryItem.model_validate({"id": found.key, **found.value})
