"""Benchmark of the same adds and searches by memagent and by mem0, on disk.

Searches go by each recipe; mem0 runs with inference off, the same embedder and
telemetry off.

Needs `pip install mem0ai` beside memagent; without it only ours is measured. mem0 keeps
its vectors in qdrant-client's local store.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from measured import report

if TYPE_CHECKING:
    from memagent.agent import Agent

WORDS = (
    "boat harbour tea lisbon porto dog chess piano garden winter rent flight market bridge "
    "letter window"
).split()


def texts(count: int) -> list[str]:
    """Different short statements."""
    return [
        f"{WORDS[i % 16]} {WORDS[(i * 7 + 3) % 16]} {WORDS[(i // 16) % 16]} statement number {i}"
        for i in range(count)
    ]


def ours(folder: Path, count: int, searches: int) -> dict[str, float]:
    """Measure durable adds per second, one by one, and milliseconds per search of one user."""
    from memagent.agent import Agent

    with Agent(path=folder / "memory.db", user_id="ana") as agent:
        agent.memory.add("warm up")
        began = time.perf_counter()
        for text in texts(count):
            agent.memory.add(text)
        adds = count / (time.perf_counter() - began)
        agent.search("warm up")
        times: list[float] = []
        for text in texts(searches):
            began = time.perf_counter()
            found = agent.search(text, k=10)
            times.append(time.perf_counter() - began)
            assert found
        by_recipe = {
            f"search, {name} ms": recipe_ms(agent, name, searches)
            for name in ("fast", "balanced", "deep")
        }
    return {"adds/s": adds, "search ms": 1e3 * median(times)} | by_recipe


def recipe_ms(agent: Agent, recipe: str, searches: int) -> float:
    """Median milliseconds of a search by a recipe."""
    times: list[float] = []
    for text in texts(searches):
        began = time.perf_counter()
        found = agent.search(text, k=10, recipe=recipe)
        times.append(time.perf_counter() - began)
        assert found
    return 1e3 * median(times)


def mem0s(folder: Path, count: int, searches: int) -> dict[str, float]:
    """Measure the same through mem0."""
    os.environ.update(
        MEM0_TELEMETRY="False",
        MEM0_DIR=str(folder / "mem0"),
        OPENAI_API_KEY="unused",
        ANONYMIZED_TELEMETRY="False",
    )
    warnings.simplefilter("ignore")
    mem0: Any = importlib.import_module("mem0")
    from memagent.embed.static import StaticEmbedder

    table = StaticEmbedder()

    class Same:
        """Our static table behind mem0's embedder interface."""

        def embed(self, text: str, memory_action: str | None = None) -> list[float]:  # noqa: ARG002 (mem0's interface)
            return asyncio.run(table.embed([text]))[0].tolist()

        def embed_batch(
            self,
            many: list[str],
            memory_action: str | None = None,  # noqa: ARG002 (mem0's interface)
        ) -> list[list[float]]:
            return asyncio.run(table.embed(many)).tolist()

    store = {
        "collection_name": "bench",
        "embedding_model_dims": table.dim,
        "path": str(folder / "qdrant"),
        "on_disk": True,
    }
    memory: Any = mem0.Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": str(folder / "history.db"),
        }
    )
    memory.embedding_model = Same()
    began = time.perf_counter()
    for text in texts(count):
        memory.add(text, user_id="ana", infer=False)
    adds = count / (time.perf_counter() - began)
    times: list[float] = []
    for text in texts(searches):
        began = time.perf_counter()
        found = memory.search(text, filters={"user_id": "ana"}, top_k=10)
        times.append(time.perf_counter() - began)
        assert found["results"]
    return {"adds/s": adds, "search ms": 1e3 * median(times)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--searches", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ours").mkdir()
        results: dict[str, Any] = {
            "memagent": ours(Path(folder) / "ours", arguments.count, arguments.searches)
        }
        if importlib.util.find_spec("mem0") is not None:
            results["mem0"] = mem0s(Path(folder) / "mem0s", arguments.count, arguments.searches)
            results["adds, ours / mem0"] = round(
                results["memagent"]["adds/s"] / results["mem0"]["adds/s"], 1
            )
            for name in ("fast", "balanced", "deep"):
                ratio = results["mem0"]["search ms"] / results["memagent"][f"search, {name} ms"]
                results[f"search, mem0 / our {name}"] = round(ratio, 1)
        else:
            results["mem0"] = "not installed"
    rounded = {
        k: {n: round(x, 2) for n, x in v.items()} if isinstance(v, dict) else v
        for k, v in results.items()
    }
    report(f"peers at {arguments.count} items", rounded)


if __name__ == "__main__":
    main()
