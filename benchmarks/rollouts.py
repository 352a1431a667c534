"""Benchmark of 64 concurrent rollouts on one core, and of the memory of 256 live ones.

It counts chunk-ingests per second; the 256 rollouts have 32 sessions each.

The model answers at once and at random, so what is measured is everything but the
model: prompts, parsing, search, commits. Promises: at least 400 chunks a second of
processor time, and less than 1 GB for the 256. Beside them, the same run by LangGraph's
runner, each node's share, and what the garbage collector takes with Python's thresholds
and with `rare_collections`.

    python benchmarks/rollouts.py [--facts 4] [--embedder hashing] [--quick]

`--quick` leaves out the 256.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import re
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from measured import report

from environments import Episode, Trajectory, play
from memagent.async_agent import AsyncAgent
from memagent.build import open_agent
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.core.long_work import rare_collections
from memagent.core.records import Session, Turn
from memagent.core.snapshot import EMPTY
from memagent.graphs import state as flow
from memagent.graphs.ingest import INGEST
from memagent.graphs.state import Node, NodeRuntime, Step

WORDS = (
    "boat harbour tea Lisbon Porto dog chess piano garden winter rent flight market bridge letter "
    "window river stone paper candle forest "
    "engine violin basket mirror ladder copper silver rocket planet island castle orchard tunnel "
    "wagon meadow lantern anchor saddle compass"
).split()
TURNS = 8  # one chunk a session
_TURN = re.compile(r"\[(D\d+:\d+)\]")
_MEMORY = re.compile(r"\[(mem_\w+) v\d+\]")


def episode(sessions: int) -> Episode:
    """Dated sessions of two speakers."""
    dice = random.Random(1)
    return Episode(
        id="bench",
        sessions=tuple(
            Session(
                id=f"s{number}",
                at=datetime(2024, 1, 1, tzinfo=UTC) + timedelta(weeks=number),
                turns=tuple(
                    Turn(
                        id=f"D{number}:{at}",
                        speaker=("Ana", "Bo")[at % 2],
                        text=f"I saw the {' '.join(dice.choices(WORDS, k=8))} "
                        f"near {dice.choice(WORDS)} today.",
                    )
                    for at in range(TURNS)
                ),
            )
            for number in range(sessions)
        ),
    )


class RandomPolicy:
    """A manager that notes `facts` facts per chunk and picks its ops at random."""

    def __init__(self, seed: int, *, facts: int) -> None:
        self._dice, self._facts, self._seed, self._calls = random.Random(seed), facts, seed, 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return valid JSON, after letting the other rollouts run."""
        await asyncio.sleep(0)
        self._calls += 1
        shown = request.messages[-1].content
        answer = self._facts_of(shown) if request.role is Role.EXTRACTOR else self._ops_of(shown)
        return ModelResponse(
            id=f"res_{self._seed}_{self._calls}", text=json.dumps(answer), usage=Usage(calls=1)
        )

    def _facts_of(self, shown: str) -> dict[str, Any]:
        turns, dice = _TURN.findall(shown.rpartition("<dialogue>")[2]), self._dice
        return {
            "facts": [
                {
                    "text": f"Ana {' '.join(dice.choices(WORDS, k=4))} {dice.randrange(10**6)}",
                    "subject": dice.choice(("Ana", "Bo")),
                    "source": dice.choice(turns),
                    "when": None,
                    "kind": "fact",
                }
                for _ in range(self._facts)
            ]
        }

    def _ops_of(self, shown: str) -> dict[str, Any]:
        dice, known = self._dice, _MEMORY.findall(shown)
        dice.shuffle(known)
        ops: list[dict[str, Any]] = []
        for fact in range(self._facts):
            draw = dice.random()
            if draw < 0.6 or not known:
                ops.append({"op": "ADD", "fact": fact})
            elif draw < 0.8:
                text = f"Ana {' '.join(dice.choices(WORDS, k=5))} {dice.randrange(10**6)}"
                ops.append({"op": "UPDATE", "id": known.pop(), "text": text, "fact": fact})
            else:
                ops.append(
                    {"op": "DELETE" if draw < 0.9 else "NOOP", "id": known.pop(), "fact": fact}
                )
        return {"ops": ops}


