"""A pytest plugin that puts `MemoryStore` in the place of LangGraph's own stores.

`scripts/langgraph_store_tests.py` runs LangGraph's own store tests with it, unchanged:
what they import as `InMemoryStore`, `SqliteStore`, `PostgresStore` or an asynchronous
sister of these is memagent's store over a memory of its own, in the same place: in
memory, in the named file, or in the named PostgreSQL database. Outcomes go to the file
that $LANGGRAPH_OUTCOMES names, a JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import finalize

import pytest

from memagent import Agent
from memagent.core.errors import ConfigError
from memagent.integrations.langgraph_store import MemoryStore, langchain_embedder

OUTCOMES_VARIABLE = "LANGGRAPH_OUTCOMES"
STORES = {
    "langgraph.store.memory": ("InMemoryStore",),
    "langgraph.store.sqlite": ("SqliteStore", "AsyncSqliteStore"),
    "langgraph.store.sqlite.aio": ("AsyncSqliteStore",),
    "langgraph.store.postgres": ("PostgresStore", "AsyncPostgresStore"),
}
opened = 0
"""The number of stores opened so far; a test that opens none is not about ours."""


class SwappedStore(MemoryStore):
    """A `MemoryStore` that opens its memory by the arguments of LangGraph's stores."""

    MIGRATIONS: tuple[str, ...] = ()
    """PostgresStore's fixture edits its own; there is nothing to edit here."""

    def __init__(
        self, *, place: str = ":memory:", index: Any = None, ttl: Any = None, **_: Any
    ) -> None:
        global opened
        opened += 1
        index = (
            {**index, "fields": index.get("fields") or index.get("text_fields")} if index else None
        )
        embedder = langchain_embedder(index) if index else "hashing"
        self.place = place
        self.owner = Agent(path=place, user_id="ana", embedder=embedder)
        finalize(self, self.owner.close)
        # the sweeper is this class's own, and has no interval
        expiry: Any = {name: ttl[name] for name in ttl if "sweep" not in name} if ttl else None
        try:
            super().__init__(self.owner, index=index, ttl=expiry)
        except ConfigError:
            self.owner.close()
            raise

    @classmethod
    @contextmanager
    def from_conn_string(cls, place: str, **options: Any) -> Iterator[SwappedStore]:
        store = cls(place=place, **options)
        try:
            yield store
        finally:
            store.owner.close()

    def setup(self) -> None:
        """Do nothing: opening a memory brings its tables up to date."""

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """Give the database itself, where PostgresStore's tests reach for their tables."""
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.place, autocommit=True) as connection:
            yield connection.cursor(row_factory=dict_row)

    def start_ttl_sweeper(self) -> None:
        """Do nothing: expired documents are not shown, swept or not."""

    def stop_ttl_sweeper(self) -> None:
        """Do nothing, as nothing was started."""


class AsyncSwappedStore(SwappedStore):
    """The same, with the calls awaited that LangGraph's asynchronous stores await."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, place: str, **options: Any) -> AsyncIterator[Any]:
        store = await asyncio.to_thread(partial(cls, place=place, **options))
        try:
            yield store
        finally:
            await asyncio.to_thread(store.owner.close)

    async def setup(self) -> None:
        """Do nothing."""

    @asynccontextmanager
    async def _cursor(self) -> AsyncIterator[Any]:
        import psycopg
        from psycopg.rows import dict_row

        async with await psycopg.AsyncConnection.connect(self.place, autocommit=True) as connection:
            yield connection.cursor(row_factory=dict_row)

    async def start_ttl_sweeper(self) -> None:
        """Do nothing."""

    async def stop_ttl_sweeper(self) -> None:
        """Do nothing."""

    async def sweep_ttl(self) -> int:
        return await self.asweep_ttl()


def pytest_configure(config: pytest.Config) -> None:
    for module, names in STORES.items():
        loaded = import_module(module)
        for name in names:
            setattr(loaded, name, AsyncSwappedStore if name.startswith("Async") else SwappedStore)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = opened
    result = yield
    _write({"test": item.nodeid, "ours": opened > before})
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else str(report.longrepr or "")
        _write({"test": report.nodeid, "outcome": report.outcome, "message": message[:500]})


def _write(row: dict[str, Any]) -> None:
    with Path(os.environ[OUTCOMES_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
