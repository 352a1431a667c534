"""The composition root: the only place that turns settings into objects.

A `Store` owns resources (the journal's database, its cache of vectors) and may serve
many users; `Store.agent` builds an agent for one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from memagent.async_agent import AsyncAgent
from memagent.config import (
    AgentSettings,
    CrossEncoderSettings,
    EmbedderSettings,
    HashingEmbedderSettings,
    MiniLMEmbedderSettings,
    ModelSettings,
    PluginEmbedderSettings,
    PostgresSettings,
    QdrantSettings,
    RerankerSettings,
    SentenceTransformerSettings,
    SqliteSettings,
    StaticEmbedderSettings,
    StoreSettings,
)
from memagent.config import load_settings as load_settings
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope
from memagent.designs.base import MemoryDesign
from memagent.memory.bank import MemoryBank, system_clock
from memagent.plugins import available, load
from memagent.protocols import ChatModel, Clock, Embedder, Journal, Reranker, VectorIndex

if TYPE_CHECKING:
    from memagent.graphs.state import Tool
    from memagent.journal.database import DatabaseJournal
    from memagent.journal.postgres.journal import PostgresJournal
    from memagent.journal.sqlite.journal import SqlJournal

EMBEDDERS: dict[str, EmbedderSettings] = {
    "static": StaticEmbedderSettings(),
    "hashing": HashingEmbedderSettings(),
    "minilm": MiniLMEmbedderSettings(),
}
"""Embedders that need no settings, by name."""


class NoModel:
    """Stands where no language model is configured; any call says so."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Raises `ConfigError`."""
        raise ConfigError(
            f"the role {request.role.value!r} needs a language model and none is configured; pass Agent(model='openai/gpt-4o-mini') or "
            'another litellm name, and run  pip install "memagent[llm]"'
        )


def default_path() -> Path:
    """`memory.db` in the user's data directory."""
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
        """The memory of one scope."""
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
        """The agent of one scope; arguments win over the settings."""
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
    """Open the store the settings name; `path` and `embedder` win over them.

    `path` is a SQLite file, a `postgresql://` URL, or `":memory:"`, which keeps
    nothing. Raises `StoreLocked` when another process writes to a SQLite file,
    `ConfigError` when it was embedded by another embedder (skipped with
    `check_embedder=False`, for embedding it again).
    """
    settings = settings or AgentSettings()
    index = build_index(settings.index) if settings.index is not None else None
    reranker = build_reranker(settings.reranker) if settings.reranker is not None else None
    kept = _kept_in(settings.store, path)
    if kept is None:
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
        open_postgres(kept, read_only=read_only, clock=clock)
        if isinstance(kept, PostgresSettings)
        else open_sqlite(kept.path, synchronous=kept.synchronous, read_only=read_only, clock=clock)
    )
    try:
        chosen = _with_cache(build_embedder(embedder or settings.embedder), journal)
        if check_embedder:
            journal.claim_embedder(chosen.id, chosen.dim)
    except BaseException:
        journal.close()
        raise
    return Store(settings, journal, chosen, read_only, clock, index, reranker, journal.close)


def _kept_in(
    store: StoreSettings, path: str | Path | None
) -> SqliteSettings | PostgresSettings | None:
    """The settings of the database, None for a memory that is not kept; the rest of the
    settings' own holds for a path of their kind.
    """
    if path is None:
        return store if isinstance(store, SqliteSettings | PostgresSettings) else None
    if path == ":memory:":
        return None
    if is_server(path):
        same_kind = isinstance(store, PostgresSettings)
        return (
            store.model_copy(update={"url": str(path)})
            if same_kind
            else PostgresSettings(url=str(path))
        )
    return (store if isinstance(store, SqliteSettings) else SqliteSettings()).model_copy(
        update={"path": Path(path)}
    )


def is_server(path: object) -> bool:
    """Whether what was given as a path is the URL of a PostgreSQL server."""
    if not isinstance(path, str) or "://" not in path:
        return False
    from memagent.journal.postgres.engine import is_postgres_url

    return is_postgres_url(path)


def open_postgres(
    settings: PostgresSettings, *, read_only: bool = False, clock: Clock = system_clock
) -> PostgresJournal:
    """The journal on a PostgreSQL server, its tables made when absent."""
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
    """The journal in a SQLite file, made with its directory when absent; None is the default path."""
    from memagent.journal.sqlite.journal import SqlJournal

    return SqlJournal(
        (path or default_path()).expanduser(),
        read_only=read_only,
        synchronous=synchronous,
        clock=clock,
    )


def _with_cache(embedder: Embedder, journal: DatabaseJournal) -> Embedder:
    """The embedder with vectors kept in memory, and in the database when making one
    costs more than reading one.
    """
    from memagent.embed.cached import CachedEmbedder
    from memagent.embed.hashing import HashEmbedder
    from memagent.embed.static import StaticEmbedder

    cheap = isinstance(embedder, StaticEmbedder | HashEmbedder)
    return CachedEmbedder(embedder, shared=None if cheap or journal.read_only else journal.cache)


