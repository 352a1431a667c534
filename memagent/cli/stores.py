"""The settings and the open store that the options of a command lead to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memagent.cli.frame import SETTINGS_FILE, Options, tell
from memagent.core.errors import StoreError

if TYPE_CHECKING:
    from memagent.build import Store
    from memagent.config import AgentSettings
    from memagent.memory.bank import MemoryBank
    from memagent.memory.facade import Memory
    from memagent.state.fold import BankState


def settings_file(options: Options) -> Path | None:
    """Return the settings file in use, if any."""
    return options.config or (SETTINGS_FILE if SETTINGS_FILE.is_file() else None)


def read_settings(options: Options) -> AgentSettings:
    """Read settings from file, variables and options. Raises `ConfigError`."""
    from memagent.config import load_settings

    settings = load_settings(settings_file(options))
    if options.design is None:
        return settings
    return settings.model_copy(update={"design": options.design})


def store_path(options: Options, settings: AgentSettings) -> Path | str | None:
    """Return the store's file or the URL of its server; None for a memory in memory."""
    from memagent.build import default_path, is_server
    from memagent.config import MemoryStoreSettings, PostgresSettings

    configured = settings.store if options.path is None else None
    if is_server(options.path):
        return options.path
    if isinstance(configured, PostgresSettings):
        return configured.url
    if options.path == ":memory:" or isinstance(configured, MemoryStoreSettings):
        return None
    path = options.path if options.path is not None else getattr(settings.store, "path", None)
    return (Path(path) if path is not None else default_path()).expanduser()


@contextmanager
def opened(
    options: Options,
    *,
    write: bool = False,
    make: bool = False,
    vectors: bool = False,
    any_embedder: bool = False,
) -> Generator[Store]:
    """Open the store that the options lead to, and close it on leaving.

    Without `write` it is opened for reading, which works beside a running writer.
    `make` makes a store that does not exist. Without `vectors` no embedder is loaded,
    and the store may use any; `any_embedder` accepts an embedder that differs from the
    store's. Raises `ConfigError`, `StoreLocked`, `StoreError`.
    """
    from memagent.build import open_store

    settings = read_settings(options)
    path = store_path(options, settings)
    if not make and isinstance(path, Path) and not path.exists():
        raise StoreError(
            f"there is no memory at {path}; `memagent init` or `memagent ingest` makes one, "
            "--path names another"
        )
    embeds = vectors or make
    store = open_store(
        settings if embeds else settings.model_copy(update={"index": None}),
        path=path if path is not None else ":memory:",
        embedder=options.embedder if embeds else "hashing",
        read_only=not write,
        check_embedder=embeds and not any_embedder,
    )
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_memory(
    options: Options, *, write: bool = False, make: bool = False
) -> Generator[Memory]:
    """Open the user's memory for a command that searches nothing; see `opened`."""
    from memagent.memory.facade import Memory

    scope = options.scope
    with opened(options, write=write, make=make) as store:
        yield Memory(store.bank(scope))


@asynccontextmanager
async def reading_memory(options: Options, *, vectors: bool = False) -> AsyncGenerator[Memory]:
    """Open the user's memory for reading, and warn if it is empty; see `opened`."""
    from memagent.core.recipes import BALANCED
    from memagent.memory.facade import Memory

    with opened(options, vectors=vectors) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        yield Memory(bank, recipe=store.settings.recipe or BALANCED)


async def tell_if_empty(bank: MemoryBank, store: Store) -> None:
    """Say that a user has no memories, and name users who have some."""
    if (await bank.sync()).seq:
        return
    others = [scope.user_id for scope in await store.journal.scopes()]
    names = f"; users of this store: {', '.join(others[:10])}{', ...' if others[10:] else ''}"
    tell(f"nothing is stored for user {bank.scope.user_id!r}{names if others else ''}")


def counts_of(state: BankState) -> dict[str, int]:
    """Count what a memory holds: its items, sessions, turns and journal entries."""
    active = sum(1 for _ in state.active())
    return {
        "memories": active,
        "deleted": len(state.items) - active,
        "sessions": len(state.sessions),
        "turns": len(state.turns),
        "entries": state.seq,
    }
