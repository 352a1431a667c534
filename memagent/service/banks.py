"""Open memories, one agent a scope, with the ones used longest ago closed first.

A memory in use is never closed: two banks of one scope would each keep a search view of
it. Opening one costs a replay of its journal at first use. All agents share model,
design, embedder and journal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager

from memagent.async_agent import AsyncAgent
from memagent.core.records import Scope
from memagent.service.metrics import Metrics


class _Open:
    __slots__ = ("agent", "users")

    def __init__(self, agent: AsyncAgent) -> None:
        self.agent = agent
        self.users = 0

    def __enter__(self) -> AsyncAgent:
        self.users += 1
        return self.agent

    def __exit__(self, *_: object) -> None:
        self.users -= 1


class Banks:
    """Agents by scope. Used from one event loop."""

    def __init__(self, make: Callable[[Scope], AsyncAgent], *, most: int, metrics: Metrics) -> None:
        self._make = make
        self._most = most
        self._metrics = metrics
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def users_of(self, scope: Scope) -> int:
        """Return how many are at work on a memory."""
        opened = self._open.get(scope.key)
        return 0 if opened is None else opened.users

    def agent(self, scope: Scope) -> AbstractContextManager[AsyncAgent]:
        """Return the agent of a scope, which stays open as long as it is in use.

        Enter it before anything else happens.
        """
        opened = self._open.get(scope.key)
        if opened is None:
            opened = self._open[scope.key] = _Open(self._make(scope))
            self._metrics.count("banks_opened")
            self._metrics.banks_open.set(len(self._open))
        else:
            self._open.move_to_end(scope.key)
        if len(self._open) > self._most:
            unused = (key for key, entry in self._open.items() if not entry.users)
            oldest = next((key for key in unused if key != scope.key), None)
            if oldest is not None:
                del self._open[oldest]
                self._metrics.count("banks_evicted")
                self._metrics.banks_open.set(len(self._open))
        return opened
