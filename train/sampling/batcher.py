"""The batcher: many coroutines submit one job each and are answered together.

Rollouts are written as straight sequential code, one model call after another. A
coroutine that takes part enters `participant()`. When every participant waits for an
answer no more jobs can come, and the waiting jobs become one batch. Callers that are no
participants (an app) are answered after a short pause without a further job. Batches
are sorted by key and cut to `width`, so that the same run makes the same batches.

The surprise: a participant must wait for nothing but its own answers. One that waits
for another participant keeps all of them waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Keyed(Protocol):
    """A job with a place in an order."""

    @property
    def order(self) -> tuple[int, str]:
        """Sort key within a batch."""
        ...


JobT = TypeVar("JobT", bound=Keyed)
ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class BatchStats:
    """Counts of the batches run so far."""

    rounds: int = 0
    """Times that all waiting jobs were taken."""
    batches: int = 0
    jobs: int = 0
    widest: int = 0


class RequestBatcher(Generic[JobT, ResultT]):
    """Turns concurrent `submit` calls into calls of `run(jobs) -> results`.

    `run` runs in a thread and never twice at once.
    """

    def __init__(
        self,
        run: Callable[[Sequence[JobT]], Sequence[ResultT]],
        *,
        width: int = 64,
        linger_s: float = 0.003,
    ) -> None:
        """Prepare to batch jobs; nothing runs yet.

        `width` is the most jobs a batch; `linger_s` is the pause after which jobs of
        callers that are no participants run.
        """
        if width < 1:
            raise ValueError(f"width must be at least 1, not {width}")
        self._run = run
        self._width = width
        self._linger_s = linger_s
        self._waiting: list[tuple[JobT, asyncio.Future[ResultT]]] = []
        self._participants = 0
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
            self._flush_if_complete()

    async def submit(self, job: JobT) -> ResultT:
        """Return the result of one job.

        An error of `run` is raised to all callers with jobs in that batch.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()
        self._waiting.append((job, future))
        self._flush_if_complete()
        return await future

    def _flush_if_complete(self) -> None:
        if not self._waiting or self._worker is not None:
            return
        live = [entry for entry in self._waiting if not entry[1].cancelled()]
        if self._participants and len(live) < self._participants:
            return
        if self._participants:
            self._start()
            return
        if self._timer is not None:
            self._timer.cancel()  # more jobs may follow this one
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._worker is None and self._waiting:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Run one round: all jobs that wait now, batch after batch."""
        taken = [entry for entry in self._waiting if not entry[1].cancelled()]
        self._waiting = []
        taken.sort(key=lambda entry: entry[0].order)
        try:
            self.stats.rounds += bool(taken)
            for start in range(0, len(taken), self._width):
                await self._run_batch(taken[start : start + self._width])
        finally:
            self._worker = None
            self._flush_if_complete()

    async def _run_batch(self, batch: list[tuple[JobT, asyncio.Future[ResultT]]]) -> None:
        jobs = [job for job, _ in batch]
        self.stats.batches += 1
        self.stats.jobs += len(jobs)
        self.stats.widest = max(self.stats.widest, len(jobs))
        try:
            results = await asyncio.to_thread(self._run, jobs)
            if len(results) != len(jobs):
                raise RuntimeError(
                    f"the batch runner gave {len(results)} results for {len(jobs)} jobs"
                )
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
