"""Long work beside short requests: in slices on the event loop, or in a thread aside.

One event loop serves many memories. Work on a large one goes on in slices of a few
milliseconds with `Slices`, where it changes what the loop's tasks share, and in one of
a few threads with `aside`, where it only makes a value of values.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
SLICE_S: Final = 0.004
"""Longest time that long work keeps the event loop to itself."""
_THREADS: Final = 2
"""More would only wait for the interpreter's lock, and the event loop with them."""
_FREED_AT_ONCE: Final = 64
_FREEING: Final[set[asyncio.Task[None]]] = set()
"""Tasks that free something; the loop itself holds them by weak references only."""
_POOLS: Final[dict[int, ThreadPoolExecutor]] = {}
"""By process: a forked child has none of its parent's threads."""


class Slices:
    """The clock of one piece of long work."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_S

    async def rest(self) -> None:
        """Let the other tasks of the event loop run, if this slice is over."""
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_S


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a pure function gives, computed in a thread; many calls wait in line."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool(), call)


def let_go(objects: Iterable[object]) -> None:
    """Free objects in slices later, instead of all at once when their owner lets go.

    Call it before the owner does. Without a running event loop it does nothing.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    task = loop.create_task(_freed(list(objects)))
    _FREEING.add(task)
    task.add_done_callback(_FREEING.discard)


async def _freed(objects: list[object]) -> None:
    slices = Slices()
    while objects:
        del objects[-_FREED_AT_ONCE:]
        await slices.rest()


def _pool() -> ThreadPoolExecutor:
    pool = _POOLS.get(os.getpid())
    if pool is None:
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="memagent-aside")
        pool = _POOLS.setdefault(os.getpid(), pool)
    return pool
