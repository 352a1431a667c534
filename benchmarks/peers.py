"""Benchmark of the same memories in memagent, mem0, Qdrant's local client and LangGraph's stores.

Every one holds `--count` texts of one user with the vectors of one static table. Texts
are stored in batches, then some one by one; then the user's memories are searched, and
what lies on disk is opened anew and searched once. Figures are processor time of the
process, since the machine may be busy. mem0 runs with inference and telemetry off, its
store on disk is filled as its `add` would fill it; LangGraph's memory store keeps
nothing. memagent answers an add after the fsync. Peers that are not installed are left
out: `make bench-peers` makes an environment with all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import json
import os
import random
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

from measured import report
from service_parts.load import Questions, sentence

from memagent.embed.static import StaticEmbedder

USER: Final = "ana"
AT_ONCE: Final = 500
TABLE: Final = StaticEmbedder()


class Peer(Protocol):
    """One memory, opened on a folder."""

    def fill(self, texts: Sequence[str]) -> None:
        """Store texts at once."""
        ...

    def add(self, text: str) -> None:
        """Store a text."""
        ...

    def search(self, text: str) -> int:
        """Return the number of hits among the user's memories, ten at most."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class Ours:
    """memagent on SQLite, its default recipe unless another is named."""

    def __init__(self, folder: Path, *, recipe: str = "balanced") -> None:
        from memagent.agent import Agent

        self._agent, self._recipe = Agent(path=folder / "memory.db", user_id=USER), recipe

    def fill(self, texts: Sequence[str]) -> None:
        self._agent.memory.add_many(list(texts))

    def add(self, text: str) -> None:
        self._agent.memory.add(text)

    def search(self, text: str) -> int:
        return len(self._agent.search(text, k=10, recipe=self._recipe))

    def close(self) -> None:
        self._agent.close()


class Mem0:
    """mem0 with its vectors in Qdrant's local client."""

    def __init__(self, folder: Path) -> None:
        store = {
            "collection_name": "bench",
            "embedding_model_dims": TABLE.dim,
            "path": str(folder / "qdrant"),
            "on_disk": True,
        }
        self._memory: Any = importlib.import_module("mem0").Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(folder / "history.db"),
            }
        )
        self._memory.embedding_model = _Mem0Embedder()

    def fill(self, texts: Sequence[str]) -> None:
        first = self._memory.add(texts[0], user_id=USER, infer=False)["results"][0]["id"]
        store = self._memory.vector_store
        payload: dict[str, Any] = store.get(vector_id=first).payload
        more = [
            payload
            | {
                "data": text,
                "hash": hashlib.md5(text.encode()).hexdigest(),
                "text_lemmatized": text.lower(),
            }
            for text in texts[1:]
        ]
        ids = [str(uuid.uuid4()) for _ in more]
        store.insert(vectors=TABLE.encode(texts[1:]).tolist(), ids=ids, payloads=more)

    def add(self, text: str) -> None:
        self._memory.add(text, user_id=USER, infer=False)

    def search(self, text: str) -> int:
        found = self._memory.search(text, filters={"user_id": USER}, top_k=10)
        return len(found["results"])

    def close(self) -> None:
        self._memory.vector_store.client.close()


class _Mem0Embedder:
    """Our static table behind mem0's embedder interface."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:  # noqa: ARG002 (mem0's interface)
        return TABLE.encode([text])[0].tolist()

    def embed_batch(self, many: list[str], memory_action: str | None = None) -> list[list[float]]:  # noqa: ARG002 (mem0's interface)
        return TABLE.encode(many).tolist()


class QdrantLocal:
    """qdrant-client's local mode on disk."""

    def __init__(self, folder: Path) -> None:
        self._models: Any = importlib.import_module("qdrant_client.models")
        client = importlib.import_module("qdrant_client").QdrantClient
        self._client: Any = client(path=str(folder / "qdrant"))
        if not self._client.collection_exists("bench"):
            width = self._models.VectorParams(size=TABLE.dim, distance="Cosine")
            self._client.create_collection("bench", vectors_config=width)
        user = self._models.MatchValue(value=USER)
        condition = self._models.FieldCondition(key="user_id", match=user)
        self._filter = self._models.Filter(must=[condition])

    def fill(self, texts: Sequence[str]) -> None:
        points = [
            self._models.PointStruct(
                id=str(uuid.uuid4()), vector=vector, payload={"user_id": USER, "text": text}
            )
            for text, vector in zip(texts, TABLE.encode(texts).tolist(), strict=True)
        ]
        self._client.upsert("bench", points)

    def add(self, text: str) -> None:
        self.fill([text])

    def search(self, text: str) -> int:
        vector = TABLE.encode([text])[0].tolist()
        found = self._client.query_points(
            "bench", query=vector, query_filter=self._filter, limit=10
        )
        return len(found.points)

    def close(self) -> None:
        self._client.close()


