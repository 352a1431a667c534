"""The commands that set a store up: `init` writes its settings, `reembed` changes its embedder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from memagent.cli.arguments import check_free
from memagent.cli.frame import SETTINGS_FILE, Options, emit, pairs, progress, tell
from memagent.cli.stores import give_consent, opened, store_path
from memagent.core.errors import EmbeddingError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memagent.build import Store
    from memagent.config import AgentSettings, StoreSettings
    from memagent.protocols import EmbeddingCache

_TEMPLATE = """\
# Settings of memagent, read by the command line in this folder. Variables win over this file: \
MEMAGENT_DESIGN,
# MEMAGENT_STORE__PATH, MEMAGENT_MODEL__MODEL and so on. Options of a command win over both.

# How memory is made: "auto" is memory_r2 with a model and verbatim without.
design = {design}

[store]
{store}

# What finds memories by meaning. After a change here run `memagent reembed`.
[embedder]
{embedder}

# The language model, by litellm's name. \
It needs  pip install "memagent[llm]"  and the provider's key in its usual variable.
{model}
# max_usd = 1.0       # a hard budget of one run; a call past it is not made
"""


def init(
    options: Options,
    force: Annotated[
        bool, Option("--force", help="Replace a settings file that is there.")
    ] = False,
) -> None:
    """Write a commented settings file (./memagent.toml, or --config) and make the store."""
    from memagent.build import build_design, build_embedder, embedder_settings, open_store
    from memagent.config import AgentSettings, ModelSettings, PostgresSettings, SqliteSettings

    file = options.config or SETTINGS_FILE
    check_free(file, force=force)
    path = store_path(options, AgentSettings())
    if path is None:
        raise InputError("a memory in memory needs no settings; give --path a file")
    settings = AgentSettings(
        design=options.design or "auto",
        store=SqliteSettings(path=path.absolute())
        if isinstance(path, Path)
        else PostgresSettings(url=path),
        model=ModelSettings(model=options.model) if options.model is not None else None,
    )
    if options.embedder is not None:
        settings = settings.model_copy(update={"embedder": embedder_settings(options.embedder)})
    build_design(settings.design, has_model=settings.model is not None)
    embedder = build_embedder(settings.embedder)
    open_store(settings, embedder=embedder).close()
    file.write_text(_settings_text(settings), encoding="utf-8")
    give_consent(file)
    paths = {"settings": str(file.absolute()), "store": _place(settings.store)}
    report = {**paths, "embedder": embedder.id}
    emit(options, report, lambda: pairs(report))


def trust(options: Options) -> None:
    """Trust the settings file of this folder to name plug-ins and servers.

    Consent is to the entries as they are now; a change of them asks anew.
    """
    file = options.config or SETTINGS_FILE
    if not file.is_file():
        raise InputError(f"there is no settings file {file} to trust")
    risky = give_consent(file)
    report = {"settings": str(file.absolute()), "trusted": ", ".join(risky) or "nothing needs it"}
    emit(options, report, lambda: pairs(report))


def _settings_text(settings: AgentSettings) -> str:
    embedder = settings.embedder.model_dump(mode="json", exclude_defaults=False)
    lines = [f"{key} = {_toml(value)}" for key, value in embedder.items() if value != {}]
    model = (
        f"[model]\nmodel = {_toml(settings.model.model)}"
        if settings.model is not None
        else '# [model]\n# model = "openai/gpt-4o-mini"'
    )
    return _TEMPLATE.format(
        design=_toml(settings.design),
        store=_store_lines(settings.store),
        embedder="\n".join(lines),
        model=model,
    )


def _place(store: StoreSettings) -> str:
    """Name the place of a store, without its password."""
    from memagent.config import PostgresSettings, SqliteSettings
    from memagent.journal.postgres_engine import without_password

    if isinstance(store, PostgresSettings):
        return without_password(store.url)
    return str(store.path) if isinstance(store, SqliteSettings) else "in memory"


def _store_lines(store: StoreSettings) -> str:
    if store.type == "postgres":
        return (
            f'type = "postgres"\nurl = {_toml(_place(store))}\n'
            "# A password is not written here: keep it in PGPASSWORD or ~/.pgpass, "
            "or set MEMAGENT_STORE__URL."
        )
    return (
        f'type = "sqlite"\npath = {_toml(_place(store))}\n'
        '# FULL survives a power cut, NORMAL a crash of the process.\nsynchronous = "FULL"'
    )


def _toml(value: object) -> str:
    """Format a string or number as TOML, whose strings are JSON's but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


# -- another embedder ------------------------------------------------------------------

_TEXTS_AT_ONCE = 128


async def reembed(options: Options) -> None:
    """Embed every memory anew and use that embedder from now on.

    The embedder is that of --embedder or of the settings.
    """
    from memagent.build import embedder_settings
    from memagent.journal.open_database import DatabaseJournal

    with opened(options, write=True, vectors=True, any_embedder=True) as store:
        if not isinstance(store.journal, DatabaseJournal):
            raise InputError("a memory that is not kept has no vectors to renew")
        await store.embedder.embed(["Does this embedder work?"])
        store.journal.claim_embedder(store.embedder.id, store.embedder.dim, force=True)
        texts = await _texts(store)
        with progress(len(texts), "texts") as advance:
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                batch = texts[start : start + _TEXTS_AT_ONCE]
                await _embed(store, store.journal.cache, batch, options)
                advance("", len(batch))
        report: dict[str, Any] = {
            "embedder": store.embedder.id,
            "dimensions": store.embedder.dim,
            "texts": len(texts),
        }
        settings = store.settings.embedder
    if options.embedder is not None and embedder_settings(options.embedder) != settings:
        tell(f"from now on give --embedder {options.embedder}, or name it in your settings")
    emit(options, report, lambda: pairs(report))


async def _embed(
    store: Store, cache: EmbeddingCache, texts: Sequence[str], options: Options
) -> None:
    """Make the vectors that the cache lacks; overwrite it if its vectors are of no use."""
    from memagent.build import build_embedder
    from memagent.core.errors import boundary
    from memagent.embed.cached import checked_rows, readable, text_digest

    try:
        await store.embedder.embed(texts)
    except EmbeddingError:
        bare = build_embedder(options.embedder or store.settings.embedder)
        with boundary(EmbeddingError, f"embedder {bare.id}"):
            answer = await bare.embed([readable(text) for text in texts])
        rows = checked_rows(answer, texts=len(texts), dim=bare.dim, embedder_id=bare.id)
        cache.put_many(bare.id, dict(zip(map(text_digest, texts), rows, strict=True)))


async def _texts(store: Store) -> list[str]:
    """Return every text that the index holds for an item of any user."""
    from memagent.search.pipeline import index_texts

    texts: dict[str, None] = {}
    for scope in await store.journal.scopes():
        state = await store.bank(scope).sync()
        for item in state.active():
            texts.update(dict.fromkeys(index_texts(state, item)))
    return list(texts)
