"""`MemoryStore`: a LangGraph `BaseStore` kept in one user's memory, for `compile(store=...)`.

Documents are memory items: journalled, undoable, exported and erased with the rest, and
found by `memory.search` too. The user is fixed when the store is made; namespaces, keys
and filters, which a model may choose, only ever name documents of that user. As in
LangGraph's own stores, the reads of a batch see what was there before its writes, and
of several writes to one key the last one counts. The surprise: labels may hold dots
(e-mail addresses), which LangGraph's own methods refuse; a dotted label is one label
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Any, Literal, cast

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Filter, Query
from memagent.core.errors import InputError
from memagent.core.recipes import Recipe, recipe_of
from memagent.core.records import Trust, clean_text
from memagent.integrations import documents
from memagent.integrations.access import Access, Assignment, assign
from memagent.integrations.documents import KIND, Document, Namespace
from memagent.memory.bank import MemoryBank
from memagent.state.fold import BankState


class MemoryStore(BaseStore):
    """A LangGraph store over the memory of one user.

    `MemoryStore(agent)` over a synchronous `Agent` serves `batch` and `abatch` from any
    thread and event loop; over an `AsyncAgent` it serves `abatch` in that agent's event
    loop. `fields` are the paths that documents are found by unless `put(index=...)`
    says otherwise (`"$"`, the default, is the whole value); `ttl` is LangGraph's
    configuration of expiry; `recipe` tells how to search; `trust` is that of the
    documents written, a model's words unless you know better.
    """

    supports_ttl = True
    __slots__ = (
        "_access",
        "_documents",
        "_of",
        "_places",
        "fields",
        "recipe",
        "trust",
        "ttl_config",
    )

    def __init__(
        self,
        agent: Agent | AsyncAgent,
        *,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
        recipe: Recipe | str | None = None,
        trust: Trust = Trust.ASSISTANT,
    ) -> None:
        self._access = Access(agent)
        self.fields = tuple(fields)
        self.ttl_config = ttl
        self.recipe = recipe_of(recipe) if recipe is not None else None
        self.trust = trust
        self._of: object = None
        self._documents: dict[str, Document] = {}
        self._places: dict[Namespace, list[Document]] = {}

    @property
    def user_id(self) -> str:
        """Whose documents these are."""
        return self._access.user_id

    # -- LangGraph's two verbs ---------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads first, then all writes in one commit.

        Raises `InvalidNamespaceError`, `InputError`.
        """
        checked = _checked(ops)
        return self._access.run(lambda agent: self._carry_out(agent.bank, checked))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`, awaited."""
        checked = _checked(ops)
        return await self._access.arun(lambda agent: self._carry_out(agent.bank, checked))

    def sweep_ttl(self) -> int:
        """Delete the documents whose time is over, which no read shows any more; gives
        their number.
        """
        return self._access.run(lambda agent: self._sweep(agent.bank))

    async def asweep_ttl(self) -> int:
        """`sweep_ttl`, awaited."""
        return await self._access.arun(lambda agent: self._sweep(agent.bank))

    # -- the named verbs: LangGraph's, but for labels with dots ------------------------

    def get(
        self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None
    ) -> Item | None:
        """A document, or None."""
        return cast("Item | None", self.batch([self._get(namespace, key, refresh_ttl)])[0])

    async def aget(
        self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None
    ) -> Item | None:
        """A document, or None."""
        return cast("Item | None", (await self.abatch([self._get(namespace, key, refresh_ttl)]))[0])

    def search(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        """Documents at or below a namespace: the best for a query first, without one
        the latest first.
        """
        op = SearchOp(
            tuple(namespace_prefix), filter, limit, offset, query, self._refreshes(refresh_ttl)
        )
        return cast("list[SearchItem]", self.batch([op])[0])

    async def asearch(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        """Documents at or below a namespace: the best for a query first, without one
        the latest first.
        """
        op = SearchOp(
            tuple(namespace_prefix), filter, limit, offset, query, self._refreshes(refresh_ttl)
        )
        return cast("list[SearchItem]", (await self.abatch([op]))[0])

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Write a document; `ttl` is in minutes from its last use."""
        self.batch([self._put(namespace, key, value, index, ttl)])

    async def aput(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Write a document; `ttl` is in minutes from its last use."""
        await self.abatch([self._put(namespace, key, value, index, ttl)])

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Take a document out; nothing happens when there is none."""
        self.batch([PutOp(tuple(namespace), str(key), None)])

    async def adelete(self, namespace: tuple[str, ...], key: str) -> None:
        """Take a document out; nothing happens when there is none."""
        await self.abatch([PutOp(tuple(namespace), str(key), None)])

    def list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """Namespaces that hold documents, in order; `*` in a prefix or suffix stands for any label."""
        op = ListNamespacesOp(_conditions(prefix, suffix), max_depth, limit, offset)
        return cast("list[tuple[str, ...]]", self.batch([op])[0])

    async def alist_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """Namespaces that hold documents, in order; `*` in a prefix or suffix stands for any label."""
        op = ListNamespacesOp(_conditions(prefix, suffix), max_depth, limit, offset)
        return cast("list[tuple[str, ...]]", (await self.abatch([op]))[0])

    def _refreshes(self, said: bool | None) -> bool:
        return said if said is not None else (self.ttl_config or {}).get("refresh_on_read", True)

    def _get(self, namespace: tuple[str, ...], key: str, refresh_ttl: bool | None) -> GetOp:
        return GetOp(tuple(namespace), str(key), self._refreshes(refresh_ttl))

    def _put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None,
        ttl: float | NotProvided | None,
    ) -> PutOp:
        if not namespace or namespace[0] == "langgraph":
            raise InvalidNamespaceError(
                f"a document needs a namespace, and its first label cannot be 'langgraph': {namespace!r}"
            )
        minutes = (
            (self.ttl_config or {}).get("default_ttl") if isinstance(ttl, NotProvided) else ttl
        )
        return PutOp(tuple(namespace), str(key), value, index, minutes)

    # -- carrying out ------------------------------------------------------------------

    async def _carry_out(self, bank: MemoryBank, ops: Sequence[Op]) -> list[Result]:
        state = await bank.sync()
        results: list[Result] = []
        writes: dict[tuple[Namespace, str], PutOp] = {}
        touched: dict[str, Document] = {}
        for op in ops:
            if isinstance(op, GetOp):
                found = _present(state, op.namespace, op.key, now=bank.now())
                results.append(_as_item(found) if found is not None else None)
                if found is not None and op.refresh_ttl:
                    touched[found.item.id] = found
            elif isinstance(op, SearchOp):
                hits = await self._search(bank, state, op)
                results.append([_as_search_item(found, score) for found, score in hits])
                if op.refresh_ttl:
                    touched.update({found.item.id: found for found, _ in hits})
            elif isinstance(op, ListNamespacesOp):
                results.append(self._namespaces(bank, state, op))
            else:
                writes[op.namespace, op.key] = op
                results.append(None)
        if writes or touched:
            await self._write(bank, writes, touched)
        return results

    def _look(self, state: BankState) -> None:
        """Know every document not deleted, by namespace; parsed once as long as its
        item does not change.
        """
        if self._of is state.items:
            return
        known, self._documents, self._places = self._documents, {}, {}
        for item in state.items.values():
            if item.kind == KIND and item.active:
                kept = known.get(item.id)
                found = kept if kept is not None and kept.item is item else documents.decoded(item)
                if found is not None:
                    self._documents[item.id] = found
                    self._places.setdefault(found.namespace, []).append(found)
        self._of = state.items

    def _below(self, bank: MemoryBank, state: BankState, op: SearchOp) -> list[Document]:
        """Documents at or below a namespace that pass the filter and have not expired,
        the latest first.
        """
        self._look(state)
        wanted, expired = op.filter or {}, bank.expired
        found = [
            one
            for namespace, listed in self._places.items()
            if documents.below(namespace, op.namespace_prefix)
            for one in listed
            if one.item.id not in expired and (not wanted or documents.passes(one.value, wanted))
        ]
        found.sort(key=lambda one: (one.updated_at, one.namespace, one.key), reverse=True)
        return found

    async def _search(
        self, bank: MemoryBank, state: BankState, op: SearchOp
    ) -> list[tuple[Document, float | None]]:
        page = slice(op.offset, op.offset + op.limit)
        if not op.query or not op.query.strip() or not op.limit:
            return [(one, None) for one in self._below(bank, state, op)[page]]
        if op.filter:
            ids = frozenset(one.item.id for one in self._below(bank, state, op) if one.indexed)
            where = Filter(ids=ids) if ids else None
        else:
            where = Filter(tags=frozenset({documents.prefix_tag(tuple(op.namespace_prefix))}))
        query = Query(text=clean_text(op.query), where=where or Filter(), recipe=self.recipe)
        hits = await bank.search(query, k=page.stop) if where is not None else []
        self._look(state)
        ranked: list[tuple[Document, float | None]] = [
            (self._documents[hit.id], hit.score) for hit in hits if hit.id in self._documents
        ]
        if len(ranked) < page.stop:
            seen = {one.item.id for one, _ in ranked}
            ranked += [
                (one, None) for one in self._below(bank, state, op) if one.item.id not in seen
            ]
        return ranked[page]

    def _namespaces(
        self, bank: MemoryBank, state: BankState, op: ListNamespacesOp
    ) -> list[Namespace]:
        self._look(state)
        expired = bank.expired
        found = {
            namespace[: op.max_depth]
            for namespace, listed in self._places.items()
            if all(
                documents.matches_path(namespace, rule.match_type, rule.path)
                for rule in op.match_conditions or ()
            )
            and any(one.item.id not in expired for one in listed)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    async def _write(
        self,
        bank: MemoryBank,
        writes: Mapping[tuple[Namespace, str], PutOp],
        touched: Mapping[str, Document],
    ) -> None:
        prepared = {
            place: self._prepared(op) for place, op in writes.items() if op.value is not None
        }

        def plan(state: BankState, commit_id: str) -> list[Assignment]:
            now = bank.now()
            done: list[Assignment] = []
            for (namespace, key), op in writes.items():
                old = state.items.get(documents.document_id(namespace, key))
                if op.value is not None:
                    done.append(
                        documents.put_item(
                            old,
                            namespace,
                            key,
                            *prepared[namespace, key],
                            ttl=op.ttl,
                            now=now,
                            trust=self.trust,
                        )
                    )
                elif old is not None and old.active:
                    done.append(documents.deleted_item(old))
            written = {item.id for _, item, _ in done}
            for item_id, seen in touched.items():
                item = state.items.get(item_id)
                if (
                    item_id not in written
                    and item is not None
                    and item == seen.item
                    and not bank.read_only
                ):
                    done += documents.refreshed(
                        item, state.archive.get(item_id, ()), seen.ttl_minutes, now=now
                    )
            return done

        due = any(one.ttl_minutes is not None for one in touched.values()) and not bank.read_only
        if writes or due:
            await assign(bank, plan, actor="user" if writes else "refresh")

    def _prepared(self, op: PutOp) -> tuple[str, dict[str, Any]]:
        """(text, metadata) of a document to write."""
        assert op.value is not None
        metadata = documents.encoded(
            op.namespace, op.key, op.value, indexed=op.index is not False, ttl_minutes=op.ttl
        )
        paths = () if op.index is False else self.fields if op.index is None else op.index
        texts = [text for path in paths for text in _texts_at(op.value, path)]
        if not texts:
            metadata["_unindexed"] = True
        return documents.text_of(texts, namespace=op.namespace, key=op.key), metadata

    async def _sweep(self, bank: MemoryBank) -> int:
        def plan(state: BankState, commit_id: str) -> list[Assignment]:
            now = bank.now()
            return [
                documents.deleted_item(item)
                for item in sorted(state.items.values(), key=lambda one: one.id)
                if item.kind == KIND and item.active and item.expired(now)
            ]

        commit = await assign(bank, plan, actor="expiry")
        return len(commit.changes) if commit is not None else 0


def _texts_at(value: Mapping[str, Any], path: str) -> list[str]:
    if path == "$":
        return ["\n".join(documents.words_in(value))]
    return get_text_at_path(dict(value), tokenize_path(path))


def _present(state: BankState, namespace: Namespace, key: str, *, now: datetime) -> Document | None:
    item = state.items.get(documents.document_id(namespace, key))
    if item is None or not item.active or item.expired(now):
        return None
    found = documents.decoded(item)
    return found if found is not None and (found.namespace, found.key) == (namespace, key) else None


def _as_item(found: Document) -> Item:
    return Item(
        value=found.fresh_value(),
        key=found.key,
        namespace=found.namespace,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def _as_search_item(found: Document, score: float | None) -> SearchItem:
    return SearchItem(
        found.namespace, found.key, found.fresh_value(), found.created_at, found.updated_at, score
    )


# -- checks ----------------------------------------------------------------------------


def _conditions(
    prefix: NamespacePath | None, suffix: NamespacePath | None
) -> tuple[MatchCondition, ...]:
    pairs: tuple[tuple[Literal["prefix", "suffix"], NamespacePath | None], ...] = (
        ("prefix", prefix),
        ("suffix", suffix),
    )
    return tuple(MatchCondition(kind, tuple(path)) for kind, path in pairs if path)


def _checked(ops: Iterable[Op]) -> list[Op]:
    """The operations, refused as a whole when one of them cannot be carried out."""
    checked: list[Op] = []
    for op in ops:
        if isinstance(op, ListNamespacesOp):
            for rule in op.match_conditions or ():
                _check_labels(rule.path)
            _check_page(op.limit, op.offset)
            if op.max_depth is not None and op.max_depth < 1:
                raise InputError(f"max_depth is {op.max_depth}; ask for at least 1 label")
        elif isinstance(op, SearchOp):
            _check_labels(op.namespace_prefix)
            _check_page(op.limit, op.offset)
            documents.check_filter(op.filter or {})
        elif isinstance(op, GetOp | PutOp):  # pyright: ignore[reportUnnecessaryIsInstance]
            _check_labels(op.namespace)
            if (
                isinstance(op, PutOp)
                and op.ttl is not None
                and not (isfinite(op.ttl) and op.ttl > 0)
            ):
                raise InputError(
                    f"a ttl of {op.ttl} minutes is no time to live; give more than nothing"
                )
        else:
            raise InputError(f"there is no store operation {type(op).__name__}")
        checked.append(op)
    return checked


def _check_labels(labels: Sequence[object]) -> None:
    for label in labels:
        if not isinstance(label, str) or not label or "\x00" in label:
            raise InvalidNamespaceError(
                f"namespace label {label!r}: labels are texts, not empty and without NUL"
            )


def _check_page(limit: int, offset: int) -> None:
    if limit < 0 or offset < 0:
        raise InputError(f"limit {limit}, offset {offset}: neither can be below 0")
