"""`MemoryStore`: a LangGraph `BaseStore` kept in one user's memory, for `compile(store=...)`.

Documents are memory items: journalled, undoable, exported and erased with the rest, and
found by `memory.search` too. The user is fixed when the store is made; namespaces, keys
and filters, which a model may choose, only ever name documents of that user. The
surprise: labels may hold dots (e-mail addresses), which LangGraph's own methods refuse;
a dotted label is one label here.

`StoreMirror`: a copy of a memory's items in any LangGraph store, for graphs that read there.

It is the way back from `MemoryStore`: the journal stays the truth, the store holds a
copy of the active items. The mirror keeps no state of its own; it compares the store's
documents with the items, so it may be stopped, repeated, or begun anew by another
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from math import isfinite
from typing import Any, Literal

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
)

from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    Coalescer,
    ConfigError,
    EmbeddingError,
    Hit,
    InputError,
    MemoryItem,
    Recipe,
    Record,
    Trust,
    boundary,
    clean_text,
    recipe_of,
)
from memagent.integrations.documents import KIND, DocumentBank, Namespace, check_filter
from memagent.protocols import Embedder, Matrix


def _verbs(request: Callable[..., Op]) -> tuple[Any, Any]:
    """Make the synchronous and the asynchronous method that carry out the op of a request.

    Type checkers take the methods' types from `BaseStore`.
    """

    @wraps(request)
    def call(store: MemoryStore, *args: Any, **kwargs: Any) -> Any:
        return store.batch([request(store, *args, **kwargs)])[0]

    @wraps(request)
    async def acall(store: MemoryStore, *args: Any, **kwargs: Any) -> Any:
        return (await store._coalescer.submit(_checked((request(store, *args, **kwargs),))))[0]  # noqa: SLF001 (`abatch`, a call less)  # pyright: ignore[reportPrivateUsage]

    return call, acall


class MemoryStore(BaseStore):
    """A LangGraph store over the memory of one user.

    `MemoryStore(agent)` over a synchronous `Agent` serves `batch` and `abatch` from any
    thread and event loop; over an `AsyncAgent` it serves `abatch` in that agent's event
    loop. `fields` are the paths that documents are found by unless `put(index=...)`
    says otherwise (`"$"`, the default, is the whole value); `index` is LangGraph's
    configuration, whose `embed` must be the agent's own embedder (`langchain_embedder`
    makes one); `ttl` is LangGraph's configuration of expiry; `recipe` sets how to
    search; `trust` is that of the documents written, a model's words unless you know
    better.
    """

    supports_ttl = True
    __slots__ = ("_access", "_coalescer", "_documents", "index_config", "ttl_config")

    def __init__(
        self,
        agent: Agent | AsyncAgent,
        *,
        fields: Sequence[str] | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        recipe: Recipe | str | None = None,
        trust: Trust = Trust.ASSISTANT,
    ) -> None:
        self._access = Access(agent)
        if index is not None and "embed" in index:
            expected = langchain_embedder(index).id
            if agent.embedder.id != expected:
                raise ConfigError(
                    f"`index` embeds with {expected}, but this memory with {agent.embedder.id}; "
                    "one memory has one embedder:  Agent(embedder=langchain_embedder(index))"
                )
        expiry: TTLConfig = ttl or {}
        if unknown := sorted(expiry.keys() - {"refresh_on_read", "omit_expired", "default_ttl"}):
            sweep = "; call `sweep_ttl` when it suits you" if "sweep" in unknown[0] else ""
            raise ConfigError(f"`ttl` may not hold {unknown[0]!r} here{sweep}")
        if not expiry.get("omit_expired", True):
            raise ConfigError(
                "`ttl` may not say omit_expired=False: what has expired is never shown"
            )
        self.index_config, self.ttl_config = index, ttl
        chosen = recipe_of(recipe) if recipe is not None else None
        chosen_fields = fields or (index or {}).get("fields") or ("$",)
        self._documents = DocumentBank(fields=tuple(chosen_fields), recipe=chosen, trust=trust)
        self._coalescer = Coalescer[Op, Result](
            lambda ops: self._access.arun(lambda agent: self._documents.run(agent.bank, ops))
        )

    @property
    def user_id(self) -> str:
        """The user whose documents these are."""
        return self._access.user_id

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads first, then all writes in one commit.

        Raises `InvalidNamespaceError`, `InputError`.
        """
        checked = _checked(ops)
        return self._access.run(lambda agent: self._documents.run(agent.bank, checked))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`, awaited; batches that are started at the same time are carried out as one."""
        return await self._coalescer.submit(_checked(ops))

    def sweep_ttl(self) -> int:
        """Delete the documents whose time is over and return their number."""
        return self._access.run(lambda agent: self._documents.sweep(agent.bank))

    async def asweep_ttl(self) -> int:
        """`sweep_ttl`, awaited."""
        return await self._access.arun(lambda agent: self._documents.sweep(agent.bank))

    # -- the named verbs, each spelled once ------------------------------------------

    def _refreshes(self, refresh_ttl: bool | None) -> bool:
        """Tell whether a read lets documents live longer."""
        configured = (self.ttl_config or {}).get("refresh_on_read", True)
        return refresh_ttl if refresh_ttl is not None else configured

    def _get(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Op:
        """Return a document, or None."""
        return GetOp(tuple(namespace), str(key), self._refreshes(refresh_ttl))

    get, aget = _verbs(_get)

    def _search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> Op:
        """Return documents at or below a namespace, the best for the query first.

        Without a query the latest come first.
        """
        refreshes = self._refreshes(refresh_ttl)
        return SearchOp(tuple(namespace_prefix), filter, limit, offset, query, refreshes)

    search, asearch = _verbs(_search)

    def _put(
        self,
        namespace: Namespace,
        key: str,
        value: dict[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> Op:
        """Write a document; `ttl` is in minutes from its last use."""
        if not namespace or namespace[0] == "langgraph":
            raise InvalidNamespaceError(
                "a document needs a namespace, and its first label cannot be 'langgraph': "
                f"{namespace!r}"
            )
        minutes = (
            (self.ttl_config or {}).get("default_ttl") if isinstance(ttl, NotProvided) else ttl
        )
        return PutOp(tuple(namespace), str(key), value, index, minutes)

    put, aput = _verbs(_put)

    def _delete(self, namespace: Namespace, key: str) -> Op:
        """Delete a document, if there is one."""
        return PutOp(tuple(namespace), str(key), None)

    delete, adelete = _verbs(_delete)

    def _list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Op:
        """Return the namespaces that hold documents, in order.

        `*` in a prefix or suffix stands for any label.
        """
        before = (MatchCondition("prefix", tuple(prefix)),) if prefix else ()
        after = (MatchCondition("suffix", tuple(suffix)),) if suffix else ()
        return ListNamespacesOp((*before, *after), max_depth, limit, offset)

    list_namespaces, alist_namespaces = _verbs(_list_namespaces)


# -- checks ----------------------------------------------------------------------------


def _checked(ops: Iterable[Op]) -> list[Op]:
    """Return the operations; raise if one of them cannot be carried out."""
    checked = list(ops)
    for op in checked:
        match op:
            case GetOp():
                _check_labels(op.namespace)
            case ListNamespacesOp():
                for rule in op.match_conditions or ():
                    _check_labels(rule.path)
                _check_page(op.limit, op.offset)
                if op.max_depth is not None and op.max_depth < 1:
                    raise InputError(f"max_depth is {op.max_depth}; ask for at least 1 label")
            case SearchOp():
                _check_labels(op.namespace_prefix)
                _check_page(op.limit, op.offset)
                check_filter(op.filter or {})
            case PutOp():
                _check_labels(op.namespace)
                if op.ttl is not None and not (isfinite(op.ttl) and op.ttl > 0):
                    raise InputError(
                        f"a ttl of {op.ttl} minutes is no time to live; give more than nothing"
                    )
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                raise InputError(f"there is no store operation {type(op).__name__}")
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


def langchain_embedder(index: IndexConfig, *, id: str | None = None) -> Embedder:
    """Return the embedder that LangGraph's `index=` configures, for `Agent(embedder=...)`.

    `embed` is LangChain's `Embeddings`, or a function from texts to vectors; `dims` is
    the length of a vector. `id` names weights and recipe for the cache of vectors; by
    default it is made of the class, its model and `dims`. Questions are embedded by
    `aembed_query`, memories by `aembed_documents`. Raises `ConfigError` without
    `embed` and `dims`.
    """
    embed: Any = index.get("embed")
    dims: Any = index.get("dims")
    if embed is None or isinstance(embed, str) or not isinstance(dims, int) or dims < 1:
        raise ConfigError("an index names `embed`, LangChain's Embeddings, and its `dims`")
    model = next((getattr(embed, name, None) for name in ("model", "model_name")), None)
    kind = getattr(embed, "__qualname__", type(embed).__qualname__)
    name = id or ":".join(str(part) for part in ("langchain", kind, model, dims) if part)
    made = _LangChainEmbedder(ensure_embeddings(embed).aembed_documents, name, dims)
    if isinstance(embed, Embeddings):

        async def queries(texts: list[str]) -> list[list[float]]:
            return await asyncio.gather(*map(embed.aembed_query, texts))

        made.queries = _LangChainEmbedder(queries, f"{name}:query", dims)
    return made


Rows = Callable[[list[str]], Awaitable[list[list[float]]]]


class _LangChainEmbedder:
    def __init__(self, rows: Rows, id: str, dim: int) -> None:
        self._rows, self.id, self.dim = rows, id, dim
        self.queries: Embedder | None = None

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors (N, D) in the order of the texts. Raises `EmbeddingError`."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        with boundary(EmbeddingError, self.id):
            vectors = np.asarray(await self._rows(list(map(clean_text, texts))), dtype=np.float32)
        if vectors.shape != (len(texts), self.dim):
            raise EmbeddingError(
                f"{self.id} gave vectors of shape {vectors.shape} for {len(texts)} texts; "
                f"`dims` says {self.dim}"
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(np.isfinite(norms)) or not np.all(norms > 0):
            raise EmbeddingError(f"{self.id} gave a vector that is zero or not finite")
        return vectors / norms


_PAGE = 500


class MirrorReport(Record):
    """The numbers of documents that one `sync` wrote, removed and left as they were."""

    written: int
    removed: int
    unchanged: int


class StoreMirror:
    """One namespace of a LangGraph store that mirrors one user's memory.

    A document's key is the item's id, its value text and provenance. It takes the
    namespace over: documents there that are no items are removed. Raises `InputError` for
    a `MemoryStore`.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...]) -> None:
        if isinstance(store, MemoryStore):
            raise InputError("a MemoryStore is the memory itself; mirror into another store")
        self.store = store
        self.namespace = namespace

    async def sync(self, agent: Agent | AsyncAgent) -> MirrorReport:
        """Make the documents equal to the agent's active items, in one batch of what differs."""
        items = await Access(agent).arun(lambda live: live.memory.get_all())
        source = {
            item.id: item.model_dump(
                mode="json", exclude={"id", "status", "embedding_missing"}, exclude_defaults=True
            )
            for item in items
            if item.kind != KIND
        }
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


def _item(document: Item) -> MemoryItem:
    return MemoryItem.model_validate({"id": document.key, **document.value})
