"""The batcher: many coroutines submit one job each and are answered together.

Rollouts are written as straight sequential code, one model call after another. A
coroutine that takes part enters `participant()`. An engine that can let jobs join while
others are under way is given each job when it is ready: whenever some have ended, it asks
for more, and is answered once every participant waits or has left. So nobody waits for
the longest reply of the others, and the same run makes the same batches. Callers that are
no participants (an app) are answered after a short pause without a further job. Waiting
jobs are sorted by key, and at most `width` are under way.

The surprise: a participant must wait for nothing but its own answers. One that waits
for another participant keeps all of them waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable


class Keyed(Protocol):
    """A job with a place in an order."""

    @property
    def order(self) -> tuple[int, str]:
        """Sort key among waiting jobs."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One completion to sample."""

    key: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    """0 takes the most probable token."""
    top_p: float = 1.0
    seed: int = 0
    adapter: str | None = None
    """LoRA adapter that speaks; None for the model as it is."""
    grammar: str | None = None
    """JSON Schema as text that the completion is held to; None for free text."""

    @property
    def order(self) -> tuple[int, str]:
        """Sort key: rows of like length go together."""
        return (len(self.prompt_ids), self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """C sampled ids, with the end token if it came, and C log-probabilities in nats."""

    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool
    """Whether the end token came before `max_tokens`."""


JobT = TypeVar("JobT", bound=Keyed)
ResultT = TypeVar("ResultT")
More = Callable[[Mapping[int, ResultT]], Sequence[JobT]]
"""Takes the results of jobs that have ended, by place, and gives those that join now;
places count all jobs of a run from 0.
"""
Run = Callable[[Sequence[JobT], More[ResultT, JobT]], None]
"""Answers jobs, and those that `more` gives, until all have ended and no more come."""


def in_batches(run: Callable[[Sequence[JobT]], Sequence[ResultT]]) -> Run[JobT, ResultT]:
    """Return the runner of an engine that answers whole batches; others join after each."""

    def running(jobs: Sequence[JobT], more: More[ResultT, JobT]) -> None:
        ended = 0
        while jobs:
            results = run(jobs)
            if len(results) != len(jobs):
                raise RuntimeError(
                    f"the batch runner gave {len(results)} results for {len(jobs)} jobs"
                )
            ended, first = ended + len(jobs), ended
            jobs = more(dict(enumerate(results, start=first)))

    return running


def all_results(run: Run[JobT, ResultT], jobs: Sequence[JobT]) -> list[ResultT]:
    """Return the results of jobs that nothing joins, in their order."""
    results: dict[int, ResultT] = {}

    def keep(ended: Mapping[int, ResultT]) -> Sequence[JobT]:
        results.update(ended)
        return ()

    run(jobs, keep)
    return [results[place] for place in range(len(jobs))]


@dataclass(slots=True)
class BatchStats:
    """Counts of what was run so far."""

    rounds: int = 0
    """Times that waiting jobs were taken."""
    jobs: int = 0
    under_way: int = 0
    """Jobs under way at these times, added up."""
    widest: int = 0
    seconds: float = 0.0
    """Spent in the engine."""

    def see(self, fresh: int, under_way: int) -> None:
        """Take in that jobs were taken, and how many are under way with them."""
        self.rounds += 1
        self.jobs += fresh
        self.under_way += under_way
        self.widest = max(self.widest, under_way)


class RequestBatcher(Generic[JobT, ResultT]):
    """Turns concurrent `submit` calls into calls of `run(jobs, more)`.

    `run` runs in a thread and never twice at once.
    """

    def __init__(
        self, run: Run[JobT, ResultT], *, width: int = 64, linger_s: float = 0.003
    ) -> None:
        """Prepare to batch jobs; nothing runs yet.

        `width` is the most jobs at a time; `linger_s` is the pause after which jobs of
        callers that are no participants run.
        """
        if width < 1:
            raise ValueError(f"width must be at least 1, not {width}")
        self._run = run
        self._width = width
        self._linger_s = linger_s
        self._waiting: list[tuple[JobT, asyncio.Future[ResultT]]] = []
        self._taken: list[tuple[JobT, asyncio.Future[ResultT]]] = []
        self._under_way: dict[int, asyncio.Future[ResultT]] = {}
        self._given = 0
        self._participants = 0
        self._complete: asyncio.Event | None = None
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.stats = BatchStats()

    @contextmanager
    def participant(self) -> Generator[None]:
        """Let batches wait for this coroutine's next job until the context ends."""
        self._participants += 1
        try:
            yield
        finally:
            self._participants -= 1
            self._look()

    async def submit(self, job: JobT) -> ResultT:
        """Return the result of one job.

        An error of `run` is raised to all callers whose jobs were under way.
        """
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        self._look()
        return await future

    def _look(self) -> None:
        """Go on if every participant waits for an answer."""
        held = [*self._under_way.values(), *(future for _, future in self._taken + self._waiting)]
        if sum(not future.done() for future in held) < self._participants:
            return
        if self._complete is not None:
            self._complete.set()
        if self._worker is not None or not self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()  # more jobs may follow this one
        loop = asyncio.get_running_loop()
        pause = 0.0 if self._participants else self._linger_s
        self._timer = loop.call_later(pause, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._worker is None and self._waiting:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Run all jobs that wait now, and those that join them."""
        loop = asyncio.get_running_loop()

        def more(ended: Mapping[int, ResultT]) -> Sequence[JobT]:
            return asyncio.run_coroutine_threadsafe(self._exchange(ended), loop).result()

        try:
            self._taken, self._waiting = self._waiting, []
            while jobs := self._next():
                began = perf_counter()
                error: Exception = RuntimeError("the engine ended before these jobs had a result")
                try:
                    await asyncio.to_thread(self._run, jobs, more)
                except Exception as raised:
                    error = raised
                finally:  # also where the loop ends as soon as the last result is out
                    self.stats.seconds += perf_counter() - began
                    left, self._under_way, self._given = self._under_way, {}, 0
                for future in left.values():
                    if not future.done():
                        future.set_exception(error)
        finally:
            self._worker = None
            self._look()

    async def _exchange(self, ended: Mapping[int, ResultT]) -> Sequence[JobT]:
        """Hand results out and return the jobs that are ready now."""
        began = perf_counter()
        for place, result in ended.items():
            future = self._under_way.pop(place)
            if not future.done():
                future.set_result(result)
        if self._participants:
            self._complete = asyncio.Event()
            self._look()
            await self._complete.wait()
            self._complete = None
            self._taken, self._waiting = self._taken + self._waiting, []
        self.stats.seconds -= perf_counter() - began
        return self._next()

    def _next(self) -> Sequence[JobT]:
        """Take the first of the jobs in their order, as many as there is room for."""
        live = [entry for entry in self._taken if not entry[1].done()]
        live.sort(key=lambda entry: entry[0].order)
        room = self._width - len(self._under_way)
        fresh, self._taken = live[:room], live[room:]
        for _, future in fresh:
            self._under_way[self._given] = future
            self._given += 1
        if fresh:
            self.stats.see(len(fresh), len(self._under_way))
        return [job for job, _ in fresh]


class RequestPool(Generic[JobT, ResultT]):
    """Asks for each job by itself, `width` at a time: a server makes batches of its own."""

    def __init__(self, ask: Callable[[JobT], ResultT], *, width: int = 64) -> None:
        """Prepare to ask in threads."""
        self._ask = ask
        self._threads = ThreadPoolExecutor(width)
        self._under_way = 0
        self._began = 0.0
        self.stats = BatchStats()

    def participant(self) -> Any:
        """Wait for nobody."""
        return nullcontext()

    async def submit(self, job: JobT) -> ResultT:
        """Return the result of one job, or raise its error."""
        if not self._under_way:
            self._began = perf_counter()
        self._under_way += 1
        self.stats.see(1, self._under_way)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, job)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.stats.seconds += perf_counter() - self._began


# What a sampler is asked and what it answers; nothing here needs a learning library.


class Engine(Protocol):
    """Samples batches."""

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """Return one result a job, in order."""
        ...


@runtime_checkable
class Continuous(Protocol):
    """An engine whose jobs join and leave while others are under way."""

    def serve(
        self, jobs: Sequence[Job], more: Callable[[Mapping[int, Sampled]], Sequence[Job]]
    ) -> None:
        """Answer jobs, and those that `more` gives, each as soon as it has ended."""
        ...


@runtime_checkable
class Synced(Protocol):
    """An engine that holds a copy of the weights."""

    def sync(self) -> None:
        """Give it the present weights; all processes call it together."""
        ...