async def played(
    agent: AsyncAgent, world: Episode, *, rollouts: int, facts: int
) -> list[Trajectory]:
    """Run that many rollouts at once, each with a policy of its own."""
    policies = (RandomPolicy(seed, facts=facts) for seed in range(rollouts))
    every = await asyncio.gather(
        *(play(agent.at(EMPTY).with_model(one), world, ask=False) for one in policies)
    )
    assert not any(one.failure for one in every), every[0].failure
    return every


def chunks_in(every: Iterable[Trajectory]) -> int:
    """Chunks ingested."""
    return sum(len(trace.report.chunks) for one in every for trace in one.traces)


@contextmanager
def langgraphs_runner() -> Generator[None]:
    """Run the ingest graph by LangGraph inside, as a traced run does."""
    plain = flow._inside_a_graph  # noqa: SLF001
    flow._inside_a_graph = lambda: True  # noqa: SLF001
    try:
        yield
    finally:
        flow._inside_a_graph = plain  # noqa: SLF001


@contextmanager
def node_times() -> Generator[dict[str, float]]:
    """Yield the processor seconds of each node of the ingest graph inside.

    A node that waits counts the others' time, so one rollout runs at a time.
    """
    spent = dict.fromkeys(INGEST.steps, 0.0)

    def timed(name: str, node: Node) -> Node:
        async def run(state: Any, runtime: NodeRuntime) -> Any:
            began = time.process_time()
            try:
                return await node(state, runtime)
            finally:
                spent[name] += time.process_time() - began

        return run

    before = INGEST.steps
    steps = {name: Step(timed(name, one.node), one.then) for name, one in before.items()}
    object.__setattr__(INGEST, "steps", steps)
    try:
        yield spent
    finally:
        object.__setattr__(INGEST, "steps", before)


@contextmanager
def collector_time() -> Generator[list[float]]:
    """Yield a list for the processor seconds that the garbage collector takes in the block."""
    spent, began = [0.0], [0.0]

    def watch(phase: str, _: dict[str, int]) -> None:
        now = time.process_time()
        if phase == "start":
            began[0] = now
        else:
            spent[0] += now - began[0]

    gc.callbacks.append(watch)
    try:
        yield spent
    finally:
        gc.callbacks.remove(watch)


def resident_mb() -> float:
    """Resident memory of this process in MB (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


async def main(*, facts: int, embedder: str, quick: bool) -> None:
    """Measure and print."""
    results: dict[str, Any] = {"facts a chunk": facts}
    best = float("inf")
    async with open_agent(
        path=":memory:", design="memory_r2", model=RandomPolicy(0, facts=facts), embedder=embedder
    ) as agent:
        await played(agent, episode(2), rollouts=2, facts=facts)  # imports and caches
        for label, block in (
            ("Python's thresholds", nullcontext),
            ("LangGraph's runner", langgraphs_runner),
            ("rare_collections", rare_collections),
        ):
            with block(), collector_time() as collecting:
                began, wall = time.process_time(), time.perf_counter()
                every = await played(agent, episode(8), rollouts=64, facts=facts)
                spent, wall = time.process_time() - began, time.perf_counter() - wall
            chunk_ms = 1e3 * spent / chunks_in(every)
            best = min(best, chunk_ms)
            results[label] = {
                "chunks a second of processor time": round(1e3 / chunk_ms),
                "chunks a second of wall time": round(chunks_in(every) / wall),
                "ms a chunk": round(chunk_ms, 2),
                "collector's share": round(collecting[0] / spent, 3),
            }
        with node_times() as spent_s:
            alone = await played(agent, episode(8), rollouts=1, facts=facts)
        results["ms of a node a chunk"] = {
            name: round(1e3 * spent / chunks_in(alone), 2) for name, spent in spent_s.items()
        }
    promises: dict[str, float | tuple[float, float]] = {"ms a chunk (400 a second)": (best, 2.5)}
    if not quick:
        async with open_agent(
            path=":memory:",
            design="memory_r2",
            model=RandomPolicy(0, facts=facts),
            embedder=embedder,
        ) as agent:
            world = episode(32)
            gc.collect()
            before = resident_mb()
            with rare_collections():
                every = await played(agent, world, rollouts=256, facts=facts)
            results["256 rollouts of 32 sessions, MB"] = round(resident_mb() - before)
            results["items in one of them"] = len(every[0].end.items)
        promises["256 rollouts of 32 sessions, MB"] = 1_024
    report("rollouts", results, promises=promises)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=4)
    parser.add_argument("--embedder", default="hashing")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    asyncio.run(main(facts=options.facts, embedder=options.embedder, quick=options.quick))
