"""LangGraph documents as memory items, and the operations of a LangGraph store on them.

A document is an item of kind `document`. Its text is what it is found by; namespace,
key and value are kept in reserved metadata as ASCII JSON, so that any label (an e-mail
address with its dots, half a surrogate pair) comes back as it was given. Its id is a
hash over namespace and key, so one document has one history. Two labels are never
joined with a separator, so no label can pose as two.

The reads of a batch see the state before its writes, and of several writes to one key
the last one counts. All writes of a batch are one commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, cast

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
)

from memagent.integrations.access import (
    MAX_TURN_CHARS,
    Add,
    Assignment,
    BankState,
    Delete,
    Fact,
    Filter,
    InputError,
    ItemStatus,
    MemoryBank,
    MemoryItem,
    Query,
    Recipe,
    Trust,
    Update,
    assign,
    clean_text,
    content_id,
    in_order,
)

# A read that would move an expiry by less than this writes nothing.
_REFRESH_S = 1.0
KIND = "document"
"""Kind of the items that hold documents."""
# Fields that describe a `content` and are not what a document is found by.
_BOOKKEEPING = frozenset({"content", "encoding", "kind", "created_at", "modified_at", "updated_at"})
Namespace = tuple[str, ...]
# Reads what `draft_of` wrote, which has no space around it.
_read_json = json.JSONDecoder().raw_decode
_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


@dataclass(frozen=True, slots=True)
class Document:
    """One row of the store, read from its item; give callers `fresh_value`, not `value`."""

    item: MemoryItem
    namespace: Namespace
    key: str
    value: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    indexed: bool
    ttl_minutes: float | None

    def fresh_value(self) -> dict[str, Any]:
        """Return a copy of the value that is safe to change."""
        if not any(isinstance(part, dict | list) for part in self.value.values()):
            return dict(self.value)
        return json.loads(str(self.item.metadata["_value"]))


@lru_cache(maxsize=16_384)
def document_id(namespace: Namespace, key: str) -> str:
    """Return the id of the item that holds a document."""
    return content_id("doc", *(json.dumps(label) for label in (*namespace, key)))


@lru_cache(maxsize=4_096)
def _written(namespace: Namespace) -> str:
    return json.dumps(namespace)


@lru_cache(maxsize=4_096)
def _namespace(written: str) -> Namespace:
    return tuple(json.loads(written))


@lru_cache(maxsize=4_096)
def prefix_tag(prefix: Namespace) -> str:
    """Return the tag of every document at or below a namespace that a query may find."""
    return content_id("below", *(json.dumps(label) for label in prefix))


def decoded(item: MemoryItem) -> Document | None:
    """Return the document that an item holds; None for other items."""
    fields = item.metadata
    if item.kind != KIND or "_value" not in fields:
        return None
    ttl = fields.get("_ttl_minutes")
    return Document(
        item=item,
        namespace=_namespace(str(fields["_namespace"])),
        key=_read_json(str(fields["_key"]))[0],
        value=_read_json(str(fields["_value"]))[0],
        created_at=datetime.fromisoformat(str(fields["_created_at"])),
        updated_at=datetime.fromisoformat(str(fields["_updated_at"])),
        indexed=not fields.get("_unindexed", False),
        ttl_minutes=float(ttl) if ttl is not None else None,
    )


# -- writing ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Draft:
    """A document to write, checked and encoded."""

    namespace: Namespace
    key: str
    text: str
    metadata: dict[str, Any]
    ttl: float | None
    """Minutes to live."""


def draft_of(op: PutOp, fields: Sequence[str]) -> Draft:
    """Encode a write; `fields` are the paths to index unless the op names its own.

    Raises `InputError` for a value that is not JSON.
    """
    value: Mapping[Any, Any] = op.value or {}
    if not all(isinstance(name, str) for name in value):
        raise InputError(f"the value of {op.key!r} has a key that is not a string")
    try:
        body = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise InputError(f"the value of {op.key!r} is not JSON: {exc}") from exc
    paths = () if op.index is False else fields if op.index is None else op.index
    texts = [text for path in paths for text in _texts_at(value, path)]
    metadata: dict[str, Any] = {
        "_namespace": _written(op.namespace),
        "_key": json.dumps(op.key),
        "_value": body,
    }
    if not texts:
        metadata["_unindexed"] = True
    if op.ttl is not None:
        metadata["_ttl_minutes"] = float(op.ttl)
    words = "\n".join(text for text in texts if text.strip())[:MAX_TURN_CHARS]
    text = clean_text(words or "/".join((*op.namespace, op.key))[:MAX_TURN_CHARS])
    return Draft(op.namespace, op.key, text, metadata, op.ttl)


def put_item(draft: Draft, old: MemoryItem | None, *, now: datetime, trust: Trust) -> Assignment:
    """Return the item that a put leaves: a new version, or a new document where none is alive."""
    alive = decoded(old) if old is not None and old.active and not old.expired(now) else None
    dates = {"_created_at": alive.created_at if alive else now, "_updated_at": now}
    below = range(len(draft.namespace) + 1)
    indexed = not draft.metadata.get("_unindexed")
    item = MemoryItem(
        id=document_id(draft.namespace, draft.key),
        version=old.version + 1 if old is not None else 1,
        text=draft.text,
        kind=KIND,
        said_at=now,
        trust=trust,
        tags=tuple(prefix_tag(draft.namespace[:depth]) for depth in below if indexed),
        metadata={**draft.metadata, **{name: at.isoformat() for name, at in dates.items()}},
        expires_at=_end(draft.ttl, now),
    )
    if alive is not None:
        return Update(id=item.id, version=alive.item.version, text=item.text), item, None
    fact = Fact(text=item.text, kind=KIND, said_at=now, trust=trust, expires_at=item.expires_at)
    return Add(fact=fact, id=item.id, tags=item.tags, metadata=item.metadata), item, None


def deleted_item(old: MemoryItem) -> Assignment:
    """Return the tombstone that a deletion leaves."""
    tombstone = old.model_copy(update={"version": old.version + 1, "status": ItemStatus.DELETED})
    return Delete(id=old.id, version=old.version), tombstone, None


def refreshed(
    document: Document, past: tuple[MemoryItem, ...], *, now: datetime
) -> list[Assignment]:
    """Return the item with its time running anew, or nothing if that changes next to nothing."""
    item, ttl = document.item, document.ttl_minutes
    end = _end(ttl, now)
    if ttl is None or end is None or item.expires_at is None or item.expired(now):
        return []
    if abs((end - item.expires_at).total_seconds()) < min(_REFRESH_S, ttl * 60 / 10):
        return []
    reason = "read; its time to live runs anew"
    op = Update(id=item.id, version=item.version, text=item.text, reason=reason)
    return [(op, item.model_copy(update={"expires_at": end}), past)]


def _end(ttl: float | None, now: datetime) -> datetime | None:
    if ttl is None:
        return None
    try:
        return now + timedelta(minutes=ttl)
    except OverflowError:
        raise InputError(f"a ttl of {ttl} minutes ends after the year 9999; leave it out") from None


def _texts_at(value: Mapping[str, Any], path: str) -> list[str]:
    if path == "$":
        return ["\n".join(_content_of(value))]
    return get_text_at_path(dict(value), tokenize_path(path))


def _content_of(value: Mapping[str, Any]) -> list[str]:
    """Return the words of a whole value: of a note or a file, its content comes bare.

    Notes of tools, and files of agents, are `content` among bookkeeping.
    """
    if "content" not in value:
        return _words_in(value)
    inner = value["content"]
    content = _content_of(inner) if isinstance(inner, Mapping) else _words_in(inner)  # pyright: ignore[reportUnknownArgumentType]
    rest = {name: part for name, part in value.items() if name not in _BOOKKEEPING}
    return [*content, *_words_in(rest)]


def _words_in(value: object) -> list[str]:
    """Return every text, number and name in a JSON value, a name before its value."""
    if isinstance(value, Mapping):
        named: list[str] = []
        for name, part in cast("Mapping[str, object]", value).items():
            words = _words_in(part)
            named += [f"{name}: {words[0]}", *words[1:]] if words else []
        return named
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [word for part in cast("Sequence[object]", value) for word in _words_in(part)]
    return [] if value is None else [str(value)]


# -- filters and namespaces ------------------------------------------------------------


def check_filter(conditions: Mapping[str, Any]) -> None:
    """Raise `InputError` for an operator that does not exist."""
    for rule in conditions.values():
        names = cast("Mapping[str, object]", rule if isinstance(rule, Mapping) else {})
        unknown = [name for name in names if name.startswith("$") and name not in _OPERATORS]
        if unknown:
            raise InputError(
                f"there is no filter operator {unknown[0]!r}; there are {', '.join(_OPERATORS)}"
            )


def passes(value: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Tell whether a value meets every condition of a filter.

    A name is a field, whatever letters it has; where there is no such field, its dots
    lead to fields of fields.
    """
    return all(_meets(_field(value, name), rule) for name, rule in conditions.items())


