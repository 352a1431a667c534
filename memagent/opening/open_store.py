"""The parts that settings name, and the open store that they make up.

The builders come first: `build_model`, `build_embedder` and so on make models, embedders,
rerankers, designs and indexes from objects, names or settings. An `OpenStore` is a
journal, an embedder, an index and a reranker, shared by the memories of many users;
`memagent.build.Store` adds the agents to it. Last come the functions that open its
journal, such as `open_sqlite`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import getattr_static
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

from memagent.config import (
    AgentSettings,
    EmbedderSettings,
    HashingEmbedderSettings,
    LiteLLMEmbedderSettings,
    MiniLMEmbedderSettings,
    ModelSettings,
    PluginSettings,
    PostgresSettings,
    QdrantSettings,
    RerankerSettings,
    Settings,
    SqliteSettings,
    StaticEmbedderSettings,
    StoreSettings,
)
from memagent.core import Later
from memagent.core.errors import ConfigError, check_type
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope
from memagent.designs.base import MemoryDesign
from memagent.memory.bank import MemoryBank, system_clock
from memagent.protocols import ChatModel, Clock, Embedder, Journal, Reranker, VectorIndex
from memagent.search.pipeline import NetworkedIndex

if TYPE_CHECKING:
    from memagent import plugins
else:
    plugins = Later("memagent.plugins")

T = TypeVar("T")
EMBEDDERS: dict[str, EmbedderSettings] = {
    "static": StaticEmbedderSettings(),
    "hashing": HashingEmbedderSettings(),
    "minilm": MiniLMEmbedderSettings(),
}
"""Embedders that need no settings, by name."""


class NoModel:
    """A stand-in for a language model that is not configured; every call is refused."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Raise `ConfigError`."""
        raise ConfigError(
            f"the role {request.role.value!r} needs a language model and none is configured; "
            "pass Agent(model='openai/gpt-4o-mini') or "
            'another litellm name, and run  pip install "memagent[llm]"'
        )


def build_embedder(choice: Embedder | str | EmbedderSettings) -> Embedder:
    """Build an embedder from an object, settings, or a name.

    Names are `static`, `minilm`, `hashing`, those of plug-ins, and litellm's, such as
    `openai/text-embedding-3-small`.
    """
    if isinstance(choice, str):
        choice = embedder_settings(choice)
    if not isinstance(choice, Settings):
        return _checked_embedder(choice, type(choice).__name__)
    if isinstance(choice, LiteLLMEmbedderSettings):
        from memagent.embed.local_models import LiteLLMEmbedder

        return LiteLLMEmbedder(**choice.model_dump(exclude={"type"}))
    name, options = _plugin(choice)
    built = cast("Callable[..., object]", plugins.load("embedders", name))(**options)
    return _checked_embedder(built, f"what embedder plug-in {name!r} gave")


def embedder_settings(name: str) -> EmbedderSettings:
    """Return the settings that the name of an embedder stands for."""
    if "/" in name and ":" not in name.partition("/")[0]:
        return LiteLLMEmbedderSettings(model=name)
    return EMBEDDERS.get(name) or PluginSettings(name=name)


# What an embedder has, with a hint.
_EMBEDDER_PARTS: Final = {
    "id": "`id`, a stable name of the model that is part of every cache key, e.g. id = 'e5-small'",
    "dim": "`dim`, the number of dimensions of its vectors, e.g. dim = 384",
    "embed": "`async def embed(self, texts)`, which returns one unit vector for each text",
}


def _checked_embedder(value: object, what: str) -> Embedder:
    """Return an embedder. Raises `ConfigError` that names what it lacks."""
    # Statically first: the width of a hosted model is a question to its server.
    missing = [
        part
        for part in _EMBEDDER_PARTS
        if getattr_static(value, part, None) is None and not hasattr(value, part)
    ]
    if not missing:
        return cast("Embedder", value)
    if len(missing) == len(_EMBEDDER_PARTS):
        raise ConfigError(f"{what} is no embedder; an embedder has id, dim and embed()")
    add = "; ".join(_EMBEDDER_PARTS[part] for part in missing)
    raise ConfigError(f"{what} has no {' and no '.join(missing)}: add {add}")


def build_reranker(choice: Reranker | RerankerSettings) -> Reranker:
    """Build a reranker from an object or from settings. Raises `ConfigError` for neither."""
    if isinstance(choice, Reranker):
        return choice
    name, options = _plugin(choice)
    built = cast("Callable[..., object]", plugins.load("rerankers", name))(**options)
    what = f"what reranker plug-in {name!r} gave"
    return _checked(built, Reranker, what, "a reranker has id and score()")


def _plugin(settings: EmbedderSettings | RerankerSettings) -> tuple[str, dict[str, Any]]:
    """Return the plug-in that settings name, and its keywords."""
    if isinstance(settings, PluginSettings):
        return settings.name, settings.options
    return settings.type, settings.model_dump(exclude={"type"})


def _checked(value: object, protocol: type[T], what: str, rule: str) -> T:
    if not isinstance(value, protocol):
        raise ConfigError(f"{what} is a {type(value).__name__}; {rule}")
    return value


