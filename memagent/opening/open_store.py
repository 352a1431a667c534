"""An open store: journal, embedder, index and reranker, shared by the memories of many users.

`memagent.build.Store` adds the agents to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from memagent.config import AgentSettings, PostgresSettings, SqliteSettings, StoreSettings
from memagent.core.errors import ConfigError, check_type
from memagent.core.records import Scope
from memagent.memory.bank import MemoryBank, system_clock
from memagent.opening.parts import build_embedder, build_index, build_reranker
from memagent.protocols import Clock, Embedder, Journal, Reranker, VectorIndex
from memagent.search.pipeline import NetworkedIndex

if TYPE_CHECKING:
    from memagent.checkpoints.store import Checkpoints
    from memagent.journal.open_database import DatabaseJournal
    from memagent.journal.postgres import PostgresJournal
    from memagent.journal.proof.tips import Seal
    from memagent.journal.sqlite import SqlJournal


def default_path() -> Path:
    """Return the path of `memory.db` in the user's data directory."""
    from platformdirs import user_data_path

    return user_data_path("memagent", appauthor=False) / "memory.db"


@dataclass
class OpenStore:
    """An open store: journal, embedder and index. Close it when done."""

    settings: AgentSettings
    journal: Journal
    embedder: Embedder
    read_only: bool = False
    clock: Clock = system_clock
    make_index: Callable[[Scope], VectorIndex] | None = None
    reranker: Reranker | None = None
    checkpoints: Checkpoints | None = None
    path: str | None = None
    """The file of the memories, or the server without its credentials; None in memory."""
    _close: Callable[[], None] = field(default=lambda: None)

    @classmethod
    def open(
        cls,
        settings: AgentSettings | None = None,
        *,
        path: str | Path | None = None,
        embedder: Embedder | str | None = None,
        read_only: bool = False,
        check_embedder: bool = True,
        clock: Clock = system_clock,
    ) -> Self:
        """Open the store that the settings name; `path` and `embedder` win over them.

        `path` is a SQLite file, a `postgresql://` URL, or `":memory:"`, which keeps
        nothing. Raises `StoreLocked` when another process writes to a SQLite file, and
        `ConfigError` when another embedder embedded it; `check_embedder=False` skips
        this check, to embed the store again.
        """
        check_type("path", path, str | PathLike | None, "the path of a file, a URL or ':memory:'")
        settings = settings or AgentSettings()
        index = build_index(settings.index) if settings.index is not None else None
        reranker = build_reranker(settings.reranker) if settings.reranker is not None else None
        database = _database(settings.store, path)
        if database is None:
            from memagent.embed.static import CachedEmbedder
            from memagent.journal.in_memory import MemoryJournal

            cached = CachedEmbedder(build_embedder(embedder or settings.embedder))
            journal = MemoryJournal(clock=clock)
            return cls(settings, journal, cached, False, clock, index, reranker)
        journal = _opened(database, read_only=read_only, clock=clock)
        try:
            built = build_embedder(embedder or settings.embedder)
            # A hosted one would have to be asked for its width; not imported for the others.
            recall_dim = getattr(built, "recall_dim", None)
            if check_embedder and recall_dim is not None:
                recall_dim(journal.cache.claimed())
            chosen = _with_cache(built, journal)
            if check_embedder:
                journal.cache.claim(chosen.id, chosen.dim)
        except BaseException:
            journal.close()
            raise
        checkpoints = _checkpoints(journal, writes=check_embedder and not read_only)
        return cls(
            settings,
            journal,
            chosen,
            read_only,
            clock,
            index,
            reranker,
            checkpoints,
            _place(database),
            journal.close,
        )

    def bank(self, scope: Scope) -> MemoryBank:
        """Open the memory of one scope."""
        return MemoryBank(
            embedder=self.embedder,
            scope=scope,
            journal=self.journal,
            index=self._index(scope),
            reranker=self.reranker,
            clock=self.clock,
            read_only=self.read_only,
            checkpoints=self.checkpoints,
        )

    def _index(self, scope: Scope) -> NetworkedIndex | None:
        if self.make_index is None:
            return None
        from memagent.vectors.projection import IndexProjection

        return IndexProjection(self.make_index(scope))

    def close(self) -> None:
        """Write what is pending and release the files; harmless when repeated."""
        try:
            if self.checkpoints is not None:
                self.checkpoints.close()
        finally:
            self._close()


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


