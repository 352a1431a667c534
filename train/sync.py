"""Asynchronous work, run from code that is not asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run the work in an event loop of its own and return its result.

    `asyncio.run` looks up its Ctrl-C handler at the end, and Python writes out the
    handler's task to do so, with the task's whole result, twice: a tenth of a second
    for the rollouts of a step. The task here has no result.
    """
    results: list[T] = []

    async def working() -> None:
        results.append(await work)

    asyncio.run(working())
    return results[0]
