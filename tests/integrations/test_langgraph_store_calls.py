"""The LangGraph store under many calls at once, its filters' names, its index and embeddings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langgraph.store.base import IndexConfig
from langgraph.store.memory import InMemoryStore

from memagent import Agent
from memagent.core.errors import ConfigError, InputError
from memagent.integrations.langgraph_store import MemoryStore, langchain_embedder
from memagent.testing import check_embedder

INDEX: Any = {"dims": 16, "embed": DeterministicFakeEmbedding(size=16), "fields": ["text"]}


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent(path=":memory:", user_id="ana", embedder="hashing") as opened:
        yield opened


def commits(agent: Agent) -> int:
    return agent.snapshot().seq


# -- calls at once ---------------------------------------------------------------------


def test_calls_of_one_moment_are_one_commit_and_read_what_was_before(agent: Agent) -> None:
    store = MemoryStore(agent)

    async def write_and_read() -> list[Any]:
        await asyncio.gather(*(store.aput(("n",), f"k{at}", {"at": at}) for at in range(300)))
        reads = (store.aget(("n",), f"k{at}") for at in range(300))
        changes = (store.aput(("n",), f"k{at}", {"at": -at}) for at in range(300))
        return await asyncio.gather(*reads, *changes, store.asearch(("n",), limit=500))

    before = commits(agent)
    results = asyncio.run(write_and_read())
    assert commits(agent) - before == 2
    assert [item.value["at"] for item in results[:300]] == list(range(300))
    assert len(results[-1]) == 300
    read = store.get(("n",), "k7")
    assert read is not None and read.value == {"at": -7}


def test_a_bad_call_among_many_fails_alone(agent: Agent) -> None:
    store = MemoryStore(agent)
    bad: Any = {"when": object()}

    async def write() -> list[Any]:
        values = [{"n": 1}, bad, {"n": 3}]
        puts = (store.aput(("n",), f"k{at}", value) for at, value in enumerate(values))
        return await asyncio.gather(*puts, store.aget((), ""), return_exceptions=True)

    good, fault, other, missing = asyncio.run(write())
    assert good is None and other is None and missing is None
    assert isinstance(fault, InputError) and "not JSON" in str(fault)
    assert {item.key for item in store.search(("n",))} == {"k0", "k2"}


def test_a_cancelled_call_leaves_the_others(agent: Agent) -> None:
    store = MemoryStore(agent)

    async def write() -> None:
        first, second = (
            asyncio.ensure_future(store.aput(("n",), key, {"text": key})) for key in ("a", "b")
        )
        await asyncio.sleep(0)
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(write())
    assert store.get(("n",), "b") is not None


@pytest.mark.full
def test_12000_reads_at_once_take_at_most_three_times_those_of_the_in_memory_store(
    agent: Agent,
) -> None:
    def seconds(store: Any) -> float:
        async def work() -> float:
            await asyncio.gather(*(store.aput(("n",), f"k{at}", {"n": at}) for at in range(4_000)))
            began = time.process_time()
            await asyncio.gather(*(store.aget(("n",), f"k{at % 4_000}") for at in range(12_000)))
            return time.process_time() - began

        return asyncio.run(work())

    theirs = min(seconds(InMemoryStore()) for _ in range(3))
    ours = min(seconds(MemoryStore(agent)) for _ in range(3))
    assert ours <= 3 * theirs, (ours, theirs)


# -- filters ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "finds"),
    [
        ({"user.access-level": "admin"}, {"nested"}),
        ({"user": {"access-level": "admin"}}, {"nested"}),
        ({"user.access-level": {"$ne": "admin"}}, {"plain", "literal"}),
        ({"a.b-c": {"$gte": 2}}, {"literal", "deep"}),
        ({"a.b-c.d.e": 5}, {"deeper"}),
        ({"user.name": "x"}, set()),
    ],
)
def test_filters_reach_fields_with_dots_and_hyphens(
    agent: Agent, condition: dict[str, Any], finds: set[str]
) -> None:
    store = MemoryStore(agent)
    values: dict[str, dict[str, Any]] = {
        "nested": {"user": {"access-level": "admin"}},
        "plain": {"user": "admin"},
        "literal": {"a.b-c": 2, "a": {"b-c": 0}},
        "deep": {"a": {"b-c": 3}},
        "deeper": {"a.b-c": {"d.e": 5}},
    }
    for key, value in values.items():
        store.put(("n",), key, value)
    found = {item.key for item in store.search(("n",), filter=condition)}
    assert found == finds | ({"deep", "deeper"} if "$ne" in str(condition) else set())


# -- what is indexed -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"content": "Ana likes tea"}, "Ana likes tea"),
        ({"content": {"content": "Ana likes tea"}, "kind": "Memory"}, "Ana likes tea"),
        (
            {
                "content": ["def f():", "    pass"],
                "encoding": "utf-8",
                "created_at": "2026-01-01",
                "modified_at": "2026-01-02",
            },
            "def f():\n    pass",
        ),
        ({"content": "Ana likes tea", "title": "Drinks"}, "Ana likes tea\ntitle: Drinks"),
        ({"text": "Ana likes tea", "cups": 3}, "text: Ana likes tea\ncups: 3"),
    ],
)
def test_a_note_is_found_and_quoted_by_its_content_alone(
    agent: Agent, value: dict[str, Any], text: str
) -> None:
    store = MemoryStore(agent)
    store.put(("notes",), "k", value)
    assert [item.text for item in agent.memory.get_all()] == [text]
    read = store.get(("notes",), "k")
    assert read is not None and read.value == value


# -- embeddings ------------------------------------------------------------------------


async def test_embeddings_of_langchain_keep_the_promises_of_an_embedder() -> None:
    await check_embedder(lambda: langchain_embedder(INDEX))


def test_langchain_embeddings_and_fields_configure_the_store() -> None:
    with Agent(path=":memory:", user_id="ana", embedder=langchain_embedder(INDEX)) as agent:
        store = MemoryStore(agent, index=INDEX)
        store.put(("n",), "a", {"text": "green tea", "author": "bo"})
        assert agent.memory.get_all()[0].text == "green tea"
        assert store.search(("n",), query="green tea")[0].key == "a"


class Asymmetric(Embeddings):
    """Embeddings that have another space for questions, as E5 and Cohere's models have."""

    def __init__(self) -> None:
        self.documents: list[str] = []
        self.queries: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.documents += texts
        return [[1.0, 0.0] if "tea" in text else [0.0, 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return [1.0, 0.0] if "drink" in text else [0.0, 1.0]


def test_questions_are_embedded_as_questions() -> None:
    made = Asymmetric()
    index: IndexConfig = {"embed": made, "dims": 2}
    with Agent(path=":memory:", user_id="ana", embedder=langchain_embedder(index)) as agent:
        store = MemoryStore(agent, index=index)
        store.put(("n",), "a", {"text": "green tea"})
        store.put(("n",), "b", {"text": "a red bicycle"})
        assert store.search(("n",), query="what do I drink?", limit=1)[0].key == "a"
        assert store.search(("n",), query="what do I drink?", limit=1)[0].key == "a"
    assert made.queries == ["what do I drink?"], "once, by embed_query, then from the cache"
    assert not [text for text in made.documents if "drink" in text]


@pytest.mark.parametrize(
    "ttl", [{"sweep_interval_minutes": 5}, {"omit_expired": False}, {"default": 3}]
)
def test_what_ttl_cannot_mean_here_is_refused_in_words(agent: Agent, ttl: Any) -> None:
    with pytest.raises(ConfigError, match="`ttl` may not"):
        MemoryStore(agent, ttl=ttl)
    MemoryStore(agent, ttl={"omit_expired": True, "refresh_on_read": False, "default_ttl": 5})


def test_an_index_by_another_embedder_is_refused_with_the_way_out(agent: Agent) -> None:
    with pytest.raises(ConfigError, match=r"embedder=langchain_embedder\(index\)"):
        MemoryStore(agent, index=INDEX)
    with pytest.raises(ConfigError, match="dims"):
        MemoryStore(agent, index={"embed": INDEX["embed"]})  # pyright: ignore[reportArgumentType]
