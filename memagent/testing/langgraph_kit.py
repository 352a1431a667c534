"""`check_langgraph_store`: whether an object keeps the promises of LangGraph's
`BaseStore`, as its documentation and source state them.

Each promise is one function over a fresh, empty store, so a report names every broken
one and not only the first. What LangGraph leaves open (the order of documents without a
query, whether a label may hold a dot) is left open here; what mixes up two documents is
not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    MakeStore = Callable[[], BaseStore | Awaitable[BaseStore]]
    Elapse = Callable[[BaseStore, float], None]
    Promise = Callable[[BaseStore], Awaitable[None]]

_NS = ("kit", "ana")
_FRUIT = {
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


async def check_langgraph_store(
    make_store: MakeStore, *, searches: bool = True, elapse: Elapse | None = None
) -> None:
    """Check stores made by `make_store`, called once a promise and each time for an empty one.

    Raises `AssertionError` with all faults.

    `searches=False` leaves out what needs an index for `query`. `elapse(store,
    seconds)` lets time pass for the store (by a clock of its own, or by sleeping), and
    sweeps if the store needs it; without it, times to live are not checked.
    """
    faults = await langgraph_store_faults(make_store, searches=searches, elapse=elapse)
    broken = [f"{name}: {fault}" for name, fault in faults.items() if fault is not None]
    assert not broken, f"{len(broken)} of {len(faults)} promises are broken:\n" + "\n".join(broken)


async def langgraph_store_faults(
    make_store: MakeStore, *, searches: bool = True, elapse: Elapse | None = None
) -> dict[str, str | None]:
    """Every promise in words, with what breaks it; None where it is kept."""
    found: dict[str, str | None] = {}
    for words, promise in _promises(searches=searches, elapse=elapse):
        made = make_store()
        store = await made if isinstance(made, Awaitable) else made
        try:
            await promise(store)
        except AssertionError as fault:
            found[words] = str(fault) or "does not hold"
        except Exception as fault:
            found[words] = f"{type(fault).__name__}: {fault}"
        else:
            found[words] = None
    return found


def _promises(*, searches: bool, elapse: Elapse | None) -> Iterator[tuple[str, Promise]]:
    yield "a document comes back as it was put", _round_trip
    yield "a second put replaces the value and keeps `created_at`", _overwrite
    yield "a value is a copy, changed by nobody", _copies
    yield "delete takes one document out, and is harmless when there is none", _deletes
    yield "keys are any text, apart in every namespace", _keys
    yield "namespaces that cannot be are refused", _bad_namespaces
    yield "a label with a dot is refused or stays one label", _dots
    yield "a prefix matches whole labels only", _prefixes
    yield "limit and offset page through everything once", _pages
    yield "filters on equal values", _equality
    yield "filters by $eq $ne $gt $gte $lt $lte", _operators
    yield "an order filter leaves out documents without the field", _order_of_nothing
    yield "a filter's field is data, never code", _odd_fields
    yield "namespaces are listed by prefix, suffix, wildcard and depth", _namespaces
    yield "a namespace without documents is not listed", _empty_namespace
    yield "a batch answers in order, reads before writes, the last write wins", _batches
    yield "the asynchronous methods do the same", _async_twins
    yield "writes at once are all kept", _at_once
    if searches:
        yield "a query ranks by meaning, with filter and namespace", _ranking
        yield "`index` chooses what a query finds a document by", _index_paths
        yield "`index=False` is found without a query and not ranked by one", _unindexed
    yield "a store without times to live says so", _no_ttl
    if elapse is not None:
        yield from _times_to_live(elapse)


def _is(actual: object, expected: object, what: str) -> None:
    assert actual == expected, f"{what}: expected {expected!r:.120}, got {actual!r:.120}"


def _keys_of(rows: Any) -> set[str]:
    return {row.key for row in rows}


def _fill(store: BaseStore) -> None:
    for key, value in _FRUIT.items():
        store.put(_NS, key, value)


async def _round_trip(store: BaseStore) -> None:
    _is(store.get(_NS, "none"), None, "a missing document")
    value: dict[str, Any] = {
        "text": "naïve 東京 🍎 'quoted' \"twice\" \\ %_", "n": 7, "x": 0.25, "yes": True, "nothing": None, "list": [1, [2, {"a": "b"}]],
        "nested": {"deep": {"er": []}}, "": "empty name",
    }  # fmt: skip
    for key, one in (("k", value), ("empty", {})):
        store.put(_NS, key, one)
        item = store.get(_NS, key)
        assert item is not None, "a document that was put is there"
        _is((item.namespace, item.key, item.value), (_NS, key, one), "the document")
        assert item.created_at.tzinfo is not None and item.updated_at >= item.created_at, (
            "dates are aware and in order"
        )


async def _overwrite(store: BaseStore) -> None:
    store.put(_NS, "k", {"a": 1, "b": 2})
    first = store.get(_NS, "k")
    store.put(_NS, "k", {"a": 3})
    second = store.get(_NS, "k")
    assert first is not None and second is not None
    _is(second.value, {"a": 3}, "the value")
    _is(len(store.search(_NS)), 1, "documents")
    _is(second.created_at, first.created_at, "created_at")
    assert second.updated_at >= first.updated_at, "updated_at goes forward"


async def _copies(store: BaseStore) -> None:
    value: dict[str, Any] = {"list": [1]}
    store.put(_NS, "k", value)
    value["list"].append(2)
    item = store.get(_NS, "k")
    assert item is not None
    _is(item.value, {"list": [1]}, "after changing what was put")
    item.value["list"].append(3)
    again = store.get(_NS, "k")
    assert again is not None
    _is(again.value, {"list": [1]}, "after changing what was got")


async def _deletes(store: BaseStore) -> None:
    _fill(store)
    store.delete(_NS, "apple")
    store.delete(_NS, "apple")
    store.delete((*_NS, "nowhere"), "banana")
    _is(store.get(_NS, "apple"), None, "the deleted one")
    _is(_keys_of(store.search(_NS)), {"banana", "cherry"}, "the others")
    store.put(_NS, "apple", {"again": True})
    item = store.get(_NS, "apple")
    _is(item.value if item else None, {"again": True}, "put again")


async def _keys(store: BaseStore) -> None:
    keys = ["a/b", "ü 東", " ", "%", "_", "*", "a.b", "a'b", 'a"b', "x" * 300, "A", "a"]
    for at, key in enumerate(keys):
        store.put(_NS, key, {"at": at})
        store.put(("kit", "bo"), key, {"at": -at})
    for at, key in enumerate(keys):
        mine, theirs = store.get(_NS, key), store.get(("kit", "bo"), key)
        _is(
            (mine.value if mine else None, theirs.value if theirs else None),
            ({"at": at}, {"at": -at}),
            f"key {key!r:.20}",
        )
    store.put(_NS, 5, {"n": 5})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    item = store.get(_NS, "5")
    _is(item.key if item else None, "5", "a key that is a number becomes text")


async def _bad_namespaces(store: BaseStore) -> None:
    bad: list[Any] = [(), ("langgraph", "x"), ("a", ""), ("a", 5), ("a", None)]
    for namespace in bad:
        try:
            store.put(namespace, "k", {})
        except ValueError:
            continue
        raise AssertionError(f"{namespace!r} must be refused with InvalidNamespaceError")
    _is(store.search(()), [], "what was stored all the same")


async def _dots(store: BaseStore) -> None:
    from langgraph.store.base import GetOp, PutOp

    store.put(("a", "b"), "k", {"whose": "split"})
    try:
        store.put(("a.b",), "k", {"whose": "dotted"})
    except ValueError:
        pass
    else:
        item = store.get(("a.b",), "k")
        _is(
            (item.namespace, item.value) if item else None,
            (("a.b",), {"whose": "dotted"}),
            "the dotted label",
        )
    with suppress(ValueError):
        store.batch([PutOp(("a.b",), "k", {"whose": "dotted"})])
    item = store.get(("a", "b"), "k")
    _is(item.value if item else None, {"whose": "split"}, "the namespace of two labels")
    store.delete(("a", "b"), "k")
    try:
        found = store.batch([GetOp(("a", "b"), "k")])[0]
    except ValueError:
        found = None
    _is(found, None, "two labels after their deletion")


async def _prefixes(store: BaseStore) -> None:
    for namespace in (
        ("users",),
        ("users", "ana"),
        ("users2",),
        ("us",),
        ("u_ers",),
        ("u%",),
        ("USERS",),
    ):
        store.put(namespace, "k", {"at": list(namespace)})
    for prefix, count in (
        (("users",), 2),
        (("us",), 1),
        (("u_ers",), 1),
        (("u%",), 1),
        (("users", "ana"), 1),
        (("use",), 0),
    ):
        found = store.search(prefix, limit=50)
        _is(len(found), count, f"documents below {prefix}")
    _is(len(store.search((), limit=50)), 7, "documents in all")


async def _pages(store: BaseStore) -> None:
    for at in range(25):
        store.put(("kit", f"p{at % 3}"), f"k{at}", {"at": at})
    _is(len(store.search(("kit",))), 10, "documents without a limit")
    seen = [
        row.value["at"]
        for offset in range(0, 28, 4)
        for row in store.search(("kit",), limit=4, offset=offset)
    ]
    _is(sorted(seen), list(range(25)), "all pages together")
    _is(store.search(("kit",), limit=5, offset=25), [], "past the end")
    _is(store.search(("kit",), limit=0), [], "limit 0")
    even = [
        store.search(("kit",), limit=3, offset=at, filter={"at": {"$lt": 7}})
        for at in range(0, 9, 3)
    ]
    _is(
        sorted(row.value["at"] for page in even for row in page),
        list(range(7)),
        "all pages of a filter",
    )


def _found(store: BaseStore, wanted: dict[str, Any]) -> str:
    return "".join(sorted(row.key[0] for row in store.search(_NS, filter=wanted)))


async def _equality(store: BaseStore) -> None:
    _fill(store)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"price": 3}, "a"), ({"price": 1.5}, "b"), ({"fresh": True}, "ac"), ({"text": "a bowl of dark cherries"}, "c"),
        ({"tags": ["red", "round"]}, "a"), ({"tags": ["red"]}, ""), ({"origin": {"land": "Peru"}}, "b"), ({"nothing": "x"}, ""),
        ({"fresh": True, "price": 9}, "c"), ({"price": 3, "fresh": False}, ""), ({}, "abc"), ({"text": "a red"}, ""),
    ]  # fmt: skip
    for wanted, keys in cases:
        _is(_found(store, wanted), keys, f"filter {wanted}")


async def _operators(store: BaseStore) -> None:
    _fill(store)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"price": {"$eq": 3}}, "a"), ({"price": {"$ne": 3}}, "bc"), ({"price": {"$gt": 3}}, "c"), ({"price": {"$gte": 3}}, "ac"),
        ({"price": {"$lt": 3}}, "b"), ({"price": {"$lte": 3}}, "ab"), ({"price": {"$gt": 1.5, "$lt": 9}}, "a"),
        ({"price": {"$gt": 2}, "fresh": True}, "ac"), ({"price": {"$gt": 10}}, ""), ({"text": {"$ne": "x"}}, "abc"),
    ]  # fmt: skip
    for wanted, keys in cases:
        _is(_found(store, wanted), keys, f"filter {wanted}")


async def _order_of_nothing(store: BaseStore) -> None:
    _fill(store)
    store.put(_NS, "date", {"text": "no price"})
    _is(_found(store, {"price": {"$gt": 0}}), "abc", "documents with a price above 0")


async def _odd_fields(store: BaseStore) -> None:
    _fill(store)
    for field in ("') OR 1=1 --", "x' OR '1'='1", "$", "a]b[", "%"):
        try:
            found = store.search(_NS, filter={field: "nobody has this"})
        except ValueError:
            continue
        _is(found, [], f"a filter on the field {field!r}")


async def _namespaces(store: BaseStore) -> None:
    tree = [
        ("a", "b", "c"),
        ("a", "b", "d", "e"),
        ("a", "b", "d", "i"),
        ("a", "b", "f"),
        ("a", "c", "f"),
        ("z", "c"),
    ]
    for namespace in tree:
        store.put(namespace, "k", {})
        store.put(namespace, "other", {})
    cases: list[tuple[dict[str, Any], set[tuple[str, ...]]]] = [
        ({}, set(tree)),
        (
            {"prefix": ("a", "b"), "max_depth": 3},
            {("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")},
        ),
        ({"suffix": ("f",)}, {("a", "b", "f"), ("a", "c", "f")}),
        ({"prefix": ("a", "*", "f")}, {("a", "b", "f"), ("a", "c", "f")}),
        ({"suffix": ("c", "*")}, {("a", "c", "f")}),
        ({"prefix": ("a",), "suffix": ("f",)}, {("a", "b", "f"), ("a", "c", "f")}),
        ({"max_depth": 1}, {("a",), ("z",)}),
        ({"prefix": ("b",)}, set()),
        ({"prefix": ("a", "b", "c", "d")}, set()),
    ]
    for arguments, expected in cases:
        found = store.list_namespaces(**arguments)
        _is(set(found), expected, f"list_namespaces({arguments})")
        _is(len(found), len(set(found)), "a namespace is listed once")
    pages = [
        one for offset in range(0, 8, 2) for one in store.list_namespaces(limit=2, offset=offset)
    ]
    _is(sorted(pages), sorted(tree), "all pages together")


async def _empty_namespace(store: BaseStore) -> None:
    store.put(_NS, "k", {})
    store.delete(_NS, "k")
    store.get(("kit", "only", "asked"), "k")
    _is(store.list_namespaces(), [], "namespaces")


async def _batches(store: BaseStore) -> None:
    from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp

    _fill(store)
    other = ("kit", "bo")
    results: list[Any] = store.batch(
        [
            GetOp(_NS, "apple"), PutOp(_NS, "apple", {"n": 1}), GetOp(_NS, "apple"), SearchOp(_NS, {"price": 9}),
            PutOp(_NS, "apple", {"n": 2}), PutOp(_NS, "cherry", None), ListNamespacesOp(), GetOp(_NS, "none"),
            PutOp(other, "x", {"n": 1}), PutOp(other, "x", None), PutOp(other, "y", None), PutOp(other, "y", {"n": 4}),
        ]
    )  # fmt: skip
    _is(len(results), 12, "results")
    _is(
        [results[0].value, results[2].value],
        [_FRUIT["apple"]] * 2,
        "a document before the batch's writes",
    )
    _is(
        (_keys_of(results[3]), results[6], results[7]),
        ({"cherry"}, [_NS], None),
        "search, namespaces, nothing",
    )
    _is([results[at] for at in (1, 4, 5, 8)], [None] * 4, "results of writes")
    apple, gone = store.get(_NS, "apple"), store.get(_NS, "cherry")
    _is((apple.value if apple else None, gone), ({"n": 2}, None), "after the batch")
    _is(
        [(row.key, row.value) for row in store.search(other)],
        [("y", {"n": 4})],
        "the last write of a key",
    )
    _is(store.batch([]), [], "an empty batch")


async def _async_twins(store: BaseStore) -> None:
    from langgraph.store.base import GetOp, PutOp

    await store.aput(_NS, "apple", _FRUIT["apple"])
    await store.aput(_NS, "banana", _FRUIT["banana"])
    item = await store.aget(_NS, "apple")
    _is(item.value if item else None, _FRUIT["apple"], "aget")
    _is(_keys_of(await store.asearch(_NS, filter={"price": {"$lt": 2}})), {"banana"}, "asearch")
    _is(await store.alist_namespaces(prefix=("kit",)), [_NS], "alist_namespaces")
    await store.adelete(_NS, "apple")
    results: list[Any] = await store.abatch(
        [GetOp(_NS, "apple"), GetOp(_NS, "banana"), PutOp(_NS, "cherry", {"n": 1})]
    )
    _is((results[0], results[1].key, results[2]), (None, "banana", None), "abatch")
    again = await store.aget(_NS, "cherry")
    _is(again.value if again else None, {"n": 1}, "what abatch put")
    await asyncio.gather(*(store.aput(("kit", "many"), f"k{at}", {"at": at}) for at in range(20)))
    _is(len(await store.asearch(("kit", "many"), limit=100)), 20, "documents put at once")


async def _at_once(store: BaseStore) -> None:
    def write(worker: int) -> None:
        for at in range(10):
            store.put(("kit", f"w{worker}"), f"k{at}", {"worker": worker, "at": at})

    with ThreadPoolExecutor(4) as pool:
        await asyncio.gather(
            *(
                asyncio.get_running_loop().run_in_executor(pool, write, worker)
                for worker in range(4)
            )
        )
    _is(len(store.search(("kit",), limit=100)), 40, "documents")


async def _ranking(store: BaseStore) -> None:
    _fill(store)
    store.put(("other", "bo"), "apple", _FRUIT["apple"])
    found = store.search(_NS, query="yellow banana")
    _is([found[0].key, len(found)], ["banana", 3], "the best document, and all of them")
    scores = [row.score for row in found if row.score is not None]
    assert scores and scores == sorted(scores, reverse=True), f"scores fall: {scores}"
    _is(
        _keys_of(store.search(_NS, query="yellow banana", filter={"fresh": True})),
        {"apple", "cherry"},
        "a query with a filter",
    )
    _is(
        [row.key for row in store.search(_NS, query="yellow banana", limit=1)],
        ["banana"],
        "a query with a limit",
    )
    pages = [
        row.key
        for at in range(3)
        for row in store.search(_NS, query="red apple", limit=1, offset=at)
    ]
    _is((pages[0], sorted(pages)), ("apple", sorted(_FRUIT)), "a query's pages")
    _is(
        {row.namespace for row in store.search(("other",), query="red apple")},
        {("other", "bo")},
        "namespaces searched",
    )


async def _index_paths(store: BaseStore) -> None:
    value = {
        "title": "zebra crossing",
        "parts": [{"said": "quarterly budget"}, {"said": "tropical rain"}],
    }
    store.put(_NS, "title", value, index=["title"])
    store.put(_NS, "parts", value, index=["parts[*].said"])
    _is(store.search(_NS, query="zebra crossing")[0].key, "title", "found by its title")
    _is(store.search(_NS, query="tropical rain")[0].key, "parts", "found by one of its parts")


async def _unindexed(store: BaseStore) -> None:
    store.put(_NS, "hidden", _FRUIT["apple"], index=False)
    store.put(_NS, "shown", _FRUIT["banana"])
    _is(_keys_of(store.search(_NS)), {"hidden", "shown"}, "documents without a query")
    _is(store.get(_NS, "hidden") is not None, True, "got by its key")
    ranked = [
        row.key
        for row in store.search(_NS, query="a red apple from the orchard")
        if row.score is not None
    ]
    _is(ranked, ["shown"], "documents ranked by a query")


async def _no_ttl(store: BaseStore) -> None:
    if store.supports_ttl:
        return
    try:
        store.put(_NS, "k", {}, ttl=1)
    except NotImplementedError:
        return
    raise AssertionError("a ttl must be refused with NotImplementedError")


def _times_to_live(elapse: Elapse) -> Iterator[tuple[str, Promise]]:
    def there(store: BaseStore) -> set[str]:
        return _keys_of(store.search(_NS, refresh_ttl=False))

    async def expires(store: BaseStore) -> None:
        if store.supports_ttl:
            store.put(_NS, "short", {}, ttl=2)
            store.put(_NS, "long", {}, ttl=20)
            store.put(_NS, "ever", {})
            elapse(store, 60)
            _is(there(store), {"short", "long", "ever"}, "after one minute")
            elapse(store, 90)
            _is(there(store), {"long", "ever"}, "after two minutes and a half")
            _is(store.get(_NS, "short"), None, "the expired one")

    async def reads(store: BaseStore) -> None:
        if store.supports_ttl:
            for key in ("got", "searched", "left", "looked at"):
                store.put(_NS, key, {"key": key}, ttl=2)
            elapse(store, 80)
            store.get(_NS, "got", refresh_ttl=True)
            store.get(_NS, "looked at", refresh_ttl=False)
            store.search(_NS, filter={"key": "searched"}, refresh_ttl=True)
            elapse(store, 80)
            _is(there(store), {"got", "searched"}, "what was read with refresh_ttl")

    async def writes(store: BaseStore) -> None:
        if store.supports_ttl:
            store.put(_NS, "again", {"n": 1}, ttl=2)
            store.put(_NS, "kept", {"n": 1}, ttl=2)
            elapse(store, 80)
            store.put(_NS, "again", {"n": 2}, ttl=2)
            store.put(_NS, "kept", {"n": 2}, ttl=None)
            elapse(store, 80)
            _is(there(store), {"again", "kept"}, "after a second put")
            elapse(store, 80)
            _is(there(store), {"kept"}, "after the second time to live")

    yield "a document expires after its time to live", expires
    yield "a read lets the time run anew, unless told not to", reads
    yield "a put sets the time anew, or for ever", writes