@asynccontextmanager
async def open_agent(
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
    """An `AsyncAgent` for one user, closed on leaving the block."""
    store = open_store(settings, path=path, embedder=embedder, read_only=read_only)
    try:
        yield store.agent(Scope(user_id=user_id), model=model, design=design, tools=tools)
    finally:
        store.close()


def build_embedder(choice: Embedder | str | EmbedderSettings) -> Embedder:
    """An embedder from an object, a name (`static`, `minilm`, `hashing`, a plug-in's) or settings."""
    if isinstance(choice, str):
        choice = EMBEDDERS.get(choice) or PluginEmbedderSettings(name=choice)
    if not isinstance(
        choice,
        StaticEmbedderSettings
        | HashingEmbedderSettings
        | MiniLMEmbedderSettings
        | SentenceTransformerSettings
        | PluginEmbedderSettings,
    ):
        return _checked_embedder(choice, "the embedder")
    match choice:
        case PluginEmbedderSettings():
            name, options = choice.name, choice.options
        case SentenceTransformerSettings():
            name, options = choice.type, {"model": choice.model, "offline": choice.offline}
        case HashingEmbedderSettings():
            name, options = choice.type, {"dim": choice.dim}
        case _:
            name, options = choice.type, {}
    made = cast("Callable[..., object]", load("embedders", name))(**options)
    return _checked_embedder(made, f"what embedder plug-in {name!r} gave")


def _checked_embedder(made: object, what: str) -> Embedder:
    if not isinstance(made, Embedder):
        raise ConfigError(f"{what} is a {type(made).__name__}; an embedder has id, dim and embed()")
    return made


def build_reranker(choice: Reranker | RerankerSettings) -> Reranker:
    """A reranker from an object or from settings.

    Raises `ConfigError` for what is none.
    """
    if isinstance(choice, Reranker):
        return choice
    if isinstance(choice, CrossEncoderSettings):
        name, options = choice.type, {"model": choice.model, "offline": choice.offline}
    else:
        name, options = choice.name, choice.options
    made = cast("Callable[..., object]", load("rerankers", name))(**options)
    if not isinstance(made, Reranker):
        raise ConfigError(
            f"what reranker plug-in {name!r} gave is a {type(made).__name__}; a reranker has id and score()"
        )
    return made


def build_model(choice: ChatModel | str | None, settings: AgentSettings) -> ChatModel | None:
    """The chat model of an agent with its retries and budget, roles routed; None when
    nothing is configured.
    """
    if choice is not None and not isinstance(choice, str):
        return choice
    base = settings.model
    if choice is not None:
        base = (
            base.model_copy(update={"model": choice})
            if base is not None
            else ModelSettings(model=choice)
        )
    if base is None:
        if settings.roles:
            raise ConfigError(
                "settings name models for roles but no `model` for the others; set model.model"
            )
        return None
    model = _configured(base)
    if not settings.roles:
        return model
    from memagent.llm.wrappers import RoutedModel

    return RoutedModel(
        {role: _configured(one) for role, one in settings.roles.items()}, default=model
    )


def _plugged_in(choice: str) -> ChatModel | None:
    """The model that a plug-in makes of "name:rest" (`hf:runs/first/best`), or None
    when no plug-in has that name.
    """
    name, colon, rest = choice.partition(":")
    if not colon or not rest or name == "litellm" or name not in available("models"):
        return None
    made: object = cast("Any", load("models", name))(rest)
    if not isinstance(made, ChatModel):
        raise ConfigError(
            f"model plug-in {name!r} made {type(made).__name__}, which has no complete(request)"
        )
    return made


def _configured(settings: ModelSettings) -> ChatModel:
    from memagent.llm.wrappers import BudgetedModel, RetryingModel

    model = _plugged_in(settings.model) or _litellm(settings)
    if (settings.max_calls, settings.max_tokens, settings.max_usd) != (None, None, None):
        model = BudgetedModel(
            model,
            max_calls=settings.max_calls,
            max_tokens=settings.max_tokens,
            max_usd=settings.max_usd,
        )
    return RetryingModel(model, attempts=settings.attempts)


def _litellm(settings: ModelSettings) -> ChatModel:
    from memagent.llm.litellm_model import LiteLLMModel

    return LiteLLMModel(
        settings.model,
        api_base=settings.api_base,
        api_key=settings.api_key,
        timeout_s=settings.timeout_s,
        extra=settings.extra,
    )


def build_design(choice: MemoryDesign | str, *, has_model: bool) -> MemoryDesign:
    """A design from an object or a name; `auto` goes by whether there is a model."""
    if isinstance(choice, MemoryDesign):
        design = choice
    else:
        name = ("memory_r2" if has_model else "verbatim") if choice == "auto" else choice
        found = load("designs", name)
        if not isinstance(found, MemoryDesign):
            raise ConfigError(f"design {name!r} is a {type(found).__name__}, not a MemoryDesign")
        design = found
    if design.needs_model and not has_model:
        raise ConfigError(
            f"design {design.name!r} needs a language model and none is configured; pass model='provider/name', or use design='verbatim'"
        )
    return design


def prompt_set_digest(design: MemoryDesign | str) -> str:
    """One digest (64 hex digits) over the names and digests of all prompts a design
    uses; it changes with any word of any of them.

    A design without prompts has the digest of the empty set. Raises `UnknownPlugin` for
    an unknown name.
    """
    found = build_design(design, has_model=True)
    lines = (f"{name} {digest}\n" for name, digest in found.prompt_digests.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def build_index(settings: QdrantSettings) -> Callable[[Scope], VectorIndex]:
    """What makes the networked index of a scope."""
    factory = cast("Any", load("indexes", settings.type))

    def make(scope: Scope) -> VectorIndex:
        return cast(
            "VectorIndex",
            factory.connect(
                settings.url, api_key=settings.api_key, collection=settings.collection, scope=scope
            ),
        )

    return make
