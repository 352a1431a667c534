"""Waiting for asynchronous work from code that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def waited_for(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives, from an event loop of its own.

    `asyncio.run` looks up its Ctrl-C handler at the end, and Python writes out the
    handler's task to do so, with the task's whole result, twice: a tenth of a second
    for the rollouts of a step. The task here has no result.
    """
    found: list[T] = []

    async def working() -> None:
        found.append(await work)

    asyncio.run(working())
    return found[0]
