"""Checkpointers without asynchronous methods, such as `SqliteSaver`, used from coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver


class ThreadedSaver(BaseCheckpointSaver[Any]):
    """Runs the methods of a synchronous checkpointer in threads."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version that follows one of a channel."""
        return self._saver.get_next_version(current, channel)

    async def aget_tuple(self, config: Any) -> Any:
        """Return the checkpoint of a thread, or None."""
        return await asyncio.to_thread(self._saver.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        """Yield checkpoints, newest first."""
        for found in await asyncio.to_thread(lambda: list(self._saver.list(config, **options))):
            yield found

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Store a checkpoint and return its configuration."""
        return await asyncio.to_thread(self._saver.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what the nodes of a step have written so far."""
        await asyncio.to_thread(self._saver.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread."""
        await asyncio.to_thread(self._saver.delete_thread, thread_id)
