"""The settings and the open store that the options of a command lead to.

A settings file that is merely found in the current folder may come from anybody. Only
entries known to be harmless are used from it: they run no code, send nothing and name no
file outside the folder. Everything else (`needs_consent`) waits until `memagent trust`
was run for that folder; consent is to these very entries, so a change asks anew.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from memagent.cli.frame import SETTINGS_FILE, Options, tell
from memagent.core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from memagent.build import Store
    from memagent.config import AgentSettings, ModelSettings
    from memagent.memory.bank import MemoryBank
    from memagent.memory.facade import Memory
    from memagent.state.fold import BankState


_LOCAL_EMBEDDERS: Final = frozenset({"static", "minilm", "hashing"})
"""Embedders that load nothing but what memagent brings along."""


def settings_file(options: Options) -> Path | None:
    """Return the settings file in use, if any."""
    return options.config or (SETTINGS_FILE if SETTINGS_FILE.is_file() else None)


def read_settings(options: Options) -> AgentSettings:
    """Read settings from file, variables and options. Raises `ConfigError`."""
    from memagent.config import load_settings

    file = settings_file(options)
    settings = load_settings(file)
    if file is not None and options.config is None:
        _require_consent(file)
    changes: dict[str, object] = {}
    if options.design is not None:
        changes["design"] = options.design
    if options.base_url is not None:
        changes["model"] = _model_at(options.base_url, options.model, settings)
    return settings.model_copy(update=changes)


def _model_at(base_url: str, name: str | None, settings: AgentSettings) -> ModelSettings:
    from memagent.config import ModelSettings

    model = settings.model or (ModelSettings(model=name) if name is not None else None)
    if model is None:
        raise ConfigError("--base-url needs a model: add --model openai/NAME")
    return model.model_copy(update={"base_url": base_url})


def needs_consent(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entries of a folder's settings that are not known to be harmless, by place."""
    return dict(sorted(_risky(values, folder)))


def _risky(values: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name in ("roles", "service"):
            for part, inner in _table(values, name).items():
                if name == "roles" or not isinstance(inner, int | float):
                    yield f"{name}.{part}", _without_key(inner)
        elif not _harmless(name, value, folder):
            yield name, _without_key(value)


def _harmless(name: str, value: object, folder: Path) -> bool:
    """Tell whether an entry runs no code, sends nothing and names no file elsewhere."""
    entries = _table({name: value}, name)
    if name == "design":
        return ":" not in str(value)
    if name == "embedder":
        return entries.get("type") in _LOCAL_EMBEDDERS and entries.keys() <= {"type", "dim"}
    if name == "store":
        local = entries.get("type", "sqlite") in ("sqlite", "memory")
        known = entries.keys() <= {"type", "path", "synchronous"}
        return local and known and _inside(entries.get("path"), folder)
    return name in ("recipe", "sampling")


def _inside(path: object, folder: Path) -> bool:
    """Tell whether a store's file lies in the folder or where memagent keeps its data."""
    from memagent.build import default_path

    if path is None:
        return True
    place = (folder / Path(str(path)).expanduser()).resolve()
    return any(place.is_relative_to(home) for home in (folder, default_path().parent.resolve()))


def _without_key(value: object) -> Any:
    entries = _table({"": value}, "")
    return {name: part for name, part in entries.items() if name != "api_key"} or value


def _table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = values.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _risky_entries(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
        return needs_consent(values, file.resolve().parent)
    except (OSError, ValueError):
        return {}  # `load_settings` says what is wrong with it


def _require_consent(file: Path) -> None:
    """Raise `ConfigError` unless the user trusts what the file of this folder may start."""
    risky = _risky_entries(file)
    if risky and _consents().get(str(file.resolve().parent)) != _digest(risky):
        raise ConfigError(
            f"{file} of this folder sets {', '.join(risky)}, which can run code, send "
            "memories to a server or write files elsewhere; look at it, then run "
            "`memagent trust` once in this folder, "
            f"or name the file with --config {file}"
        )


def give_consent(file: Path) -> dict[str, Any]:
    """Remember that the user trusts a folder's settings file; return what it was asked for."""
    risky = _risky_entries(file)
    consents = _consents()
    if risky:
        consents[str(file.resolve().parent)] = _digest(risky)
        place = _consent_file()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(consents, indent=1), encoding="utf-8")
    return risky


def _consents() -> dict[str, str]:
    try:
        known = json.loads(_consent_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return _table({"known": known}, "known")


def _consent_file() -> Path:
    from memagent.build import default_path

    return default_path().with_name("trusted_folders.json")


def _digest(risky: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(risky, sort_keys=True, default=str).encode()).hexdigest()


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
