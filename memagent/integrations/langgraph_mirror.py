"""`StoreMirror`: a copy of a memory's items in any LangGraph store, for graphs that read there.

It is the way back from `MemoryStore`: the journal stays the truth, the store holds a
copy of the active items. The mirror keeps no state of its own; it compares the store's
documents with the items, so it may be stopped, repeated, or begun anew by another
process.
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
    """The numbers of documents that one `sync` wrote, removed and left as they were."""

    written: int
    removed: int
    unchanged: int


class StoreMirror:
    """One namespace of a LangGraph store that mirrors one user's memory.

    A document's key is the item's id, its value text and provenance.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...]) -> None:
        """Take over a namespace: documents there that are no items are removed.

        Raises `InputError` for a `MemoryStore`.
        """
        if isinstance(store, MemoryStore):
            raise InputError("a MemoryStore is the memory itself; mirror into another store")
        self.store = store
        self.namespace = namespace

    async def sync(self, agent: Agent | AsyncAgent) -> MirrorReport:
        """Make the documents equal to the agent's active items, in one batch of what differs."""
        items = await Access(agent).arun(lambda live: live.memory.get_all())
        source = {item.id: _value(item) for item in items if item.kind != KIND}
        copies = {document.key: document.value for document in await self._all()}
        writes = [
            PutOp(self.namespace, key, value, ["text"])
            for key, value in source.items()
            if copies.get(key) != value
        ]
        removals = [PutOp(self.namespace, key, None) for key in copies if key not in source]
        if writes or removals:
            await self.store.abatch([*writes, *removals])
        return MirrorReport(
            written=len(writes), removed=len(removals), unchanged=len(source) - len(writes)
        )

    async def search(self, text: str, *, k: int = 10) -> list[Hit]:
        """Return at most k mirrored items by the store's own search, best first.

        The score is the store's, 0 where it gives none.
        """
        rows = await self.store.asearch(self.namespace, query=text, limit=k)
        return [Hit(id=row.key, score=row.score or 0.0, item=_item(row)) for row in rows]

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return a mirrored item, or None."""
        document = await self.store.aget(self.namespace, item_id)
        return _item(document) if document is not None else None

    async def _all(self) -> list[Item]:
        items: list[Item] = []
        while True:
            page = await self.store.asearch(self.namespace, limit=_PAGE, offset=len(items))
            items += [item for item in page if item.namespace == self.namespace]
            if len(page) < _PAGE:
                return items


def _value(item: MemoryItem) -> dict[str, Any]:
    return item.model_dump(
        mode="json", exclude={"id", "status", "embedding_missing"}, exclude_defaults=True
    )


def _item(document: Item) -> MemoryItem:
    return MemoryItem.model_validate({"id": document.key, **document.value})
