"""LangGraph stores for the conformance kit, ours and LangGraph's own.

Each is made empty and comes with a way to let time pass.

`python tests/kits/langgraph_stores.py` prints the table of docs/langgraph.md for the stores
whose packages are installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, cast

import numpy as np
import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph_kit import langgraph_store_faults

from memagent import Agent
from memagent.embed.static import hashed_direction
from memagent.integrations.langgraph_store import MemoryStore
from memagent.memory.bank import system_clock

DIM = 512
Made = tuple[Callable[[], BaseStore], Callable[[BaseStore, float], None] | None]
"""What makes an empty store, and what lets seconds pass for it."""


def embed(texts: list[str]) -> list[list[float]]:
    """Vectors for LangGraph's own stores."""
    words = [re.findall(r"\w+", text.lower()) for text in texts]
    return [
        np.sum([hashed_direction(word, DIM) for word in one or [""]], axis=0).tolist()
        for one in words
    ]


INDEX: Any = {"dims": DIM, "embed": embed}
"""Index configuration of LangGraph's own stores."""


@contextmanager
def ours() -> Generator[Made]:
    """`MemoryStore`, each over a fresh memory, with a clock that can be turned."""
    opened: list[Agent] = []
    ahead = [timedelta()]

    def make() -> BaseStore:
        agent = Agent(path=":memory:", user_id="ana", embedder="hashing")
        live, _ = agent._opened.parts()
        live.bank.log.clock = lambda: system_clock() + ahead[0]
        opened.append(agent)
        return MemoryStore(agent)

    def elapse(_: BaseStore, seconds: float) -> None:
        ahead[0] += timedelta(seconds=seconds)

    try:
        yield make, elapse
    finally:
        for agent in opened:
            agent.close()


@contextmanager
def in_memory() -> Generator[Made]:
    """LangGraph's InMemoryStore, which has no times to live."""
    yield lambda: InMemoryStore(index=INDEX), None


@contextmanager
def sqlite() -> Generator[Made]:
    """LangGraph's SqliteStore.

    Raises `ImportError` without its package, or where SQLite can load no extension.
    """
    import sqlite3

    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        import pysqlite3  # type: ignore[import-not-found]

        sys.modules["sqlite3"] = pysqlite3
    try:
        from langgraph.store.sqlite import SqliteStore  # type: ignore[import-not-found]

        connect: Any = cast(Any, sys.modules["sqlite3"]).connect
        opened: list[Any] = []

        def make() -> BaseStore:
            connection = connect(":memory:", check_same_thread=False, isolation_level=None)
            opened.append(connection)
            store = SqliteStore(
                connection, index=INDEX, ttl={"refresh_on_read": True, "omit_expired": True}
            )
            store.setup()
            return store

        def elapse(store: Any, seconds: float) -> None:
            store.conn.execute(
                f"UPDATE store SET expires_at = DATETIME(expires_at, '-{int(seconds)} seconds')"
            )
            store.sweep_ttl()

        yield make, elapse
        for connection in opened:
            connection.close()
    finally:
        sys.modules["sqlite3"] = sqlite3


@contextmanager
def postgres() -> Generator[Made]:
    """LangGraph's PostgresStore without an index, on a server of the tests.

    Raises `ImportError` without package or server.
    """
    import psycopg  # type: ignore[import-not-found]
    import psycopg.rows  # type: ignore[import-not-found]
    from langgraph.store.postgres import PostgresStore  # type: ignore[import-not-found]
    from postgres_kit import running_postgres

    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except pytest.skip.Exception as exc:
            raise ImportError(str(exc)) from exc

        def make() -> BaseStore:
            url = stack.enter_context(server.schema())
            connection: Any = psycopg.connect(
                url, autocommit=True, row_factory=cast("Any", psycopg.rows.dict_row)
            )
            stack.callback(connection.close)
            store = PostgresStore(connection, ttl={"refresh_on_read": True, "omit_expired": True})
            store.setup()
            return store

        def elapse(store: Any, seconds: float) -> None:
            store.conn.execute(
                f"UPDATE store SET expires_at = expires_at - interval '{int(seconds)} seconds'"
            )

        yield make, elapse


STORES = {
    "memagent": ours,
    "InMemoryStore": in_memory,
    "SqliteStore": sqlite,
    "PostgresStore": postgres,
}
SEARCHES = {"memagent", "InMemoryStore", "SqliteStore"}


def faults_of(name: str) -> dict[str, str | None]:
    """Return the faults that the kit finds in a store.

    Raises `ImportError` where it cannot be made here.
    """
    with STORES[name]() as (make, elapse):
        return asyncio.run(langgraph_store_faults(make, searches=name in SEARCHES, elapse=elapse))


def main() -> None:
    """Print the table, and every fault on standard error."""
    found: dict[str, dict[str, str | None]] = {}
    for name in STORES:
        with contextlib.suppress(ImportError):
            found[name] = faults_of(name)
    sys.stdout.write(f"| promise | {' | '.join(found)} |\n|---|{'---|' * len(found)}\n")
    for promise in found["memagent"]:
        cells = [
            "-" if promise not in one else "yes" if one[promise] is None else "no"
            for one in found.values()
        ]
        sys.stdout.write(f"| {promise} | {' | '.join(cells)} |\n")
    for name, faults in found.items():
        for promise, fault in faults.items():
            if fault is not None:
                sys.stderr.write(f"{name}: {promise}: {' '.join(fault.split())[:200]}\n")


if __name__ == "__main__":
    main()
