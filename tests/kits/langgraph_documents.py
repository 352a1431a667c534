"""Promises of a LangGraph store about documents: put, get, delete, namespaces, batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    Promise = Callable[[BaseStore], Awaitable[None]]

Namespace = tuple[str, ...]
NS: Final = ("kit", "ana")
FRUIT: Final[dict[str, dict[str, Any]]] = {
    "apple": {
        "text": "a red apple from the orchard",
        "price": 3,
        "fresh": True,
        "tags": ["red", "round"],
    },
    "banana": {
        "text": "a yellow banana from the market",
        "price": 1.5,
        "fresh": False,
        "origin": {"land": "Peru"},
    },
    "cherry": {"text": "a bowl of dark cherries", "price": 9, "fresh": True},
}


def expect(actual: object, expected: object, label: str) -> None:
    """Raise `AssertionError` unless both are equal."""
    assert actual == expected, f"{label}: expected {expected!r:.120}, got {actual!r:.120}"


def keys_of(rows: Iterable[Any]) -> set[str]:
    """Return the keys of documents."""
    return {row.key for row in rows}


def put_fruit(store: BaseStore) -> None:
    """Put three documents."""
    for key, value in FRUIT.items():
        store.put(NS, key, value)


def value_of(store: BaseStore, key: str, namespace: Namespace = NS) -> dict[str, Any] | None:
    """Return the value of a document; None for a missing one."""
    item = store.get(namespace, key)
    return item.value if item is not None else None


async def _round_trip(store: BaseStore) -> None:
    expect(store.get(NS, "none"), None, "a missing document")
    full: dict[str, Any] = {
        "text": "naïve 東京 🍎 'quoted' \"twice\" \\ %_",
        "n": 7,
        "x": 0.25,
        "yes": True,
        "nothing": None,
        "list": [1, [2, {"a": "b"}]],
        "nested": {"deep": {"er": []}},
        "": "empty name",
    }
    for key, value in (("k", full), ("empty", {})):
        store.put(NS, key, value)
        item = store.get(NS, key)
        assert item is not None, "a document that was put is there"
        expect((item.namespace, item.key, item.value), (NS, key, value), "the document")
        assert item.created_at.tzinfo is not None and item.updated_at >= item.created_at, (
            "dates are aware and in order"
        )


async def _overwrite(store: BaseStore) -> None:
    store.put(NS, "k", {"a": 1, "b": 2})
    first = store.get(NS, "k")
    store.put(NS, "k", {"a": 3})
    second = store.get(NS, "k")
    assert first is not None and second is not None
    expect(second.value, {"a": 3}, "the value")
    expect(len(store.search(NS)), 1, "documents")
    expect(second.created_at, first.created_at, "created_at")
    assert second.updated_at >= first.updated_at, "updated_at goes forward"


async def _copies(store: BaseStore) -> None:
    value: dict[str, Any] = {"list": [1]}
    store.put(NS, "k", value)
    value["list"].append(2)
    fetched = value_of(store, "k")
    expect(fetched, {"list": [1]}, "after changing what was put")
    assert fetched is not None
    fetched["list"].append(3)
    expect(value_of(store, "k"), {"list": [1]}, "after changing what was got")


async def _deletes(store: BaseStore) -> None:
    put_fruit(store)
    store.delete(NS, "apple")
    store.delete(NS, "apple")
    store.delete((*NS, "nowhere"), "banana")
    expect(store.get(NS, "apple"), None, "the deleted one")
    expect(keys_of(store.search(NS)), {"banana", "cherry"}, "the others")
    store.put(NS, "apple", {"again": True})
    expect(value_of(store, "apple"), {"again": True}, "put again")


async def _keys(store: BaseStore) -> None:
    keys = ["a/b", "ü 東", " ", "%", "_", "*", "a.b", "a'b", 'a"b', "x" * 300, "A", "a"]
    for at, key in enumerate(keys):
        store.put(NS, key, {"at": at})
        store.put(("kit", "bo"), key, {"at": -at})
    for at, key in enumerate(keys):
        values = value_of(store, key), value_of(store, key, ("kit", "bo"))
        expect(values, ({"at": at}, {"at": -at}), f"key {key!r:.20}")
    store.put(NS, 5, {"n": 5})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    item = store.get(NS, "5")
    expect(item.key if item else None, "5", "a key that is a number becomes text")


async def _bad_namespaces(store: BaseStore) -> None:
    bad: list[Any] = [(), ("langgraph", "x"), ("a", ""), ("a", 5), ("a", None)]
    for namespace in bad:
        try:
            store.put(namespace, "k", {})
        except ValueError:
            continue
        raise AssertionError(f"{namespace!r} must be refused with InvalidNamespaceError")
    expect(store.search(()), [], "what was stored all the same")


async def _dots(store: BaseStore) -> None:
    from langgraph.store.base import GetOp, PutOp

    dotted = {"whose": "dotted"}
    store.put(("a", "b"), "k", {"whose": "split"})
    with suppress(ValueError):
        store.put(("a.b",), "k", dotted)
        item = store.get(("a.b",), "k")
        expect(
            (item.namespace, item.value) if item else None, (("a.b",), dotted), "the dotted label"
        )
    with suppress(ValueError):
        store.batch([PutOp(("a.b",), "k", dotted)])
    expect(value_of(store, "k", ("a", "b")), {"whose": "split"}, "the namespace of two labels")
    store.delete(("a", "b"), "k")
    with suppress(ValueError):
        rows = store.batch([GetOp(("a", "b"), "k")])
        expect(rows[0], None, "two labels after their deletion")


async def _prefixes(store: BaseStore) -> None:
    names: list[Namespace] = [("users",), ("users", "ana"), ("users2",), ("us",), ("u_ers",)]
    names += [("u%",), ("USERS",)]
    for namespace in names:
        store.put(namespace, "k", {"at": list(namespace)})
    for prefix, count in (
        (("users",), 2),
        (("us",), 1),
        (("u_ers",), 1),
        (("u%",), 1),
        (("users", "ana"), 1),
        (("use",), 0),
    ):
        expect(len(store.search(prefix, limit=50)), count, f"documents below {prefix}")
    expect(len(store.search((), limit=50)), 7, "documents in all")


async def _namespaces(store: BaseStore) -> None:
    abc, abde, abdi = ("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i")
    abf, acf, zc = ("a", "b", "f"), ("a", "c", "f"), ("z", "c")
    tree: list[Namespace] = [abc, abde, abdi, abf, acf, zc]
    for namespace in tree:
        store.put(namespace, "k", {})
        store.put(namespace, "other", {})
    cases: list[tuple[dict[str, Any], set[Namespace]]] = [
        ({}, set(tree)),
        ({"prefix": ("a", "b"), "max_depth": 3}, {abc, ("a", "b", "d"), abf}),
        ({"suffix": ("f",)}, {abf, acf}),
        ({"prefix": ("a", "*", "f")}, {abf, acf}),
        ({"suffix": ("c", "*")}, {acf}),
        ({"prefix": ("a",), "suffix": ("f",)}, {abf, acf}),
        ({"max_depth": 1}, {("a",), ("z",)}),
        ({"prefix": ("b",)}, set()),
        ({"prefix": ("a", "b", "c", "d")}, set()),
    ]
    for arguments, expected in cases:
        listed = store.list_namespaces(**arguments)
        expect(set(listed), expected, f"list_namespaces({arguments})")
        expect(len(listed), len(set(listed)), "a namespace is listed once")
    pages = [store.list_namespaces(limit=2, offset=offset) for offset in range(0, 8, 2)]
    expect(sorted(name for page in pages for name in page), sorted(tree), "all pages together")


async def _empty_namespace(store: BaseStore) -> None:
    store.put(NS, "k", {})
    store.delete(NS, "k")
    store.get(("kit", "only", "asked"), "k")
    expect(store.list_namespaces(), [], "namespaces")


async def _batches(store: BaseStore) -> None:
    from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp

    put_fruit(store)
    bo = ("kit", "bo")
    results: list[Any] = store.batch(
        [
            GetOp(NS, "apple"),
            PutOp(NS, "apple", {"n": 1}),
            GetOp(NS, "apple"),
            SearchOp(NS, {"price": 9}),
            PutOp(NS, "apple", {"n": 2}),
            PutOp(NS, "cherry", None),
            ListNamespacesOp(),
            GetOp(NS, "none"),
            PutOp(bo, "x", {"n": 1}),
            PutOp(bo, "x", None),
            PutOp(bo, "y", None),
            PutOp(bo, "y", {"n": 4}),
        ]
    )
    expect(len(results), 12, "results")
    apples = [results[0].value, results[2].value]
    expect(apples, [FRUIT["apple"]] * 2, "a document before the batch's writes")
    rest = keys_of(results[3]), results[6], results[7]
    expect(rest, ({"cherry"}, [NS], None), "search, namespaces, nothing")
    expect([results[at] for at in (1, 4, 5, 8)], [None] * 4, "results of writes")
    after = value_of(store, "apple"), value_of(store, "cherry")
    expect(after, ({"n": 2}, None), "after the batch")
    last = [(row.key, row.value) for row in store.search(bo)]
    expect(last, [("y", {"n": 4})], "the last write of a key")
    expect(store.batch([]), [], "an empty batch")


async def _async_twins(store: BaseStore) -> None:
    from langgraph.store.base import GetOp, PutOp

    await store.aput(NS, "apple", FRUIT["apple"])
    await store.aput(NS, "banana", FRUIT["banana"])
    item = await store.aget(NS, "apple")
    expect(item.value if item else None, FRUIT["apple"], "aget")
    cheap = await store.asearch(NS, filter={"price": {"$lt": 2}})
    expect(keys_of(cheap), {"banana"}, "asearch")
    expect(await store.alist_namespaces(prefix=("kit",)), [NS], "alist_namespaces")
    await store.adelete(NS, "apple")
    results: list[Any] = await store.abatch(
        [GetOp(NS, "apple"), GetOp(NS, "banana"), PutOp(NS, "cherry", {"n": 1})]
    )
    expect((results[0], results[1].key, results[2]), (None, "banana", None), "abatch")
    cherry = await store.aget(NS, "cherry")
    expect(cherry.value if cherry else None, {"n": 1}, "what abatch put")
    await asyncio.gather(*(store.aput(("kit", "many"), f"k{at}", {"at": at}) for at in range(20)))
    expect(len(await store.asearch(("kit", "many"), limit=100)), 20, "documents put at once")


async def _at_once(store: BaseStore) -> None:
    def write(worker: int) -> None:
        for at in range(10):
            store.put(("kit", f"w{worker}"), f"k{at}", {"worker": worker, "at": at})

    run = asyncio.get_running_loop().run_in_executor
    with ThreadPoolExecutor(4) as pool:
        await asyncio.gather(*(run(pool, write, worker) for worker in range(4)))
    expect(len(store.search(("kit",), limit=100)), 40, "documents")


DOCUMENT_PROMISES: Final[dict[str, Promise]] = {
    "a document comes back as it was put": _round_trip,
    "a second put replaces the value and keeps `created_at`": _overwrite,
    "a value is a copy, changed by nobody": _copies,
    "delete takes one document out, and is harmless when there is none": _deletes,
    "keys are any text, apart in every namespace": _keys,
    "namespaces that cannot be are refused": _bad_namespaces,
    "a label with a dot is refused or stays one label": _dots,
    "a prefix matches whole labels only": _prefixes,
    "namespaces are listed by prefix, suffix, wildcard and depth": _namespaces,
    "a namespace without documents is not listed": _empty_namespace,
    "a batch answers in order, reads before writes, the last write wins": _batches,
    "the asynchronous methods do the same": _async_twins,
    "writes at once are all kept": _at_once,
}
