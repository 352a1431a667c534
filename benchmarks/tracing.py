"""Benchmark of the cost of spans in a search.

It runs without OpenTelemetry, with its API alone, and with an SDK that keeps spans in
memory.

Each figure is the cost of one span beside one search of a small memory, measured in the
same run; searches of larger memories cost more and spans do not. The promise: at most 1
% where nothing traces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median

from measured import report

from memagent.build import open_agent
from memagent.tracing import operation_span, tracing

ITEMS, SPANS, ROUNDS = 1_000, 5_000, 9


def span_us() -> float:
    """Measure one span as a search makes it, in processor microseconds.

    The least disturbed of several rounds counts.
    """

    def many() -> None:
        for _ in range(SPANS):
            with operation_span("search_memory", capture=False) as one:
                if one.recording:
                    one.put(
                        {
                            "memagent.recipe": "balanced",
                            "gen_ai.memory.record.count": 10,
                            "memagent.k": 10,
                        }
                    )

    return min(_cpu_s(many) for _ in range(ROUNDS)) / SPANS * 1e6


def _cpu_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


async def search_us() -> float:
    """Median processor microseconds of a search by the fastest recipe."""
    async with open_agent(path=":memory:", embedder="hashing") as agent:
        await agent.memory.add_many(
            [f"Ana put the {n} th lamp into room {n % 37}" for n in range(ITEMS)]
        )
        taken: list[float] = []
        for n in range(400):
            began = time.process_time()
            await agent.memory.search(f"Where is lamp {n}?", k=10, recipe="fast")
            taken.append(time.process_time() - began)
    return median(taken[100:]) * 1e6


def main() -> None:
    """Measure and print."""
    search = asyncio.run(search_us())
    results = {"search, us": round(search, 1)}
    bare = span_us()
    import opentelemetry.trace  # as a library that only knows the API does

    api = span_us()
    assert not tracing()
    results |= {
        "span without opentelemetry, us": round(bare, 3),
        "span with the API alone, us": round(api, 3),
    }
    try:
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        pass
    else:
        opentelemetry.trace.set_tracer_provider(TracerProvider())
        results["span that is recorded, us"] = round(span_us(), 1)
    results |= {
        "off, % of a search": round(100 * bare / search, 3),
        "API alone, % of a search": round(100 * api / search, 3),
    }
    report(
        "tracing", results, promises={"off, % of a search": 1.0, "API alone, % of a search": 1.0}
    )


if __name__ == "__main__":
    main()
