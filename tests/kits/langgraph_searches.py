"""Promises of a LangGraph store about searches and times to live."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from langgraph_documents import FRUIT, NS, expect, keys_of, put_fruit

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore
    from langgraph_documents import Promise


async def _pages(store: BaseStore) -> None:
    for at in range(25):
        store.put(("kit", f"p{at % 3}"), f"k{at}", {"at": at})
    expect(len(store.search(("kit",))), 10, "documents without a limit")
    pages = [store.search(("kit",), limit=4, offset=offset) for offset in range(0, 28, 4)]
    seen = sorted(row.value["at"] for page in pages for row in page)
    expect(seen, list(range(25)), "all pages together")
    expect(store.search(("kit",), limit=5, offset=25), [], "past the end")
    expect(store.search(("kit",), limit=0), [], "limit 0")
    pages = [
        store.search(("kit",), limit=3, offset=offset, filter={"at": {"$lt": 7}})
        for offset in range(0, 9, 3)
    ]
    seen = sorted(row.value["at"] for page in pages for row in page)
    expect(seen, list(range(7)), "all pages of a filter")


def _expect_filter(store: BaseStore, conditions: dict[str, Any], initials: str) -> None:
    keys = sorted(row.key[0] for row in store.search(NS, filter=conditions))
    expect("".join(keys), initials, f"filter {conditions}")


async def _equality(store: BaseStore) -> None:
    put_fruit(store)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"price": 3}, "a"),
        ({"price": 1.5}, "b"),
        ({"fresh": True}, "ac"),
        ({"text": "a bowl of dark cherries"}, "c"),
        ({"tags": ["red", "round"]}, "a"),
        ({"tags": ["red"]}, ""),
        ({"origin": {"land": "Peru"}}, "b"),
        ({"nothing": "x"}, ""),
        ({"fresh": True, "price": 9}, "c"),
        ({"price": 3, "fresh": False}, ""),
        ({}, "abc"),
        ({"text": "a red"}, ""),
    ]
    for conditions, initials in cases:
        _expect_filter(store, conditions, initials)


async def _operators(store: BaseStore) -> None:
    put_fruit(store)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"price": {"$eq": 3}}, "a"),
        ({"price": {"$ne": 3}}, "bc"),
        ({"price": {"$gt": 3}}, "c"),
        ({"price": {"$gte": 3}}, "ac"),
        ({"price": {"$lt": 3}}, "b"),
        ({"price": {"$lte": 3}}, "ab"),
        ({"price": {"$gt": 1.5, "$lt": 9}}, "a"),
        ({"price": {"$gt": 2}, "fresh": True}, "ac"),
        ({"price": {"$gt": 10}}, ""),
        ({"text": {"$ne": "x"}}, "abc"),
    ]
    for conditions, initials in cases:
        _expect_filter(store, conditions, initials)


async def _order_of_nothing(store: BaseStore) -> None:
    put_fruit(store)
    store.put(NS, "date", {"text": "no price"})
    _expect_filter(store, {"price": {"$gt": 0}}, "abc")


async def _odd_fields(store: BaseStore) -> None:
    put_fruit(store)
    for field in ("') OR 1=1 --", "x' OR '1'='1", "$", "a]b[", "%"):
        try:
            rows = store.search(NS, filter={field: "nobody has this"})
        except ValueError:
            continue
        expect(rows, [], f"a filter on the field {field!r}")


async def _ranking(store: BaseStore) -> None:
    put_fruit(store)
    other = ("other", "bo")
    store.put(other, "apple", FRUIT["apple"])
    rows = store.search(NS, query="yellow banana")
    expect([rows[0].key, len(rows)], ["banana", 3], "the best document, and all of them")
    scores = [row.score for row in rows if row.score is not None]
    assert scores and scores == sorted(scores, reverse=True), f"scores fall: {scores}"
    rows = store.search(NS, query="yellow banana", filter={"fresh": True})
    expect(keys_of(rows), {"apple", "cherry"}, "a query with a filter")
    rows = store.search(NS, query="yellow banana", limit=1)
    expect([row.key for row in rows], ["banana"], "a query with a limit")
    pages = [store.search(NS, query="red apple", limit=1, offset=at) for at in range(3)]
    keys = [row.key for page in pages for row in page]
    expect((keys[0], sorted(keys)), ("apple", sorted(FRUIT)), "a query's pages")
    rows = store.search(("other",), query="red apple")
    expect({row.namespace for row in rows}, {other}, "namespaces searched")


async def _index_paths(store: BaseStore) -> None:
    parts = [{"said": "quarterly budget"}, {"said": "tropical rain"}]
    value = {"title": "zebra crossing", "parts": parts}
    store.put(NS, "title", value, index=["title"])
    store.put(NS, "parts", value, index=["parts[*].said"])
    expect(store.search(NS, query="zebra crossing")[0].key, "title", "found by its title")
    expect(store.search(NS, query="tropical rain")[0].key, "parts", "found by one of its parts")


async def _unindexed(store: BaseStore) -> None:
    store.put(NS, "hidden", FRUIT["apple"], index=False)
    store.put(NS, "shown", FRUIT["banana"])
    expect(keys_of(store.search(NS)), {"hidden", "shown"}, "documents without a query")
    expect(store.get(NS, "hidden") is not None, True, "got by its key")
    rows = store.search(NS, query="a red apple from the orchard")
    ranked = [row.key for row in rows if row.score is not None]
    expect(ranked, ["shown"], "documents ranked by a query")


async def _no_ttl(store: BaseStore) -> None:
    if store.supports_ttl:
        return
    try:
        store.put(NS, "k", {}, ttl=1)
    except NotImplementedError:
        return
    raise AssertionError("a ttl must be refused with NotImplementedError")


SEARCH_PROMISES: Final[dict[str, Promise]] = {
    "limit and offset page through everything once": _pages,
    "filters on equal values": _equality,
    "filters by $eq $ne $gt $gte $lt $lte": _operators,
    "an order filter leaves out documents without the field": _order_of_nothing,
    "a filter's field is data, never code": _odd_fields,
    "a store without times to live says so": _no_ttl,
}
QUERY_PROMISES: Final[dict[str, Promise]] = {
    "a query ranks by meaning, with filter and namespace": _ranking,
    "`index` chooses what a query finds a document by": _index_paths,
    "`index=False` is found without a query and not ranked by one": _unindexed,
}


def lifetime_promises(elapse: Callable[[BaseStore, float], None]) -> dict[str, Promise]:
    """Return the promises about times to live, for a store in which time can pass."""

    def expect_keys(store: BaseStore, keys: set[str], label: str) -> None:
        expect(keys_of(store.search(NS, refresh_ttl=False)), keys, label)

    async def expires(store: BaseStore) -> None:
        if store.supports_ttl:
            store.put(NS, "short", {}, ttl=2)
            store.put(NS, "long", {}, ttl=20)
            store.put(NS, "ever", {})
            elapse(store, 60)
            expect_keys(store, {"short", "long", "ever"}, "after one minute")
            elapse(store, 90)
            expect_keys(store, {"long", "ever"}, "after two minutes and a half")
            expect(store.get(NS, "short"), None, "the expired one")

    async def reads(store: BaseStore) -> None:
        if store.supports_ttl:
            for key in ("got", "searched", "left", "looked at"):
                store.put(NS, key, {"key": key}, ttl=2)
            elapse(store, 80)
            store.get(NS, "got", refresh_ttl=True)
            store.get(NS, "looked at", refresh_ttl=False)
            store.search(NS, filter={"key": "searched"}, refresh_ttl=True)
            elapse(store, 80)
            expect_keys(store, {"got", "searched"}, "what was read with refresh_ttl")

    async def writes(store: BaseStore) -> None:
        if store.supports_ttl:
            store.put(NS, "again", {"n": 1}, ttl=2)
            store.put(NS, "kept", {"n": 1}, ttl=2)
            elapse(store, 80)
            store.put(NS, "again", {"n": 2}, ttl=2)
            store.put(NS, "kept", {"n": 2}, ttl=None)
            elapse(store, 80)
            expect_keys(store, {"again", "kept"}, "after a second put")
            elapse(store, 80)
            expect_keys(store, {"kept"}, "after the second time to live")

    return {
        "a document expires after its time to live": expires,
        "a read lets the time run anew, unless told not to": reads,
        "a put sets the time anew, or for ever": writes,
    }
