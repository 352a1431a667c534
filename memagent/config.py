"""Settings, as frozen records; no logic. Units are in the names.

`load_settings` is the one place where a file or the environment is read: a TOML file
(`memagent.toml`), then variables that start with `MEMAGENT_` (`MEMAGENT_STORE__PATH`,
`MEMAGENT_MODEL__MODEL`), which win. Unknown keys are errors.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import ConfigDict, Field, ValidationError, model_validator

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, Sampling
from memagent.core.recipes import RecipeField
from memagent.core.records import Documented


class Settings(Documented):
    """Base of all settings: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class HostedSettings(Settings):
    """Base of the settings of a model behind an address."""

    base_url: str | None = None
    """Address of the model's server, for one that is not the provider's own, such as
    `http://127.0.0.1:8000/v1`. Files may also say `api_base`, its earlier name.
    """
    api_key: str | None = Field(default=None, repr=False)
    """Key; by default the provider's own environment variable is used by litellm."""

    @model_validator(mode="before")
    @classmethod
    def _earlier_name(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "api_base" not in values:
            return values  # pyright: ignore[reportUnknownVariableType]
        given = cast("dict[str, Any]", values)
        rest = {name: value for name, value in given.items() if name != "api_base"}
        return {"base_url": given["api_base"], **rest}


class StaticEmbedderSettings(Settings):
    """The shipped table: no download, no torch."""

    type: Literal["static"] = "static"


class HashingEmbedderSettings(Settings):
    """Deterministic hashing; for tests."""

    type: Literal["hashing"] = "hashing"
    dim: Annotated[int, Field(ge=8)] = 256


class MiniLMEmbedderSettings(Settings):
    """The packaged all-MiniLM-L6-v2 (extra `minilm`)."""

    type: Literal["minilm"] = "minilm"


class SentenceTransformerSettings(Settings):
    """Any sentence-transformers model (extra `embeddings`)."""

    type: Literal["sentence-transformers"] = "sentence-transformers"
    model: str
    """Hub id or local folder."""
    offline: bool = False


class LiteLLMEmbedderSettings(HostedSettings):
    """An embedding model behind litellm (extra `llm`)."""

    type: Literal["litellm"] = "litellm"
    model: str
    """litellm's name, for example `openai/text-embedding-3-small` or
    `ollama/nomic-embed-text`.
    """
    dim: Annotated[int, Field(ge=1)] | None = None
    """Width of its vectors; None asks the model, once a store."""
    timeout_s: Annotated[float, Field(gt=0)] = 30.0
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Passed to the provider as it is, such as `{"dimensions": 512}`."""


class PluginSettings(Settings):
    """An embedder or a reranker from a plug-in, called with `options`.

    `name` is an entry point's, or `package.module:attribute`.
    """

    type: Literal["plugin"] = "plugin"
    name: str
    options: dict[str, Any] = Field(default_factory=dict[str, Any])


EmbedderSettings = Annotated[
    StaticEmbedderSettings
    | HashingEmbedderSettings
    | MiniLMEmbedderSettings
    | SentenceTransformerSettings
    | LiteLLMEmbedderSettings
    | PluginSettings,
    Field(discriminator="type"),
]


class CrossEncoderSettings(Settings):
    """A sentence-transformers cross-encoder (extra `embeddings`)."""

    type: Literal["cross-encoder"] = "cross-encoder"
    model: str
    """Hub id or local folder."""
    offline: bool = False


RerankerSettings = Annotated[CrossEncoderSettings | PluginSettings, Field(discriminator="type")]


class ModelSettings(HostedSettings):
    """A chat model behind litellm (extra `llm`)."""

    model: str
    """litellm's name, for example `openai/gpt-4o-mini` or `ollama_chat/qwen3`."""
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    attempts: Annotated[int, Field(ge=1)] = 4
    """Tries of a call that fails in a retryable way."""
    max_calls: int | None = None
    max_tokens: int | None = None
    max_usd: float | None = None
    """Hard budget of this agent; a call past it is not made."""
    redact: bool = False
    """Whether e-mail addresses, telephone, card, account and social security numbers are
    replaced by placeholders before the model reads them, and put back in its replies.
    """
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Passed to the provider as it is."""


class SqliteSettings(Settings):
    """One SQLite file; `path` None means `memory.db` in the user's data directory."""

    type: Literal["sqlite"] = "sqlite"
    path: Path | None = None
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """FULL survives power loss, NORMAL a crash of the process."""
    tips: Path | None = None
    """File that notes where each log ends; by default beside the database. Put it where
    whoever may write the database cannot write.
    """
    key_file: Path | None = None
    """File with the secret that signs these notes, of 16 bytes at least, outside of the store."""


class MemoryStoreSettings(Settings):
    """Nothing on disk; gone when the process ends."""

    type: Literal["memory"] = "memory"


class PostgresSettings(Settings):
    """A PostgreSQL server that any number of processes may use (extra `postgres`)."""

    type: Literal["postgres"] = "postgres"
    url: str = Field(repr=False)
    """`postgresql://user@host:5432/database`; a password is better kept in `PGPASSWORD` or
    `~/.pgpass`.
    """
    pool: Annotated[int, Field(ge=1, le=64)] = 4
    """Connections that a process keeps for reading at most; one more writes."""
    scrub: Literal["vacuum", "rewrite"] = "vacuum"
    """After an erasure: free the space of what was deleted, or write the tables anew
    without it, which shuts others out meanwhile.
    """
    tips: Path | None = None
    """File that notes where each log ends, on this machine; by default nothing is noted."""
    key_file: Path | None = None
    """File with the secret that signs these notes, of 16 bytes at least."""


StoreSettings = Annotated[
    SqliteSettings | MemoryStoreSettings | PostgresSettings, Field(discriminator="type")
]


class QdrantSettings(Settings):
    """A Qdrant server that proposes candidates (extra `qdrant`)."""

    type: Literal["qdrant"] = "qdrant"
    url: str
    api_key: str | None = Field(default=None, repr=False)
    collection: str = "memagent"


class ProgramSettings(Settings):
    """The marks by which the requests of one chat program are read.

    A place is `header:NAME`, or a field of the body such as `metadata.user_id`; behind a
    `~` a pattern follows whose group is the name. A pattern of words fits where a text
    begins.
    """

    client: re.Pattern[str] = re.compile("")
    """Pattern in the headers User-Agent or Originator; empty for any client."""
    user: tuple[str, ...] = ()
    """Places that name the user, the first that holds a name counts."""
    thread: tuple[str, ...] = ()
    """Places that name the conversation."""
    tasks: tuple[re.Pattern[str], ...] = ()
    """Patterns of the program's own prompts: the model answers, nothing is remembered."""
    notes: tuple[re.Pattern[str], ...] = ()
    """Patterns of what it adds to the user's words: shown to the model, never remembered."""
    words: tuple[re.Pattern[str], ...] = ()
    """Patterns of a text around the user's words, which are the group."""


class ServiceSettings(Settings):
    """Limits of the REST service (`memagent serve`)."""

    max_body_bytes: Annotated[int, Field(ge=1_024)] = 4 * 1024 * 1024
    """Largest body of a request."""
    max_import_bytes: Annotated[int, Field(ge=1_024)] = 256 * 1024 * 1024
    """Largest export that may be imported."""
    max_in_flight: Annotated[int, Field(ge=1)] = 512
    """Most requests at work at once; further ones are asked to come back."""
    max_per_memory: Annotated[int, Field(ge=1)] = 64
    """Most of them on one memory, those included that wait for it to be read."""
    header_s: Annotated[float, Field(gt=0)] = 10.0
    """How long the headers of a request may take to arrive."""
    body_s: Annotated[float, Field(gt=0)] = 30.0
    """How long a body may take to arrive; a longer one has as long again for each 16 KiB/s."""
    max_header_bytes: Annotated[int, Field(ge=1_024)] = 64 * 1024
    """Largest head of a request: its line and all headers."""
    max_waiting: Annotated[int, Field(ge=1)] = 256
    """Most connections of one address that wait without an admitted request; beyond it the
    one waiting longest is closed. All addresses together have four times as many.
    """
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Most requests of one key (or of the local user) a minute; None for no such limit."""
    max_banks: Annotated[int, Field(ge=1)] = 1_000
    """Most memories kept open; the one used longest ago is closed."""
    ingest_jobs: Annotated[int, Field(ge=1)] = 4
    """Sessions remembered at once."""
    max_jobs: Annotated[int, Field(ge=1)] = 10_000
    """Most jobs that wait or run in one worker; beyond it no session is taken in."""
    job_attempts: Annotated[int, Field(ge=1)] = 5
    """Tries of a job before it is given up; `POST /v1/jobs/{id}/retry` begins again."""
    job_days: Annotated[float, Field(gt=0)] = 30.0
    """How long a finished job is known, and the files of an export are kept."""
    idempotency_days: Annotated[float, Field(gt=0)] = 7.0
    """How long the first response to an idempotency key is known."""
    idempotency_most: Annotated[int, Field(ge=1)] = 1_000_000
    """How many first responses are known at most; the oldest are forgotten first."""
    drain_s: Annotated[float, Field(ge=0)] = 20.0
    """How long requests and jobs may go on when the service is asked to stop; jobs go on
    at the next start.
    """
    hosts: tuple[str, ...] = ()
    """Names, beside those of loopback, by which requests without a key may call the
    service (the Host header).
    """
    programs: dict[str, ProgramSettings] = Field(default_factory=dict[str, ProgramSettings])
    """Chat programs beside the shipped ones; an entry of the same name replaces a shipped one."""
    runs_folder: Path | None = None
    """Folder whose sub-folders hold the runs that the dashboard shows under Runs; None
    shows none.
    """


class AgentSettings(Settings):
    """Everything an agent is built from."""

    design: str = "auto"
    """Name of a memory design, or `package.module:attribute`; `auto` is `memory_r2` with a
    model and `learned` without.
    """
    embedder: EmbedderSettings = StaticEmbedderSettings()
    model: ModelSettings | None = None
    roles: dict[Role, ModelSettings] = Field(default_factory=dict[Role, ModelSettings])
    """Another model for single roles."""
    sampling: dict[Role, Sampling] = Field(default_factory=dict[Role, Sampling])
    store: StoreSettings = SqliteSettings()
    index: QdrantSettings | None = None
    recipe: RecipeField | None = None
    """How to search where nobody says: `fast`, `balanced`, `deep`, or a table of a
    recipe's knobs. None leaves answers to the design.
    """
    reranker: RerankerSettings | None = None
    """Puts the best hits in order, in searches by a recipe that asks for it."""
    tracing: bool = False
    """Whether LangSmith may trace the graphs; off, whatever its variables say."""
    capture_content: bool = False
    """Whether OpenTelemetry spans may tell texts: queries, memories, prompts, answers.
    Off: names and numbers alone.
    """
    service: ServiceSettings = ServiceSettings()
    """Limits of the REST service."""


_PREFIX: Final = "MEMAGENT_"


def read_toml(path: Path) -> dict[str, Any]:
    """Read a settings file.

    Raises `ConfigError` when it cannot be read or is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"settings file {path} cannot be read: {exc.strerror or exc}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"settings file {path} is not valid TOML: {exc}") from exc


def load_settings(path: Path | None = None) -> AgentSettings:
    """Read settings from a TOML file (optional) and `MEMAGENT_*` variables.

    Raises `ConfigError` naming the field and what is wrong.
    """
    values = read_toml(path) if path is not None else {}
    # A kind chosen by a variable replaces the file's choice, it does not mix with it.
    for name in ("embedder", "store", "reranker"):
        chosen = os.environ.get(f"MEMAGENT_{name.upper()}__TYPE")
        if isinstance(values.get(name), dict) and chosen not in (None, values[name].get("type")):
            del values[name]
    try:
        if not any(name.upper().startswith(_PREFIX) for name in os.environ):
            return AgentSettings.model_validate(values)
        return _with_variables(values)
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
            for error in exc.errors()
        )
        raise ConfigError(f"wrong settings{f' in {path}' if path else ''}: {problems}") from exc


def _with_variables(values: dict[str, Any]) -> AgentSettings:
    """Return the settings with the environment's variables over the values of a file."""
    from pydantic_settings import BaseSettings, SettingsConfigDict

    class _FromEnvironment(AgentSettings, BaseSettings):
        model_config = SettingsConfigDict(
            frozen=True,
            extra="forbid",
            env_prefix=_PREFIX,
            env_nested_delimiter="__",
            nested_model_default_partial_update=True,
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],  # noqa: ARG003  # pydantic-settings' interface
            init_settings: Any,
            env_settings: Any,
            *_: Any,
            **__: Any,
        ) -> tuple[Any, ...]:
            return env_settings, init_settings

    return AgentSettings.model_validate(_FromEnvironment(**values).model_dump())


def check_workers(workers: int, *, shared: bool) -> None:
    """Raise `ConfigError` for several workers on a store that one process alone may write to."""
    if workers > 1 and not shared:
        raise ConfigError(
            f"{workers} workers: a SQLite store has one writing process; keep the memory in "
            "PostgreSQL for several "
            "(--db postgresql://USER@HOST/DATABASE), or run one worker, which serves many "
            "requests at once"
        )
