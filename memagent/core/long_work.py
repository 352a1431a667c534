"""Long work beside short requests: in slices, in a thread aside, and with a resting collector.

One event loop serves many memories. Work on a large one goes on in slices of a few
milliseconds with `Slices`, where it changes what the loop's tasks share, and in one of
a few threads with `aside`, where it only makes a value of values.

`rare_collections` lets the garbage collector rest. A thousand live memories are a million
objects, none of which is garbage, and the collector walks them again and again: with
Python's own thresholds that is about an eighth of a rollout's or a replay's time.
Reference counts free nearly all of what is dropped meanwhile; the collector is only for
cycles.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import cache, partial
from time import perf_counter
from typing import Final, ParamSpec, TypeVar

from rpds import HashTrieMap

from memagent.core.snapshot import Commit, Entry, GraphDelta, Restored, SessionStored, TurnsAdded

P = ParamSpec("P")
T = TypeVar("T")
SLICE_S = 0.004
"""Longest time that long work keeps the event loop to itself."""
LARGE: Final = 64
"""Changes, or work like theirs, from which on a task takes longer than a slice."""
LARGE_CHARS: Final = 50_000
"""Characters of text from which on reading them takes longer than a slice."""
NEVER: Final = 1_000_000_000
"""A threshold of the collector's oldest generation that is never reached."""
# More would only wait for the interpreter's lock, and the event loop with them.
_THREADS: Final = 2
_FREED_AT_ONCE: Final = 64
# Levels of objects with slots that are taken apart: a view, its parts, their columns.
_DEPTH: Final = 3
# Tasks that free something; the loop itself holds them by weak references only.
_FREEING: Final[set[asyncio.Task[None]]] = set()


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

    async def over(self, items: Iterable[T]) -> AsyncGenerator[T]:
        """Yield the items, and rest after the use of each."""
        for item in items:
            yield item
            if perf_counter() >= self._until:
                await self.rest()


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a pure function gives, computed in a thread; many calls wait in line.

    The garbage collector hardly runs meanwhile.
    """
    work = rare_collections(frozen=False)(function)
    call = partial(copy_context().run, work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool(os.getpid()), call)


def is_large(entries: Iterable[Entry]) -> bool:
    """Tell whether entries take longer than a slice to encode or to apply."""
    return sum(map(_changes, entries)) >= LARGE


def _changes(entry: Entry) -> int:
    """Return about how many changed items an entry is as much work as."""
    match entry:
        case Commit() | Restored():
            ops = len(entry.ops) if isinstance(entry, Commit) else 0
            links = ops + len(entry.graph.nodes) + len(entry.graph.edges)
            return max(1, len(entry.changes), links // 4)
        case GraphDelta():
            return max(1, (len(entry.nodes) + len(entry.edges)) // 4)
        case SessionStored(session=told) | (TurnsAdded() as told):
            return max(1, sum(len(turn.text) for turn in told.turns) // 4_000)
        case _:
            return 1


def let_go(*owners: object) -> None:
    """Free large objects in slices later, instead of all at once when their owners let go.

    Call it before they do. Without a running event loop it does nothing.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    task = loop.create_task(_freed(list(owners)))
    _FREEING.add(task)
    task.add_done_callback(_FREEING.discard)


async def _freed(owners: list[object]) -> None:
    """Free objects a few at a time.

    Each is taken apart while its parts live on, so that none frees many others at once.
    """
    left, done, slices = [(owner, _DEPTH) for owner in owners], 0, Slices()
    owners.clear()
    while left:
        thing, depth = left.pop()
        for part in _parts(thing, depth):
            left.append((part, depth - 1))
            done += 1
            if not done % _FREED_AT_ONCE:
                await slices.rest()
        done += 1
        if not done % _FREED_AT_ONCE:
            await slices.rest()


def _parts(thing: object, depth: int) -> Iterable[object]:
    """Return the parts of a large container, or of an object with slots; else nothing."""
    match thing:
        case HashTrieMap() if len(thing) >= _FREED_AT_ONCE:  # pyright: ignore[reportUnknownArgumentType]
            return thing.values()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        case dict() if len(thing) >= _FREED_AT_ONCE:  # pyright: ignore[reportUnknownArgumentType]
            return list(thing.values())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case list() | tuple() if depth > 0 or len(thing) >= _FREED_AT_ONCE:  # pyright: ignore[reportUnknownArgumentType]
            return thing  # pyright: ignore[reportUnknownVariableType]
        case _ if depth > 0:
            names: tuple[str, ...] = vars(type(thing)).get("__slots__", ())
            return (getattr(thing, name, None) for name in names)
        case _:
            return ()


@contextmanager
def frozen_heap() -> Generator[None]:
    """Leave the objects that live now out of garbage collections meanwhile.

    In a process that has frozen objects of its own nothing is frozen and nothing thawed:
    Python can only thaw all of them.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def rare_collections(*, new_objects: int = 100_000, frozen: bool = True) -> Generator[None]:
    """Collect garbage only after so many new objects.

    Objects that live on entry are left out if they shall be `frozen`, unless the process
    has frozen objects of its own: these stay frozen. On leaving, the old settings return,
    with one collection of the rest, or of the youngest where nothing was frozen.

    Blocks may nest; the inner ones change nothing, nor does a block in a process that
    serves, which collects young garbage only.
    """
    before = gc.get_threshold()
    if before[0] >= new_objects or before[2] >= NEVER:
        yield
        return
    gc.set_threshold(new_objects, before[1], before[2])
    try:
        with frozen_heap() if frozen else nullcontext():
            yield
    finally:
        gc.set_threshold(*before)
        gc.collect(int(frozen))


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 (a forked child has no threads)
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="memagent-aside")
