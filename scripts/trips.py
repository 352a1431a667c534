"""Print how many files and functions of memagent one call of each main verb enters.

Each verb runs once to warm up and once under `sys.setprofile`, with the design
`verbatim` and the default embedder on a SQLite file, worker threads included. A verb
that enters fewer files is easier to follow. `--files` prints the names of the files too.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from memagent.async_agent import AsyncAgent
from memagent.build import open_agent
from memagent.core.records import Session, Turn

ROOT = Path(__file__).resolve().parent.parent / "memagent"
AT = datetime(2024, 5, 1, tzinfo=UTC)
Trip = Callable[[AsyncAgent, int], Awaitable[object]]


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


class Recorder:
    """The files and functions of memagent that any thread enters while recording."""

    def __init__(self) -> None:
        self.recording = False
        self.files: set[Path] = set()
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; a profiling function as `sys.setprofile` takes it."""
        code = frame.f_code
        path = Path(code.co_filename)
        if self.recording and event == "call" and path.is_relative_to(ROOT):
            self.files.add(path.relative_to(ROOT))
            self.functions.add((code.co_filename, code.co_qualname))


async def recorded(trip: Trip, folder: Path) -> Recorder:
    """Return what the third call of a verb enters, on a fresh memory."""
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        async with open_agent(path=folder / "memory.db", design="verbatim") as agent:
            await agent.remember(session(0))
            for number in (1, 2, 3):
                recorder.recording = number == 3
                await trip(agent, number)
            recorder.recording = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return recorder


def main(*, names: bool) -> None:
    """Print the table, with the names of the files when `names` is true."""
    print(f"{'verb':<12}{'files':>7}{'functions':>11}")
    for verb, trip in TRIPS.items():
        with tempfile.TemporaryDirectory() as folder:
            trail = asyncio.run(recorded(trip, Path(folder)))
        print(f"{verb:<12}{len(trail.files):>7}{len(trail.functions):>11}")
        if names:
            print("".join(f"    {path.as_posix()}\n" for path in sorted(trail.files)), end="")


if __name__ == "__main__":
    main(names="--files" in sys.argv[1:])
