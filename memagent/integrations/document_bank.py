"""LangGraph store operations carried out on one memory.

The reads of a batch see the state before its writes, and of several writes to one key
the last one counts. All writes of a batch are one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from memagent.core.answers import Filter, Query
from memagent.core.recipes import Recipe
from memagent.core.records import Trust, clean_text
from memagent.integrations import documents
from memagent.integrations.access import Assignment, assign
from memagent.integrations.documents import KIND, Document, Namespace
from memagent.memory.bank import MemoryBank
from memagent.state.fold import BankState

_MOST_READ: Final = 16_384


@dataclass(slots=True)
class DocumentBank:
    """The documents of one memory, each parsed once per version of its item."""

    fields: tuple[str, ...]
    """Paths to index unless a write names its own."""
    recipe: Recipe | None
    trust: Trust
    _read: dict[str, Document] = field(default_factory=dict[str, Document], init=False)
    """Documents read one by one of late, each for the version of its item."""
    _items: object = field(default=None, init=False)
    """The items of the state that the two tables below describe."""
    _by_id: dict[str, Document] = field(default_factory=dict[str, Document], init=False)
    _by_namespace: dict[Namespace, list[Document]] = field(
        default_factory=dict[Namespace, list[Document]], init=False
    )

    async def run(self, bank: MemoryBank, ops: Sequence[Op]) -> list[Result]:
        """Carry out operations, reads first, and return a result for each."""
        state, now = await bank.sync(), bank.now()
        results: list[Result] = []
        writes: dict[str, PutOp] = {}
        touched: dict[str, Document] = {}
        for op in ops:
            read: list[Document] = []
            if isinstance(op, GetOp):
                read = self._present(state, op, now=now)
                results.append(_as_item(read[0]) if read else None)
            elif isinstance(op, SearchOp):
                hits = await self._search(bank, state, op)
                read = [document for document, _ in hits]
                results.append([_as_search_item(document, score) for document, score in hits])
            elif isinstance(op, ListNamespacesOp):
                results.append(self._namespaces(bank, state, op))
            else:
                writes[documents.document_id(op.namespace, op.key)] = op
                results.append(None)
            if isinstance(op, GetOp | SearchOp) and op.refresh_ttl:
                touched |= {document.item.id: document for document in read}
        if writes or touched:
            await self._write(bank, writes, touched)
        return results

    async def sweep(self, bank: MemoryBank) -> int:
        """Delete the documents whose time is over and return their number."""

        def plan(state: BankState, _: str) -> list[Assignment]:
            now = bank.now()
            return [
                documents.deleted_item(item)
                for _, item in sorted(state.items.items())
                if item.kind == KIND and item.active and item.expired(now)
            ]

        commit = await assign(bank, plan, actor="expiry")
        return len(commit.changes) if commit is not None else 0

    # -- reading -----------------------------------------------------------------------

    def _refresh(self, state: BankState) -> None:
        """Know every document that is not deleted, parsing only items that changed."""
        if self._items is state.items:
            return
        known, self._by_id, self._by_namespace = self._by_id, {}, {}
        for item in state.items.values():
            if item.kind == KIND and item.active:
                document = known.get(item.id)
                if document is None or document.item is not item:
                    document = documents.decoded(item)
                if document is not None:
                    self._by_id[item.id] = document
                    self._by_namespace.setdefault(document.namespace, []).append(document)
        self._items = state.items

    def _present(self, state: BankState, op: GetOp, *, now: datetime) -> list[Document]:
        """Return the one live document at a place, if there is one."""
        item = state.items.get(documents.document_id(op.namespace, op.key))
        if item is None or not item.active or item.expired(now):
            return []
        document = self._read.get(item.id)
        if document is None or document.item is not item:
            document = documents.decoded(item)
            if document is None or (document.namespace, document.key) != (op.namespace, op.key):
                return []
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            self._read[item.id] = document
        return [document]

    def _below(self, bank: MemoryBank, state: BankState, op: SearchOp) -> list[Document]:
        """Return the live documents of a search without query, the latest first."""
        self._refresh(state)
        conditions, expired = op.filter or {}, bank.expired
        found = [
            document
            for namespace, members in self._by_namespace.items()
            if documents.below(namespace, op.namespace_prefix)
            for document in members
            if document.item.id not in expired
            and (not conditions or documents.passes(document.value, conditions))
        ]
        found.sort(key=lambda document: (document.updated_at, document.namespace, document.key))
        return found[::-1]

    async def _search(
        self, bank: MemoryBank, state: BankState, op: SearchOp
    ) -> list[tuple[Document, float | None]]:
        """Return a page of documents: the best for the query, then the rest, latest first."""
        page = slice(op.offset, op.offset + op.limit)
        ranked: list[tuple[Document, float | None]] = []
        if op.query and op.query.strip() and op.limit:
            where = self._scope(bank, state, op)
            query = Query(text=clean_text(op.query), where=where or Filter(), recipe=self.recipe)
            hits = await bank.search(query, k=page.stop) if where is not None else []
            self._refresh(state)
            ranked = [(self._by_id[hit.id], hit.score) for hit in hits if hit.id in self._by_id]
        if len(ranked) < page.stop:
            seen = {document.item.id for document, _ in ranked}
            rest = self._below(bank, state, op)
            ranked += [(document, None) for document in rest if document.item.id not in seen]
        return ranked[page]

    def _scope(self, bank: MemoryBank, state: BankState, op: SearchOp) -> Filter | None:
        """Return the filter of a query; None when no document can pass it."""
        if not op.filter:
            return Filter(tags=frozenset({documents.prefix_tag(tuple(op.namespace_prefix))}))
        indexed = (document for document in self._below(bank, state, op) if document.indexed)
        ids = frozenset(document.item.id for document in indexed)
        return Filter(ids=ids) if ids else None

    def _namespaces(
        self, bank: MemoryBank, state: BankState, op: ListNamespacesOp
    ) -> list[Namespace]:
        self._refresh(state)
        expired, rules = bank.expired, op.match_conditions or ()
        found = {
            namespace[: op.max_depth]
            for namespace, members in self._by_namespace.items()
            if all(documents.matches_path(namespace, rule.match_type, rule.path) for rule in rules)
            and any(document.item.id not in expired for document in members)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    # -- writing -----------------------------------------------------------------------

    async def _write(
        self, bank: MemoryBank, writes: Mapping[str, PutOp], touched: Mapping[str, Document]
    ) -> None:
        drafts = {
            item_id: documents.draft_of(op, self.fields)
            for item_id, op in writes.items()
            if op.value is not None
        }
        refreshes = {
            item_id: document
            for item_id, document in touched.items()
            if document.ttl_minutes is not None and item_id not in writes and not bank.log.read_only
        }

        def plan(state: BankState, _: str) -> list[Assignment]:
            now = bank.now()
            assignments: list[Assignment] = []
            for item_id in writes:
                old, draft = state.items.get(item_id), drafts.get(item_id)
                if draft is not None:
                    assignments.append(documents.put_item(draft, old, now=now, trust=self.trust))
                elif old is not None and old.active:
                    assignments.append(documents.deleted_item(old))
            for item_id, document in refreshes.items():
                if state.items.get(item_id) == document.item:
                    past = state.archive.get(item_id, ())
                    assignments += documents.refreshed(document, past, now=now)
            return assignments

        if writes or refreshes:
            await assign(bank, plan, actor="user" if writes else "refresh")


def _as_item(document: Document) -> Item:
    return Item(
        value=document.fresh_value(),
        key=document.key,
        namespace=document.namespace,
        created_at=document.created_at,
        updated_at=document.updated_at,
    )


def _as_search_item(document: Document, score: float | None) -> SearchItem:
    value, dates = document.fresh_value(), (document.created_at, document.updated_at)
    return SearchItem(document.namespace, document.key, value, *dates, score)