def _field(value: Mapping[str, Any], name: str) -> Any:
    """Return the field of a name or dotted path; the longest name that exists comes first."""
    if name in value:
        return value[name]
    at = name.rfind(".")
    while at > 0:
        inner: object = value.get(name[:at])
        if isinstance(inner, Mapping):
            return _field(cast("Mapping[str, Any]", inner), name[at + 1 :])
        at = name.rfind(".", 0, at)
    return None


def _meets(value: object, rule: object) -> bool:
    if isinstance(rule, Mapping):
        rules = cast("Mapping[str, object]", rule)
        if any(name.startswith("$") for name in rules):
            return all(_compares(value, name, bound) for name, bound in rules.items())
        if not isinstance(value, Mapping):
            return False
        fields = cast("Mapping[str, object]", value)
        return all(_meets(fields.get(name), part) for name, part in rules.items())
    return _equal(value, rule)


def _equal(value: object, other: object) -> bool:
    """Compare as JSON: a list equals a tuple, true does not equal 1."""
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        ours, theirs = cast("Sequence[object]", value), cast("Sequence[object]", other)
        return len(ours) == len(theirs) and all(
            _meets(a, b) for a, b in zip(ours, theirs, strict=True)
        )
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def _compares(value: object, operator: str, bound: object) -> bool:
    if operator in ("$eq", "$ne"):
        return _equal(value, bound) == (operator == "$eq")
    return in_order(value, operator.removeprefix("$"), bound)


