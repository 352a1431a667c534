"""Benchmark of 12,000 concurrent operations of a LangGraph store.

`MemoryStore` over a journal in a file beside LangGraph's `InMemoryStore`, in turns in
the same run, by processor time of all threads. An operation of ours is answered when
its commit is on disk; theirs keeps nothing. The loads:

- mixed: LangGraph's own load test, put, get, list namespaces, search, put and delete
  over 400 keys
- gets of 12,000 documents
- puts of 12,000 keys, each new, so that nothing can be joined but the commits
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from measured import report

from memagent import Agent
from memagent.integrations.langgraph_store import MemoryStore

OPERATIONS, ROUNDS = 12_000, 3
ROOT = ("test", "foo", "bar")
BUDGETS = {"mixed": 3.0, "gets": 5.0, "puts": 12.0}


def mixed(store: BaseStore) -> list[Awaitable[Any]]:
    """Return the load of LangGraph's `test_large_batches_async`, 2,000 times six calls."""
    calls: list[Awaitable[Any]] = []
    for m in range(10):
        place = (*ROOT, str(m % 2))
        for i in range(OPERATIONS // 60):
            calls += [
                store.aput(place, f"key{i}", {"foo": f"bar{i}"}),
                store.aget(place, f"key{i}"),
                store.alist_namespaces(prefix=None, max_depth=m + 1),
                store.asearch(("test",)),
                store.aput(place, f"key{i}", {"foo": f"bar{i}"}),
                store.adelete(place, f"key{i}"),
            ]
    return calls


def puts(store: BaseStore) -> list[Awaitable[Any]]:
    """Return a put for each of 12,000 keys."""
    return [store.aput(ROOT, f"key{i}", {"foo": f"bar{i}"}) for i in range(OPERATIONS)]


def gets(store: BaseStore) -> list[Awaitable[Any]]:
    """Return a get of each of 12,000 documents."""
    return [store.aget(ROOT, f"key{i}") for i in range(OPERATIONS)]


LOADS: dict[str, Callable[[BaseStore], list[Awaitable[Any]]]] = {
    "mixed": mixed,
    "gets": gets,
    "puts": puts,
}


async def seconds(store: BaseStore, load: str) -> float:
    """Measure a load in processor seconds, all calls at once; gets find what puts left."""
    if load == "gets":
        await asyncio.gather(*puts(store))
    began = time.process_time()
    await asyncio.gather(*LOADS[load](store))
    return time.process_time() - began


def ours(load: str) -> float:
    """Measure a load on a fresh memory in a file."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "memory.db"
        with Agent(path=place, user_id="ana", embedder="hashing") as agent:
            return asyncio.run(seconds(MemoryStore(agent), load))


def main() -> None:
    """Measure and print."""
    results: dict[str, Any] = {}
    for load in LOADS:
        rounds = [(asyncio.run(seconds(InMemoryStore(), load)), ours(load)) for _ in range(ROUNDS)]
        theirs, own = (min(times) for times in zip(*rounds, strict=True))
        results[load] = {
            "InMemoryStore, processor s": round(theirs, 3),
            "MemoryStore, processor s": round(own, 3),
            "ratio": round(own / theirs, 1),
        }
    promises = {
        f"{OPERATIONS:,} {load}, times InMemoryStore": (results[load]["ratio"], bound)
        for load, bound in BUDGETS.items()
    }
    report("langgraph_store", results, promises=promises)


if __name__ == "__main__":
    main()
