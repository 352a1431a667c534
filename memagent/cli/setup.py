"""Setting a store up: `memagent init` writes its settings file, `memagent reembed`
changes the embedder of a store that exists.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent.cli.frame import Options, opened, store_path, tell
from memagent.cli.ingest import progress
from memagent.core.errors import EmbeddingError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memagent.build import Store
    from memagent.config import AgentSettings, EmbedderSettings, StoreSettings
    from memagent.protocols import EmbeddingCache

_TEMPLATE = """\
# Settings of memagent, read by the command line in this folder. Variables win over this file: MEMAGENT_DESIGN,
# MEMAGENT_STORE__PATH, MEMAGENT_MODEL__MODEL and so on. Options of a command win over both.

# How memory is made: "auto" is memory_r2 with a model and verbatim without.
design = {design}

[store]
{store}

# What finds memories by meaning. After a change here run `memagent reembed`.
[embedder]
{embedder}

# The language model, by litellm's name. It needs  pip install "memagent[llm]"  and the provider's key in its usual variable.
{model}
# max_usd = 1.0       # a hard budget of one run; a call past it is not made
"""


def make_settings(options: Options, file: Path) -> dict[str, str]:
    """Make the store the options name, then write the settings file that leads to it.

    Raises what opening raises; writes nothing then.
    """
    from memagent.build import build_design, build_embedder, open_store
    from memagent.config import AgentSettings, ModelSettings, PostgresSettings, SqliteSettings

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
        settings = settings.model_copy(update={"embedder": _embedder_settings(options.embedder)})
    build_design(settings.design, has_model=settings.model is not None)
    embedder = build_embedder(settings.embedder)
    open_store(settings, embedder=embedder).close()
    file.write_text(_settings_text(settings), encoding="utf-8")
    return {
        "settings": str(file.absolute()),
        "store": _place(settings.store),
        "embedder": embedder.id,
    }


def _embedder_settings(name: str) -> EmbedderSettings:
    from memagent.build import EMBEDDERS
    from memagent.config import PluginEmbedderSettings

    return EMBEDDERS.get(name) or PluginEmbedderSettings(name=name)


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
    """Where the store is, without a password."""
    from memagent.config import PostgresSettings, SqliteSettings
    from memagent.journal.postgres.engine import without_password

    if isinstance(store, PostgresSettings):
        return without_password(store.url)
    return str(store.path) if isinstance(store, SqliteSettings) else "in memory"


def _store_lines(store: StoreSettings) -> str:
    if store.type == "postgres":
        return (
            f'type = "postgres"\nurl = {_toml(_place(store))}\n'
            "# A password is not written here: keep it in PGPASSWORD or ~/.pgpass, or set MEMAGENT_STORE__URL."
        )
    return (
        f'type = "sqlite"\npath = {_toml(_place(store))}\n'
        '# FULL survives a power cut, NORMAL a crash of the process.\nsynchronous = "FULL"'
    )


def _toml(value: object) -> str:
    """A string or number as TOML; its basic strings are JSON's, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


# -- another embedder ------------------------------------------------------------------

_TEXTS_AT_ONCE = 128


async def embed_again(options: Options) -> dict[str, Any]:
    """Let the store go by the embedder the options lead to, and embed every memory with it.

    Vectors are kept as they come, so a run that was stopped can be made again. Raises
    `EmbeddingError`; an embedder that cannot embed a single text is not taken.
    """
    from memagent.journal.database import DatabaseJournal

    with opened(options, write=True, vectors=True, any_embedder=True) as store:
        if not isinstance(store.journal, DatabaseJournal):
            raise InputError("a memory that is not kept has no vectors to renew")
        await store.embedder.embed(["Does this embedder work?"])
        store.journal.claim_embedder(store.embedder.id, store.embedder.dim, force=True)
        texts = await _texts(store)
        with progress(len(texts), "texts") as advance:
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                part = texts[start : start + _TEXTS_AT_ONCE]
                await _embed(store, store.journal.cache, part, options)
                advance("", len(part))
        done: dict[str, Any] = {
            "embedder": store.embedder.id,
            "dimensions": store.embedder.dim,
            "texts": len(texts),
        }
        settings = store.settings.embedder
    if options.embedder is not None and _embedder_settings(options.embedder) != settings:
        tell(f"from now on give --embedder {options.embedder}, or name it in your settings")
    return done


async def _embed(
    store: Store, kept: EmbeddingCache, texts: Sequence[str], options: Options
) -> None:
    """Make vectors that are not kept yet; where what is kept is of no use, make them
    all and overwrite it.
    """
    from memagent.build import build_embedder
    from memagent.core.errors import boundary
    from memagent.embed.vectors import checked_rows, readable, text_digest

    try:
        await store.embedder.embed(texts)
    except EmbeddingError:
        bare = build_embedder(options.embedder or store.settings.embedder)
        with boundary(EmbeddingError, f"embedder {bare.id}"):
            answer = await bare.embed([readable(text) for text in texts])
        rows = checked_rows(answer, texts=len(texts), dim=bare.dim, embedder_id=bare.id)
        kept.put_many(bare.id, dict(zip(map(text_digest, texts), rows, strict=True)))


async def _texts(store: Store) -> list[str]:
    """Every text that an item of any user is found by."""
    from memagent.search.projection import index_texts

    found: dict[str, None] = {}
    for scope in await store.journal.scopes():
        state = await store.bank(scope).sync()
        for item in state.active():
            found.update(dict.fromkeys(index_texts(state, item)))
    return list(found)
