"""Coroutines that ask one thing each are answered together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from patience import patience_s

from train.sampling.batcher import RequestBatcher, in_batches


@dataclass(frozen=True)
class Ask:
    """Sorts by length, then by name."""

    name: str
    length: int = 1

    @property
    def order(self) -> tuple[int, str]:
        return (self.length, self.name)


class Echo:
    """Answers with the name; notes its batches; fails for jobs called `bad`."""

    def __init__(self, *, short: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.short = short

    def __call__(self, jobs: Sequence[Ask]) -> list[str]:
        self.batches.append([job.name for job in jobs])
        if any(job.name == "bad" for job in jobs):
            raise ValueError("bad job")
        return [job.name for job in jobs][: -1 if self.short else None]


async def _dialogue(batcher: RequestBatcher[Ask, str], name: str, turns: int) -> list[str]:
    with batcher.participant():
        return [await batcher.submit(Ask(f"{name}{turn}")) for turn in range(turns)]


async def _all(batcher: RequestBatcher[Ask, str], turns: Sequence[int]) -> list[list[str]]:
    tasks = [
        asyncio.create_task(_dialogue(batcher, f"c{place}.", count))
        for place, count in enumerate(turns)
    ]
    return await asyncio.gather(*tasks)


async def test_dialogues_go_round_by_round_and_each_gets_its_own_answers() -> None:
    echo = Echo()
    batcher = RequestBatcher(in_batches(echo), linger_s=10.0)
    said = await _all(batcher, [3] * 8)
    assert said == [[f"c{place}.{turn}" for turn in range(3)] for place in range(8)]
    assert [len(batch) for batch in echo.batches] == [8, 8, 8]
    assert (batcher.stats.rounds, batcher.stats.jobs, batcher.stats.widest) == (3, 24, 8)


async def test_one_that_leaves_early_does_not_keep_the_others_waiting() -> None:
    echo = Echo()
    batcher = RequestBatcher(in_batches(echo), linger_s=10.0)
    await asyncio.wait_for(_all(batcher, [1, 2, 4]), timeout=patience_s(5))
    assert [len(batch) for batch in echo.batches] == [3, 2, 1, 1]


async def test_a_round_is_sorted_and_cut_to_the_width() -> None:
    echo = Echo()
    batcher = RequestBatcher(in_batches(echo), width=2)

    async def ask() -> list[str]:
        jobs = [Ask("d", 4), Ask("a", 1), Ask("c", 3), Ask("b", 1), Ask("e", 9)]
        return await asyncio.gather(*(batcher.submit(job) for job in jobs))

    assert await ask() == ["d", "a", "c", "b", "e"]
    assert echo.batches == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_caller_outside_any_party_is_answered_after_a_short_pause() -> None:
    echo = Echo()
    batcher = RequestBatcher(in_batches(echo))
    assert await batcher.submit(Ask("app")) == "app"
    assert echo.batches == [["app"]]


async def test_a_failing_batch_fails_its_own_jobs_only() -> None:
    echo = Echo()
    batcher = RequestBatcher(in_batches(echo), width=1)

    async def ask() -> tuple[object, ...]:
        return await asyncio.gather(
            batcher.submit(Ask("good")),
            batcher.submit(Ask("bad")),
            batcher.submit(Ask("kind")),
            return_exceptions=True,
        )

    good, bad, kind = await ask()
    assert (good, kind) == ("good", "kind")
    assert isinstance(bad, ValueError)


async def test_a_cancelled_job_is_not_run_and_holds_nobody_up() -> None:
    echo = Echo()
    batcher = RequestBatcher(in_batches(echo), linger_s=0.05)

    async def ask() -> str:
        given_up = asyncio.create_task(batcher.submit(Ask("gone")))
        await asyncio.sleep(0)
        given_up.cancel()
        return await batcher.submit(Ask("here"))

    assert await ask() == "here"
    assert echo.batches == [["here"]]


async def test_a_runner_that_loses_a_result_is_found_out() -> None:
    batcher = RequestBatcher(in_batches(Echo(short=True)))
    with pytest.raises(RuntimeError, match="0 results for 1 jobs"):
        await batcher.submit(Ask("a"))
    with pytest.raises(ValueError, match="width"):
        RequestBatcher(in_batches(Echo()), width=0)
