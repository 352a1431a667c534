"""Print what one call of each main verb enters, and what an in-memory agent loads.

Each verb runs twice to warm up and then under `sys.setprofile`, with the default design
and embedder on a SQLite file, worker threads included. A verb that enters fewer
functions, with fewer moves from file to file, is easier to follow: a move is a call of a
function in another file than the function before it. Threads that wait for each other
wake in a changing order, so the figures are the fewest of several equal calls. How often
long work rests depends on the machine and on the profile itself, so the clock of its
slices stands still meanwhile. `--files` prints the names of the
files too; `--json` prints all figures as one JSON object; `--check` exits with 1 above a
ceiling of `budgets.toml`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from structure import ceilings, exceeded

from memagent.async_agent import AsyncAgent
from memagent.core import long_work
from memagent.core.records import Session, Turn

ROOT = Path(__file__).resolve().parent.parent / "memagent"
AT = datetime(2024, 5, 1, tzinfo=UTC)
WARM, MEMORIES = 2, 3
"""Calls of a verb before the recorded one, and how many memories it is recorded on."""
STILL_S = 3600.0
"""Seconds of a slice of long work, so that none ends while a call is recorded."""
Trip = Callable[[AsyncAgent, int], Awaitable[object]]
IN_MEMORY = """
import asyncio, sys
from memagent import AsyncAgent

async def main():
    async with AsyncAgent(path=":memory:") as agent:
        await agent.remember("I bought a red bicycle.")
        await agent.ask("What did I buy?")

asyncio.run(main())
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "memagent" and getattr(module, "__file__", None):
        print(module.__file__)
"""
"""One in-memory remember and ask, then the files of memagent that it loaded."""


def session(number: int) -> Session:
    """Return a session of three turns that no other call stores."""
    texts = (
        f"I bought the red bicycle number {number} at the market.",
        "Which one was it?",
        "The one with a basket; I paid 40 euros last Friday.",
    )
    turns = tuple(
        Turn(id=f"s{number}:{at}", speaker=("Ana", "Bo")[at % 2], text=text)
        for at, text in enumerate(texts)
    )
    return Session(id=f"s{number}", at=AT, turns=turns)


TRIPS: dict[str, Trip] = {
    "remember": lambda agent, number: agent.remember(session(number)),
    "ask": lambda agent, _: agent.ask("What did Ana buy at the market?"),
    "search": lambda agent, _: agent.search("red bicycle"),
    "memory.add": lambda agent, number: agent.memory.add(f"Ana likes the tea number {number}."),
}


@dataclass
class Trail:
    """What one call enters."""

    files: set[Path] = field(default_factory=set[Path])
    functions: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    moves: int = 0
    """Calls of a function in another file than the call before, thread by thread."""


class Recorder:
    """Notes the functions of memagent that any thread enters, in the trail that is set."""

    def __init__(self) -> None:
        self.trail: Trail | None = None
        self._last: dict[int, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; a profiling function as `sys.setprofile` takes it."""
        code, thread, trail = frame.f_code, threading.get_ident(), self.trail
        path = Path(code.co_filename)
        if trail is not None and event == "call" and path.is_relative_to(ROOT):
            trail.files.add(path.relative_to(ROOT))
            trail.functions.add((code.co_filename, code.co_qualname))
            trail.moves += self._last.get(thread, code.co_filename) != code.co_filename
            self._last[thread] = code.co_filename


async def recorded(trip: Trip, folder: Path) -> Trail:
    """Return what a warm call of a verb enters, on a fresh memory."""
    recorder, trail = Recorder(), Trail()
    long_work.SLICE_S = STILL_S
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        async with AsyncAgent(path=folder / "memory.db") as agent:
            await agent.remember(session(0))
            for number in range(1, WARM + 1):
                await trip(agent, number)
            recorder.trail = trail
            await trip(agent, WARM + 1)
            recorder.trail = None
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trail


def shortest_trails() -> dict[str, Trail]:
    """Return what each verb enters at least, by its name."""
    shortest: dict[str, Trail] = {}
    for verb, trip in TRIPS.items():
        trails: list[Trail] = []
        for _ in range(MEMORIES):
            with tempfile.TemporaryDirectory() as folder:
                trails.append(asyncio.run(recorded(trip, Path(folder))))
        shortest[verb] = min(trails, key=lambda trail: len(trail.functions))
        shortest[verb].moves = min(trail.moves for trail in trails)
    return shortest


def loaded() -> dict[str, int]:
    """Count the modules, and their statements, that one in-memory remember and ask loads."""
    files = subprocess.run(
        [sys.executable, "-c", IN_MEMORY],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT.parent,
    ).stdout.splitlines()
    trees = [ast.parse(Path(file).read_text(encoding="utf-8")) for file in files]
    statements = sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree))
    return {"statements": statements, "modules": len(files)}


def figures(trails: dict[str, Trail], memory: dict[str, int]) -> dict[str, float]:
    """Return the values under the names of their budgets."""
    values: dict[str, float] = {f"loaded.{name}": value for name, value in memory.items()}
    for verb, trail in trails.items():
        name = f"trips.{verb.removeprefix('memory.')}"
        values |= {f"{name}_functions": len(trail.functions), f"{name}_moves": trail.moves}
    return values


def main(*, names: bool, as_json: bool) -> list[str]:
    """Print the figures; `names` adds the files. Return what is above its ceiling."""
    found, memory = shortest_trails(), loaded()
    faults = exceeded(figures(found, memory), ceilings(ROOT.parent))
    if as_json:
        verbs = {
            verb: {
                "files": len(trail.files),
                "functions": len(trail.functions),
                "moves": trail.moves,
            }
            for verb, trail in found.items()
        }
        print(json.dumps({"trips": verbs, "loaded": memory}))
        return faults
    print(f"{'verb':<12}{'files':>7}{'functions':>11}{'moves':>7}")
    for verb, trail in found.items():
        print(f"{verb:<12}{len(trail.files):>7}{len(trail.functions):>11}{trail.moves:>7}")
        if names:
            print("".join(f"    {path.as_posix()}\n" for path in sorted(trail.files)), end="")
    print(f"\nin memory: {memory['statements']:,} statements in {memory['modules']} modules")
    print("\n".join(faults) or "no ceiling exceeded")
    return faults


if __name__ == "__main__":
    above = main(names="--files" in sys.argv[1:], as_json="--json" in sys.argv[1:])
    sys.exit(int(bool(above) and "--check" in sys.argv[1:]))