def matches_path(namespace: Namespace, kind: str, path: Sequence[str]) -> bool:
    """Tell whether a namespace begins (`prefix`) or ends (`suffix`) with a path.

    `*` stands for any label. Raises `InputError` for another kind of match.
    """
    if kind not in ("prefix", "suffix"):
        raise InputError(f"there is no namespace match {kind!r}; there are prefix and suffix")
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(pattern in ("*", label) for label, pattern in zip(part, path, strict=True))


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
            match op:
                case GetOp():
                    read = self._present(state, op, now=now)
                    results.append(_as_item(read[0]) if read else None)
                case SearchOp():
                    hits = await self._search(bank, state, op)
                    read = [document for document, _ in hits]
                    results.append([_as_search_item(document, score) for document, score in hits])
                case ListNamespacesOp():
                    results.append(self._namespaces(bank, state, op))
                case PutOp():
                    writes[document_id(op.namespace, op.key)] = op
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
                deleted_item(item)
                for item in sorted(state.active(), key=lambda item: item.id)
                if item.kind == KIND and item.expired(now)
            ]

        commit = await assign(bank, plan, actor="expiry")
        return len(commit.changes) if commit is not None else 0

    # -- reading -----------------------------------------------------------------------

    def _refresh(self, state: BankState) -> None:
        """Know every document that is not deleted, parsing only items that changed."""
        if self._items is state.items:
            return
        known, self._by_id, self._by_namespace = self._by_id, {}, {}
        for item in state.active():
            if item.kind == KIND:
                document = known.get(item.id)
                if document is None or document.item is not item:
                    document = decoded(item)
                if document is not None:
                    self._by_id[item.id] = document
                    self._by_namespace.setdefault(document.namespace, []).append(document)
        self._items = state.items

    def _present(self, state: BankState, op: GetOp, *, now: datetime) -> list[Document]:
        """Return the one live document at a place, if there is one."""
        item = state.items.get(document_id(op.namespace, op.key))
        if item is None or not item.active or item.expired(now):
            return []
        document = self._read.get(item.id)
        if document is None or document.item is not item:
            document = decoded(item)
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
            if namespace[: len(op.namespace_prefix)] == tuple(op.namespace_prefix)
            for document in members
            if document.item.id not in expired
            and (not conditions or passes(document.value, conditions))
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
            return Filter(tags=frozenset({prefix_tag(tuple(op.namespace_prefix))}))
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
            if all(matches_path(namespace, rule.match_type, rule.path) for rule in rules)
            and any(document.item.id not in expired for document in members)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    # -- writing -----------------------------------------------------------------------

    async def _write(
        self, bank: MemoryBank, writes: Mapping[str, PutOp], touched: Mapping[str, Document]
    ) -> None:
        drafts = {
            item_id: draft_of(op, self.fields)
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
                    assignments.append(put_item(draft, old, now=now, trust=self.trust))
                elif old is not None and old.active:
                    assignments.append(deleted_item(old))
            for item_id, document in refreshes.items():
                if state.items.get(item_id) == document.item:
                    assignments += refreshed(document, state.archive.get(item_id, ()), now=now)
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