class LangGraphMemory:
    """LangGraph's `InMemoryStore` with an index."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002 (it keeps nothing)
        self._store: Any = importlib.import_module("langgraph.store.memory").InMemoryStore(
            index=_langgraph_index()
        )

    def fill(self, texts: Sequence[str]) -> None:
        base = importlib.import_module("langgraph.store.base")
        self._store.batch(
            [base.PutOp((USER,), str(uuid.uuid4()), {"text": text}, index=None) for text in texts]
        )

    def add(self, text: str) -> None:
        self._store.put((USER,), str(uuid.uuid4()), {"text": text})

    def search(self, text: str) -> int:
        return len(self._store.search((USER,), query=text, limit=10))

    def close(self) -> None:
        """Nothing is open."""


class LangGraphSqlite(LangGraphMemory):
    """LangGraph's `SqliteStore`; needs an sqlite3 that loads extensions, as pysqlite3's does."""

    def __init__(self, folder: Path) -> None:
        driver: Any = importlib.import_module("pysqlite3.dbapi2")
        self._line: Any = driver.connect(
            str(folder / "store.db"), check_same_thread=False, isolation_level=None
        )
        self._store = importlib.import_module("langgraph.store.sqlite").SqliteStore(
            self._line, index=_langgraph_index()
        )
        self._store.setup()

    def close(self) -> None:
        self._line.close()


def _langgraph_index() -> dict[str, Any]:
    return {"dims": TABLE.dim, "embed": lambda many: TABLE.encode(many).tolist()}


PEERS: Final[dict[str, tuple[str, Callable[[Path], Peer]]]] = {
    "memagent, fast": ("memagent", lambda folder: Ours(folder, recipe="fast")),
    "memagent, balanced": ("memagent", Ours),
    "memagent, deep": ("memagent", lambda folder: Ours(folder, recipe="deep")),
    "mem0": ("mem0", Mem0),
    "Qdrant, local client": ("qdrant_client", QdrantLocal),
    "LangGraph, memory": ("langgraph.store.memory", LangGraphMemory),
    "LangGraph, SQLite": ("langgraph.store.sqlite", LangGraphSqlite),
}
"""By name: the module that it needs, and how it is opened."""


def measured(make: Callable[[Path], Peer], folder: Path, count: int, calls: int) -> dict[str, Any]:
    """Return the processor time of each operation of a peer, in ms."""
    dice, questions = random.Random(1), Questions(1)
    texts, single = ([sentence(dice) for _ in range(n)] for n in (count - calls, calls))
    peer = make(folder)
    began = time.process_time()
    for first in range(0, len(texts), AT_ONCE):
        peer.fill(texts[first : first + AT_ONCE])
    batch_ms = 1e3 * (time.process_time() - began) / len(texts)
    add_ms = _median_ms(peer.add, single)
    assert peer.search(questions.next()) == 10
    search_ms = _median_ms(peer.search, [questions.next() for _ in range(calls)])
    peer.close()
    row = {
        "one of a batch, ms": round(batch_ms, 3),
        "add, ms": round(add_ms, 2),
        "search, ms": round(search_ms, 2),
    }
    if isinstance(peer, LangGraphMemory) and not isinstance(peer, LangGraphSqlite):
        return row
    began = time.process_time()
    again = make(folder)
    assert again.search(questions.next()) == 10
    row["open and search, ms"] = round(1e3 * (time.process_time() - began), 1)
    again.close()
    return row


def _median_ms(call: Callable[[str], object], texts: Sequence[str]) -> float:
    times: list[float] = []
    for text in texts:
        began = time.process_time()
        call(text)
        times.append(time.process_time() - began)
    return 1e3 * median(times)


def compared(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of the peers that are installed."""
    results: dict[str, Any] = {}
    for name in asked.only:
        needs, make = PEERS[name]
        try:
            importlib.import_module(needs)
        except ModuleNotFoundError:
            sys.stdout.write(f"({name} is not installed)\n")
            continue
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measured(make, Path(folder), asked.count, asked.calls)
        sys.stdout.write(f"{name:<24}{results[name]}\n")
        sys.stdout.flush()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=list(PEERS), help="names of peers")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.update(MEM0_TELEMETRY="False", OPENAI_API_KEY="unused", ANONYMIZED_TELEMETRY="False")
    asyncio.set_event_loop(asyncio.new_event_loop())
    with tempfile.TemporaryDirectory() as home:
        os.environ["MEM0_DIR"] = home  # mem0 reads it when it is imported
        results = compared(asked)
    if asked.out is not None:
        about = {"count": asked.count, "calls": asked.calls, "load": os.getloadavg()[0]}
        asked.out.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")
    report(f"peers at {asked.count} items", results)


if __name__ == "__main__":
    main()