def _opened(
    database: SqliteSettings | PostgresSettings, *, read_only: bool, clock: Clock
) -> PostgresJournal | SqlJournal:
    if isinstance(database, PostgresSettings):
        return open_postgres(database, read_only=read_only, clock=clock)
    return open_sqlite(
        database.path,
        synchronous=database.synchronous,
        read_only=read_only,
        clock=clock,
        seal=seal_of(database),
    )


def _checkpoints(journal: DatabaseJournal, *, writes: bool) -> Checkpoints:
    """Return the checkpoints beside a file, or on a server."""
    from memagent.checkpoints.store import Checkpoints, FolderPlace

    if journal.backend.shared:
        from memagent.checkpoints.server import ServerPlace

        place = ServerPlace(journal.backend)
    else:
        folder = Path(f"{journal.place}.checkpoints")
        place = FolderPlace(folder, writes=writes, key=journal.backend.seal.key)
    checkpoints = Checkpoints(place, chain_at=journal.chain_at, writes=writes)
    journal.erasing = checkpoints.erasing
    return checkpoints


def _place(database: SqliteSettings | PostgresSettings) -> str:
    """Return the file, or the server without user and password."""
    if isinstance(database, SqliteSettings):
        return str((database.path or default_path()).expanduser())
    scheme, _, rest = database.url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def is_server(path: object) -> bool:
    """Return whether a path is the URL of a PostgreSQL server.

    Raises `ConfigError` for another URL.
    """
    if not isinstance(path, str) or "://" not in path:
        return False
    from memagent.journal.postgres import is_postgres_url

    if is_postgres_url(path):
        return True
    raise ConfigError(
        f"the path {path!r} is a URL; give a file, ':memory:', or a postgresql:// URL"
    )


def open_postgres(
    settings: PostgresSettings, *, read_only: bool = False, clock: Clock = system_clock
) -> PostgresJournal:
    """Open the journal on a PostgreSQL server; make its tables when absent."""
    from memagent.journal.postgres import PostgresJournal

    return PostgresJournal(
        settings.url,
        read_only=read_only,
        pool=settings.pool,
        scrub=settings.scrub,
        clock=clock,
        seal=seal_of(settings),
    )


def open_sqlite(
    path: Path | None = None,
    *,
    synchronous: Literal["FULL", "NORMAL"] = "FULL",
    read_only: bool = False,
    clock: Clock = system_clock,
    seal: Seal | None = None,
) -> SqlJournal:
    """Open the journal in a SQLite file; make it, with its directory, when absent.

    None is the default path.
    """
    from memagent.journal.proof.tips import NO_SEAL
    from memagent.journal.sqlite import SqlJournal

    return SqlJournal(
        (path or default_path()).expanduser(),
        read_only=read_only,
        synchronous=synchronous,
        clock=clock,
        seal=seal or NO_SEAL,
    )


def seal_of(database: SqliteSettings | PostgresSettings) -> Seal:
    """Return where a store's ends are noted, and the key. Raises `ConfigError`."""
    from memagent.journal.proof.tips import Seal, read_key

    key = read_key(database.key_file) if database.key_file is not None else None
    return Seal(database.tips, key)


def _with_cache(embedder: Embedder, journal: DatabaseJournal) -> Embedder:
    """Cache the embedder's vectors in memory, and in the database if it is slow."""
    from memagent.embed.static import CachedEmbedder, HashEmbedder, StaticEmbedder

    cheap = isinstance(embedder, StaticEmbedder | HashEmbedder)
    return CachedEmbedder(embedder, shared=None if cheap or journal.read_only else journal.cache)
