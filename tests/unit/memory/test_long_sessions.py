"""A session of long turns keeps the event loop no longer than a slice at a time.

Nothing here is timed. With slices of no length every rest lets another task run, so the
test counts how much was done between two rests, and in which thread the rest was.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memagent.async_agent import AsyncAgent
from memagent.core import long_work
from memagent.core.records import Session, Turn
from memagent.designs.parts import retrieval as relating
from memagent.designs.parts.rules import manager as extractor
from memagent.graphs import ingest
from memagent.journal import open_database as database
from memagent.memory import log

LONG = "".join(f"I met number {number} in town. " for number in range(3_000))[:60_000]


@dataclass
class Work:
    """The calls that a session made: what, on the loop's thread or not, how much, when."""

    loop_thread: int = field(default_factory=threading.get_ident)
    ticks: int = 0
    calls: list[tuple[str, bool, int, int]] = field(
        default_factory=list[tuple[str, bool, int, int]]
    )

    def watch(
        self,
        patch: pytest.MonkeyPatch,
        module: object,
        name: str,
        size: Callable[[Any], int] = lambda _: 1,
    ) -> None:
        """Note every call of a module's function, with the size of its first argument."""
        plain = getattr(module, name)

        def noted(first: Any, *rest: Any, **named: Any) -> Any:
            here = threading.get_ident() == self.loop_thread
            self.calls.append((name, here, size(first), self.ticks))
            return plain(first, *rest, **named)

        patch.setattr(module, name, noted)

    async def tick(self) -> None:
        """Count how often another task has its turn."""
        while True:
            self.ticks += 1
            await asyncio.sleep(0)

    def of(self, name: str) -> list[tuple[bool, int, int]]:
        """Return the calls of a function."""
        return [call[1:] for call in self.calls if call[0] == name]


async def remembered(patch: pytest.MonkeyPatch, path: Path, texts: Sequence[str]) -> Work:
    """Remember one session beside a task that counts its turns."""
    work = Work()
    patch.setattr(long_work, "SLICE_S", 0.0)
    patch.setattr(long_work, "LARGE", 16)
    work.watch(patch, extractor, "pieces", len)
    work.watch(patch, log, "most_similar", len)
    work.watch(patch, relating, "_fitting")
    work.watch(patch, ingest, "validate_ops", len)
    work.watch(patch, database, "_prepared", len)
    work.watch(patch, log, "apply")
    turns = tuple(Turn(id=f"t{at}", speaker="Ann", text=text) for at, text in enumerate(texts))
    async with AsyncAgent(path=path, embedder="hashing", user_id="ann") as agent:
        warm = Session(id="s0", turns=(Turn(id="w", speaker="Ann", text="I live in Porto."),))
        await agent.remember(warm)
        work.calls.clear()
        ticking = asyncio.create_task(work.tick())
        await agent.remember(Session(id="s1", turns=turns))
        ticking.cancel()
    return work


async def test_a_long_turn_is_read_in_slices_and_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = await remembered(monkeypatch, tmp_path / "m.db", [LONG])
    ((cut_here, cut_chars, _),) = work.of("pieces")
    assert (cut_here, cut_chars) == (False, 60_000)
    compared = work.of("most_similar")
    assert sum(texts for _, texts, _ in compared) > 32
    assert max(texts for _, texts, _ in compared) <= 16
    for name in ("most_similar", "_fitting"):
        ticks = [tick for _, _, tick in work.of(name)]
        assert len(ticks) > 2 and len(set(ticks)) == len(ticks), f"no rest between {name}"
    assert [here for here, _, _ in work.of("validate_ops")] == [False]
    assert [here for here, _, _ in work.of("_prepared")].count(False) >= 1
    assert [here for here, _, _ in work.of("apply")].count(False) >= 1


async def test_a_session_of_many_characters_is_encoded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = await remembered(monkeypatch, tmp_path / "m.db", ["I like tea. " * 700] * 10)
    assert work.of("_prepared")[0][0] is False
    assert work.of("apply")[0][0] is False


async def test_a_short_session_stays_on_the_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = await remembered(monkeypatch, tmp_path / "m.db", ["I moved to Lisbon.", "I like tea."])
    assert {here for _, here, _, _ in work.calls} == {True}
