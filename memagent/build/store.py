"""An open store: journal, embedder and index, shared by the agents of many users."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from memagent.async_agent import AsyncAgent
from memagent.build.parts import (
    NoModel,
    build_design,
    build_embedder,
    build_index,
    build_model,
    build_reranker,
)
from memagent.config import AgentSettings, PostgresSettings, SqliteSettings, StoreSettings
from memagent.core.records import Scope
from memagent.designs.base import MemoryDesign
from memagent.memory.bank import MemoryBank, system_clock
from memagent.protocols import ChatModel, Clock, Embedder, Journal, Reranker, VectorIndex

if TYPE_CHECKING:
    from memagent.graphs.state import Tool
    from memagent.journal.database import DatabaseJournal
    from memagent.journal.postgres.journal import PostgresJournal
    from memagent.journal.sqlite.journal import SqlJournal


def default_path() -> Path:
    """Return the path of `memory.db` in the user's data directory."""
    from platformdirs import user_data_path

    return user_data_path("memagent", appauthor=False) / "memory.db"


@dataclass(slots=True)
class Store:
    """An open store: journal, embedder and index, shared by the agents of many users.

    Close it when done.
    """

    settings: AgentSettings
    journal: Journal
    embedder: Embedder
    read_only: bool = False
    clock: Clock = system_clock
    make_index: Callable[[Scope], VectorIndex] | None = None
    reranker: Reranker | None = None
    _close: Callable[[], None] = field(default=lambda: None)

    def bank(self, scope: Scope) -> MemoryBank:
        """Open the memory of one scope."""
        return MemoryBank(
            embedder=self.embedder,
            scope=scope,
            journal=self.journal,
            index=self.make_index(scope) if self.make_index is not None else None,
            reranker=self.reranker,
            clock=self.clock,
            read_only=self.read_only,
        )

    def agent(
        self,
        scope: Scope,
        *,
        model: ChatModel | str | None = None,
        design: MemoryDesign | str | None = None,
        tools: Sequence[Tool] = (),
    ) -> AsyncAgent:
        """Build the agent of one scope; arguments win over the settings."""
        chat = build_model(model, self.settings)
        return AsyncAgent(
            design=build_design(design or self.settings.design, has_model=chat is not None),
            model=chat or NoModel(),
            bank=self.bank(scope),
            clock=self.clock,
            tools=tuple(tools),
            sampling=self.settings.sampling,
            tracing=self.settings.tracing,
            capture_content=self.settings.capture_content,
            recipe=self.settings.recipe,
        )

    def close(self) -> None:
        """Write what is pending and release the files; harmless when repeated."""
        self._close()


def open_store(
    settings: AgentSettings | None = None,
    *,
    path: str | Path | None = None,
    embedder: Embedder | str | None = None,
    read_only: bool = False,
    check_embedder: bool = True,
    clock: Clock = system_clock,
) -> Store:
    """Open the store that the settings name; `path` and `embedder` win over them.

    `path` is a SQLite file, a `postgresql://` URL, or `":memory:"`, which keeps
    nothing. Raises `StoreLocked` when another process writes to a SQLite file, and
    `ConfigError` when another embedder embedded it; `check_embedder=False` skips this
    check, to embed the store again.
    """
    settings = settings or AgentSettings()
    index = build_index(settings.index) if settings.index is not None else None
    reranker = build_reranker(settings.reranker) if settings.reranker is not None else None
    database = _database(settings.store, path)
    if database is None:
        from memagent.embed.cached import CachedEmbedder
        from memagent.journal.in_memory import MemoryJournal

        cached = CachedEmbedder(build_embedder(embedder or settings.embedder))
        return Store(
            settings,
            MemoryJournal(clock=clock),
            cached,
            clock=clock,
            make_index=index,
            reranker=reranker,
        )
    journal = (
        open_postgres(database, read_only=read_only, clock=clock)
        if isinstance(database, PostgresSettings)
        else open_sqlite(
            database.path, synchronous=database.synchronous, read_only=read_only, clock=clock
        )
    )
    try:
        chosen = _with_cache(build_embedder(embedder or settings.embedder), journal)
        if check_embedder:
            journal.claim_embedder(chosen.id, chosen.dim)
    except BaseException:
        journal.close()
        raise
    return Store(settings, journal, chosen, read_only, clock, index, reranker, journal.close)


def _database(
    store: StoreSettings, path: str | Path | None
) -> SqliteSettings | PostgresSettings | None:
    """Return the settings of the database, None for a memory that stays in the process.

    A path replaces the settings' own; their other fields hold for a path of their kind.
    """
    if path is None:
        return store if isinstance(store, SqliteSettings | PostgresSettings) else None
    if path == ":memory:":
        return None
    if not is_server(path):
        sqlite = store if isinstance(store, SqliteSettings) else SqliteSettings()
        return sqlite.model_copy(update={"path": Path(path)})
    if isinstance(store, PostgresSettings):
        return store.model_copy(update={"url": str(path)})
    return PostgresSettings(url=str(path))


def is_server(path: object) -> bool:
    """Return whether a path is the URL of a PostgreSQL server."""
    if not isinstance(path, str) or "://" not in path:
        return False
    from memagent.journal.postgres.engine import is_postgres_url

    return is_postgres_url(path)


def open_postgres(
    settings: PostgresSettings, *, read_only: bool = False, clock: Clock = system_clock
) -> PostgresJournal:
    """Open the journal on a PostgreSQL server; make its tables when absent."""
    from memagent.journal.postgres.journal import PostgresJournal

    return PostgresJournal(
        settings.url, read_only=read_only, pool=settings.pool, scrub=settings.scrub, clock=clock
    )


def open_sqlite(
    path: Path | None = None,
    *,
    synchronous: Literal["FULL", "NORMAL"] = "FULL",
    read_only: bool = False,
    clock: Clock = system_clock,
) -> SqlJournal:
    """Open the journal in a SQLite file; make it, with its directory, when absent.

    None is the default path.
    """
    from memagent.journal.sqlite.journal import SqlJournal

    return SqlJournal(
        (path or default_path()).expanduser(),
        read_only=read_only,
        synchronous=synchronous,
        clock=clock,
    )


def _with_cache(embedder: Embedder, journal: DatabaseJournal) -> Embedder:
    """Cache the embedder's vectors in memory, and in the database if it is slow."""
    from memagent.embed.cached import CachedEmbedder
    from memagent.embed.hashing import HashEmbedder
    from memagent.embed.static import StaticEmbedder

    cheap = isinstance(embedder, StaticEmbedder | HashEmbedder)
    return CachedEmbedder(embedder, shared=None if cheap or journal.read_only else journal.cache)


@asynccontextmanager
async def open_agent(  # noqa: PLR0913 (the front door names its options)
    *,
    user_id: str = "default",
    model: ChatModel | str | None = None,
    path: str | Path | None = None,
    design: MemoryDesign | str | None = None,
    embedder: Embedder | str | None = None,
    tools: Sequence[Tool] = (),
    read_only: bool = False,
    settings: AgentSettings | None = None,
) -> AsyncGenerator[AsyncAgent]:
    """Open an `AsyncAgent` for one user, and close its store on leaving the block."""
    store = open_store(settings, path=path, embedder=embedder, read_only=read_only)
    try:
        yield store.agent(Scope(user_id=user_id), model=model, design=design, tools=tools)
    finally:
        store.close()