def build_model(
    choice: ChatModel | str | None,
    settings: AgentSettings,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
) -> ChatModel | None:
    """Build the chat model of an agent, with retries, budget and a model for each role.

    `base_url` and `api_key` win over the settings. Returns None when nothing is
    configured. Raises `ConfigError` for a `base_url` or `api_key` without a name, and for
    an object that is no model.
    """
    given = {"base_url": base_url, "api_key": api_key}
    given = {name: value for name, value in given.items() if value is not None}
    if choice is not None and not isinstance(choice, str):
        if given:
            raise ConfigError(
                "base_url and api_key belong to a model given by name, such as "
                "model='openai/my-model'; this model is an object and has its own"
            )
        rule = "give a name such as 'openai/gpt-4o-mini', or an object with complete(request)"
        return _checked(choice, ChatModel, "the model", rule)
    base = settings.model
    if choice is not None:
        base = (base or ModelSettings(model=choice)).model_copy(update={"model": choice})
    if base is None:
        if given:
            raise ConfigError("base_url and api_key need a model: add model='openai/<its name>'")
        if settings.roles:
            raise ConfigError(
                "settings name models for roles but no `model` for the others; set model.model"
            )
        return None
    model = _configured(base.model_copy(update=given))
    if not settings.roles:
        return model
    from memagent.llm.wrappers import RoutedModel

    routes = {role: _configured(own) for role, own in settings.roles.items()}
    return RoutedModel(routes, default=model)


def _plugged_in(choice: str) -> ChatModel | None:
    """Build the model of a plug-in from "name:rest", such as `hf:runs/first/best`.

    Returns None when no plug-in has that name. Raises `ConfigError` for the path of a memory.
    """
    if choice.startswith(":") or choice.endswith((".db", ".sqlite", ".sqlite3")):
        raise ConfigError(
            f"{choice!r} is the path of a memory, not the name of a model: pass path={choice!r}"
        )
    name, colon, rest = choice.partition(":")
    if not colon or not rest or name == "litellm" or name not in plugins.available("models"):
        return None
    model: object = cast("Any", plugins.load("models", name))(rest)
    if not isinstance(model, ChatModel):
        raise ConfigError(
            f"model plug-in {name!r} made {type(model).__name__}, which has no complete(request)"
        )
    return model


def _configured(settings: ModelSettings) -> ChatModel:
    from memagent.llm.wrappers import BudgetedModel, RedactingModel, RetryingModel

    model = _plugged_in(settings.model)
    if model is None:
        from memagent.llm.litellm_model import LiteLLMModel

        names = {"base_url", "api_key", "timeout_s", "extra"}
        model = LiteLLMModel(settings.model, **settings.model_dump(include=names))
    budget = settings.model_dump(include={"max_calls", "max_tokens", "max_usd"})
    if any(limit is not None for limit in budget.values()):
        model = BudgetedModel(model, **budget)
    retrying = RetryingModel(model, attempts=settings.attempts)
    if not settings.redact:
        return retrying
    return RedactingModel(retrying)


def build_design(choice: MemoryDesign | str, *, has_model: bool) -> MemoryDesign:
    """Build a design from an object or a name; `auto` goes by whether there is a model."""
    if choice == "auto":
        choice = "memory_r2" if has_model else "learned"
    design = plugins.load("designs", choice) if isinstance(choice, str) else choice
    if not isinstance(design, MemoryDesign):
        raise ConfigError(f"design {choice!r} is a {type(design).__name__}, not a MemoryDesign")
    if design.needs_model and not has_model:
        raise ConfigError(
            f"design {design.name!r} needs a language model and none is configured; "
            "pass model='provider/name', or use design='verbatim'"
        )
    return design


def prompt_set_digest(design: MemoryDesign | str) -> str:
    """Return one digest (64 hex digits) over all prompts that a design uses.

    It changes with any word of any prompt; a design without prompts has the digest of
    the empty set. Raises `UnknownPlugin` for an unknown name.
    """
    digests = build_design(design, has_model=True).prompt_digests
    lines = (f"{name} {digest}\n" for name, digest in digests.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def build_index(settings: QdrantSettings) -> Callable[[Scope], VectorIndex]:
    """Return a function that makes the networked index of a scope."""
    factory = cast("Any", plugins.load("indexes", settings.type))
    return lambda scope: factory.connect(
        settings.url, api_key=settings.api_key, collection=settings.collection, scope=scope
    )


if TYPE_CHECKING:
    from memagent.checkpoints.store import Checkpoints
    from memagent.journal.open_database import DatabaseJournal
    from memagent.journal.postgres import PostgresJournal
    from memagent.journal.proof.audit import Seal
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
        from memagent.embed.static import CachedEmbedder, HashEmbedder, StaticEmbedder

        check_type("path", path, str | PathLike | None, "the path of a file, a URL or ':memory:'")
        settings = settings or AgentSettings()
        index = build_index(settings.index) if settings.index is not None else None
        reranker = build_reranker(settings.reranker) if settings.reranker is not None else None
        database = _database(settings.store, path)
        if database is None:
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
            # The database keeps the vectors of a slow one.
            keeps = not read_only and not isinstance(built, StaticEmbedder | HashEmbedder)
            chosen = CachedEmbedder(built, shared=journal.cache if keeps else None)
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
    from memagent.journal.proof.audit import NO_SEAL
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
    from memagent.journal.proof.audit import Seal, read_key

    key = read_key(database.key_file) if database.key_file is not None else None
    return Seal(database.tips, key)
