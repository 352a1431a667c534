"""LangGraph documents as memory items: what a row of a store is, how it is kept, matched and found.

Pure.

A document is an item of kind `document`. Its text is what it is found by; namespace,
key and value are kept in reserved metadata as ASCII JSON, so that any label (an e-mail
address with its dots, half a surrogate pair) comes back as it was given. Its id is a
hash over namespace and key, so one document has one history. Two labels are never
joined with a separator, so no label can pose as two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from memagent.core.errors import InputError
from memagent.core.ops import Add, Delete, Update
from memagent.core.records import (
    MAX_TURN_CHARS,
    Fact,
    ItemStatus,
    MemoryItem,
    Trust,
    clean_text,
    content_id,
)
from memagent.integrations.access import Assignment

_REFRESH_S = 1.0
"""A read that would move an expiry by less than this writes nothing."""
KIND = "document"
"""Kind of the items that hold documents."""
Namespace = tuple[str, ...]
_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


@dataclass(frozen=True, slots=True)
class Document:
    """One row of the store, read from its item.

    `value` is shared: give callers a copy from `fresh_value`.
    """

    item: MemoryItem
    namespace: Namespace
    key: str
    value: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    indexed: bool
    ttl_minutes: float | None

    def fresh_value(self) -> dict[str, Any]:
        """The value, safe to change."""
        return json.loads(str(self.item.metadata["_value"]))


def document_id(namespace: Namespace, key: str) -> str:
    """Id of the item that holds a document."""
    return content_id("doc", *(json.dumps(label) for label in (*namespace, key)))


def prefix_tag(prefix: Namespace) -> str:
    """Tag of every document at or below a namespace that a query may find."""
    return content_id("below", *(json.dumps(label) for label in prefix))


def encoded(
    namespace: Namespace,
    key: str,
    value: Mapping[str, Any],
    *,
    indexed: bool,
    ttl_minutes: float | None,
) -> dict[str, str | int | float | bool | None]:
    """Metadata that keeps a document.

    Raises `InputError` for a value that is not JSON.
    """
    if not all(isinstance(name, str) for name in value):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"the value of {key!r} has a key that is not a string")
    try:
        body = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise InputError(f"the value of {key!r} is not JSON: {exc}") from exc
    found: dict[str, str | int | float | bool | None] = {
        "_namespace": json.dumps(namespace),
        "_key": json.dumps(key),
        "_value": body,
    }
    if not indexed:
        found["_unindexed"] = True
    if ttl_minutes is not None:
        found["_ttl_minutes"] = float(ttl_minutes)
    return found


def dated(
    metadata: Mapping[str, Any], *, created_at: datetime, updated_at: datetime
) -> dict[str, Any]:
    """Metadata with the dates of a document."""
    return {
        **metadata,
        "_created_at": created_at.isoformat(),
        "_updated_at": updated_at.isoformat(),
    }


def decoded(item: MemoryItem) -> Document | None:
    """The document an item holds; None for other items."""
    if item.kind != KIND or "_value" not in item.metadata:
        return None
    kept = item.metadata
    ttl = kept.get("_ttl_minutes")
    return Document(
        item=item,
        namespace=tuple(json.loads(str(kept["_namespace"]))),
        key=json.loads(str(kept["_key"])),
        value=json.loads(str(kept["_value"])),
        created_at=datetime.fromisoformat(str(kept["_created_at"])),
        updated_at=datetime.fromisoformat(str(kept["_updated_at"])),
        indexed=not kept.get("_unindexed", False),
        ttl_minutes=float(ttl) if ttl is not None else None,
    )


# -- writing ---------------------------------------------------------------------------


def put_item(
    old: MemoryItem | None,
    namespace: Namespace,
    key: str,
    text: str,
    metadata: Mapping[str, Any],
    *,
    ttl: float | None,
    now: datetime,
    trust: Trust,
) -> Assignment:
    """The item that a put leaves: a new version, of a new document where there is none
    or none any more.
    """
    there = decoded(old) if old is not None and old.active and not old.expired(now) else None
    item = MemoryItem(
        id=document_id(namespace, key),
        version=old.version + 1 if old is not None else 1,
        text=text,
        kind=KIND,
        said_at=now,
        trust=trust,
        tags=()
        if metadata.get("_unindexed")
        else tuple(prefix_tag(namespace[:at]) for at in range(len(namespace) + 1)),
        metadata=dated(metadata, created_at=there.created_at if there else now, updated_at=now),
        expires_at=_end(ttl, now),
    )
    if there is not None:
        return Update(id=item.id, version=there.item.version, text=text), item, None
    fact = Fact(text=text, kind=KIND, said_at=now, trust=trust, expires_at=item.expires_at)
    return Add(fact=fact, id=item.id, tags=item.tags, metadata=item.metadata), item, None


def deleted_item(old: MemoryItem) -> Assignment:
    """The tombstone that a deletion leaves."""
    gone = old.model_copy(update={"version": old.version + 1, "status": ItemStatus.DELETED})
    return Delete(id=old.id, version=old.version), gone, None


def refreshed(
    item: MemoryItem, past: tuple[MemoryItem, ...], ttl: float | None, *, now: datetime
) -> list[Assignment]:
    """The item with its time running anew, at the same version; nothing where that
    changes next to nothing.
    """
    end = _end(ttl, now)
    if ttl is None or end is None or item.expires_at is None or item.expired(now):
        return []
    if abs((end - item.expires_at).total_seconds()) < min(_REFRESH_S, ttl * 60 / 10):
        return []
    op = Update(
        id=item.id, version=item.version, text=item.text, reason="read; its time to live runs anew"
    )
    return [(op, item.model_copy(update={"expires_at": end}), past)]


def _end(ttl: float | None, now: datetime) -> datetime | None:
    if ttl is None:
        return None
    try:
        return now + timedelta(minutes=ttl)
    except OverflowError:
        raise InputError(f"a ttl of {ttl} minutes ends after the year 9999; leave it out") from None


# -- what a document is found by -------------------------------------------------------


def text_of(texts: Sequence[str], *, namespace: Namespace, key: str) -> str:
    """The text of a document's item: what its indexed fields say, or its place where
    they say nothing.
    """
    said = "\n".join(text for text in texts if text.strip())[:MAX_TURN_CHARS]
    return clean_text(said or "/".join((*namespace, key))[:MAX_TURN_CHARS])


def words_in(value: object) -> list[str]:
    """Every text, number and name in a JSON value, a name before what it names."""
    if isinstance(value, Mapping):
        found: list[str] = []
        for name, part in cast("Mapping[str, object]", value).items():
            words = words_in(part)
            found += [f"{name}: {words[0]}", *words[1:]] if words else []
        return found
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [word for part in cast("Sequence[object]", value) for word in words_in(part)]
    return [] if value is None else [str(value)]


# -- filters and namespaces ------------------------------------------------------------


def check_filter(wanted: Mapping[str, Any]) -> None:
    """Raises `InputError` for an operator that does not exist."""
    for rule in wanted.values():
        if isinstance(rule, Mapping):
            for name in cast("Mapping[str, object]", rule):
                if name.startswith("$") and name not in _OPERATORS:
                    raise InputError(
                        f"there is no filter operator {name!r}; there are {', '.join(_OPERATORS)}"
                    )


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a value meets every condition of a filter."""
    return all(_meets(value.get(name), rule) for name, rule in wanted.items())


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
    """Equality of JSON: a list and a tuple are alike, true and 1 are not."""
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        ours, theirs = cast("Sequence[object]", value), cast("Sequence[object]", other)
        return len(ours) == len(theirs) and all(
            _meets(a, b) for a, b in zip(ours, theirs, strict=True)
        )
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def _compares(value: object, operator: str, bound: object) -> bool:
    if operator in ("$eq", "$ne"):
        return _equal(value, bound) == (operator == "$eq")
    ours, theirs = _ordered(value), _ordered(bound)
    if ours is None or theirs is None or ours[0] != theirs[0]:
        # what has no order (missing, a list, a text beside a number) is neither more
        # nor less
        return False
    if ours == theirs:
        return operator in ("$gte", "$lte")
    return (ours > theirs) == (operator in ("$gt", "$gte"))


def _ordered(value: object) -> tuple[str, Any] | None:
    """Numbers order among numbers, texts among texts, numerals in texts as numbers are not."""
    if isinstance(value, str):
        return "text", value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", value
    return None


def below(namespace: Namespace, prefix: Sequence[str]) -> bool:
    """Whether a namespace lies at or below a prefix, label by label."""
    return namespace[: len(prefix)] == tuple(prefix)


def matches_path(namespace: Namespace, kind: str, path: Sequence[str]) -> bool:
    """Whether a namespace has a path at its beginning (`prefix`) or end (`suffix`); `*`
    stands for any label.
    """
    if kind not in ("prefix", "suffix"):
        raise InputError(f"there is no namespace match {kind!r}; there are prefix and suffix")
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
