"""Many coroutines ask one thing each; the batcher answers them together.

Rollouts are written as straight sequential code, one model call after another. A
coroutine that takes part enters `party()`; when every party waits for an answer nothing
more can come, and what is waiting becomes one batch. Callers outside a party (an app)
are answered after a short pause in which nobody else came. Batches are sorted by key
and cut to `width`, so that the same run makes the same batches.

The surprise: a party must wait for nothing but its own answers. One that waits for
another party keeps everybody waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Keyed(Protocol):
    """What can be put into an order."""

    @property
    def order(self) -> tuple[int, str]:
        """Sort key within a batch."""
        ...


JobT = TypeVar("JobT", bound=Keyed)
ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class BatchStats:
    """What was run so far."""

    rounds: int = 0
    """Times that everything waiting was taken."""
    batches: int = 0
    jobs: int = 0
    widest: int = 0


class RequestBatcher(Generic[JobT, ResultT]):
    """Turns concurrent `submit` calls into calls of `run(jobs) -> results`, which runs
    in a thread and never twice at once.
    """

    def __init__(
        self,
        run: Callable[[Sequence[JobT]], Sequence[ResultT]],
        *,
        width: int = 64,
        linger_s: float = 0.003,
    ) -> None:
        """`width` is the most jobs a batch; `linger_s` the pause that ends the wait
        outside parties.
        """
        if width < 1:
            raise ValueError(f"width must be at least 1, not {width}")
        self._run = run
        self._width = width
        self._linger_s = linger_s
        self._waiting: list[tuple[JobT, asyncio.Future[ResultT]]] = []
        self._parties = 0
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.stats = BatchStats()

    @contextmanager
    def party(self) -> Generator[None]:
        """Take part: the batch waits for this coroutine's next request.

        Leaving lets the others go on.
        """
        self._parties += 1
        try:
            yield
        finally:
            self._parties -= 1
            self._flush_if_complete()

    async def submit(self, job: JobT) -> ResultT:
        """The result of one job.

        What `run` raises is raised to all whose jobs were in that batch.
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
        if self._parties and len(live) < self._parties:
            return
        if self._parties:
            self._start()
            return
        if self._timer is not None:
            self._timer.cancel()  # somebody new came; more may follow
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._worker is None and self._waiting:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """One round: everything waiting now, batch after batch."""
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
