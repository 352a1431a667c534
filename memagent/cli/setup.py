"""The commands that set a store up, serve it and move its memories.

`init` writes its settings and `reembed` changes its embedder; `serve`, `keys` and `mcp`
serve it; `export`, `import`, `import-from` and `graph` move memories.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Group
from typer import Argument, BadParameter, Option

from memagent.cli.frame import SETTINGS_FILE, Options, emit, pairs, plain, progress, tell
from memagent.cli.stores import (
    Force,
    TimeOptions,
    check_free,
    exactly_one,
    give_consent,
    opened,
    opened_memory,
    read_settings,
    reading_memory,
    store_path,
)
from memagent.core import Later
from memagent.core.errors import (
    ConfigError,
    EmbeddingError,
    InputError,
    MissingExtra,
    boundary,
)

if TYPE_CHECKING:
    from memagent import build, config
    from memagent.core.answers import GraphFormat
    from memagent.protocols import EmbeddingCache
    from memagent.service.data.leases import KeyRing
else:
    build, config = Later("memagent.build"), Later("memagent.config")

_TEMPLATE = """\
# Settings of memagent, read by the command line in this folder. Variables win over this file: \
MEMAGENT_DESIGN,
# MEMAGENT_STORE__PATH, MEMAGENT_MODEL__MODEL and so on. Options of a command win over both.

# How memory is made: "auto" is memory_r2 with a model and learned without.
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
    file = options.config or SETTINGS_FILE
    check_free(file, force=force)
    path = store_path(options, config.AgentSettings())
    if path is None:
        raise InputError("a memory in memory needs no settings; give --path a file")
    settings = config.AgentSettings(
        design=options.design or "auto",
        store=config.SqliteSettings(path=path.absolute())
        if isinstance(path, Path)
        else config.PostgresSettings(url=path),
        model=config.ModelSettings(model=options.model) if options.model is not None else None,
    )
    if options.embedder is not None:
        settings = settings.model_copy(
            update={"embedder": build.embedder_settings(options.embedder)}
        )
    build.build_design(settings.design, has_model=settings.model is not None)
    embedder = build.build_embedder(settings.embedder)
    build.open_store(settings, embedder=embedder).close()
    file.write_text(_settings_text(settings), encoding="utf-8")
    give_consent(file)
    report = {
        "settings": str(file.absolute()),
        "store": _place(settings.store),
        "embedder": embedder.id,
    }
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


def _settings_text(settings: config.AgentSettings) -> str:
    place = _toml(_place(settings.store))
    store = (
        f'type = "postgres"\nurl = {place}\n'
        "# A password is not written here: keep it in PGPASSWORD or ~/.pgpass, "
        "or set MEMAGENT_STORE__URL."
        if settings.store.type == "postgres"
        else f'type = "sqlite"\npath = {place}\n'
        '# FULL survives a power cut, NORMAL a crash of the process.\nsynchronous = "FULL"'
    )
    embedder = settings.embedder.model_dump(mode="json", exclude_defaults=False)
    lines = [f"{key} = {_toml(value)}" for key, value in embedder.items() if value != {}]
    model = (
        f"[model]\nmodel = {_toml(settings.model.model)}"
        if settings.model is not None
        else '# [model]\n# model = "openai/gpt-4o-mini"'
    )
    return _TEMPLATE.format(
        design=_toml(settings.design),
        store=store,
        embedder="\n".join(lines),
        model=model,
    )


def _place(store: config.StoreSettings) -> str:
    """Name the place of a store, without its password."""
    from memagent.journal.postgres import without_password

    if store.type == "postgres":
        return without_password(store.url)
    return str(store.path) if store.type == "sqlite" else "in memory"


def _toml(value: object) -> str:
    """Format a string or number as TOML, whose strings are JSON's but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


# -- another embedder ------------------------------------------------------------------

_TEXTS_AT_ONCE = 128


async def reembed(options: Options) -> None:
    """Embed every memory anew and use that embedder from now on.

    The embedder is that of --embedder or of the settings.
    """
    from memagent.journal.open_database import DatabaseJournal
    from memagent.search.pipeline import index_texts

    with opened(options, write=True, vectors=True, any_embedder=True) as store:
        if not isinstance(store.journal, DatabaseJournal):
            raise InputError("a memory that is not kept has no vectors to renew")
        await store.embedder.embed(["Does this embedder work?"])
        store.journal.cache.claim(store.embedder.id, store.embedder.dim, force=True)
        states = [await store.bank(scope).sync() for scope in await store.journal.scopes()]
        indexed = (index_texts(state, item) for state in states for item in state.active())
        texts = list(dict.fromkeys(chain.from_iterable(indexed)))
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
    if options.embedder is not None and build.embedder_settings(options.embedder) != settings:
        tell(f"from now on give --embedder {options.embedder}, or name it in your settings")
    emit(options, report, lambda: pairs(report))


async def _embed(
    store: build.Store, cache: EmbeddingCache, texts: Sequence[str], options: Options
) -> None:
    """Make the vectors that the cache lacks; overwrite it if its vectors are of no use."""
    from memagent.embed.static import checked_rows, readable, text_digest

    try:
        await store.embedder.embed(texts)
    except EmbeddingError:
        bare = build.build_embedder(options.embedder or store.settings.embedder)
        with boundary(EmbeddingError, f"embedder {bare.id}"):
            answer = await bare.embed([readable(text) for text in texts])
        rows = checked_rows(answer, texts=len(texts), dim=bare.dim, embedder_id=bare.id)
        cache.put_many(bare.id, dict(zip(map(text_digest, texts), rows, strict=True)))


async def mcp(
    options: Options,
    http: Annotated[
        str | None,
        Option(metavar="HOST:PORT", help="Serve HTTP on this machine; port 0 takes a free one."),
    ] = None,
    read_only: Annotated[
        bool, Option("--read-only", help="Offer only the tools that read.")
    ] = False,
    erase: Annotated[
        bool, Option("--erase", help="Offer the tool that erases beyond recovery too.")
    ] = False,
    connector: Annotated[
        bool,
        Option(
            "--connector",
            help="Offer search and fetch alone, as hosted connectors (ChatGPT's) call them.",
        ),
    ] = False,
) -> None:
    """Serve the memory to MCP clients, over standard input and output or over HTTP.

    The user is --user, whatever a client asks for.
    """
    from memagent.integrations.mcp_server import (
        CONNECTOR,
        REVOCABLE,
        bound_socket,
        serve_http,
        serve_stdio,
    )

    if connector and erase:
        raise BadParameter("--connector offers search and fetch alone; leave out --erase")
    tools = CONNECTOR if connector else REVOCABLE | {"erase"} if erase else REVOCABLE
    read_only = read_only or connector
    listening = bound_socket(http) if http is not None else None
    with opened(options, write=not read_only, make=not read_only, vectors=True) as store:
        agent = store.agent(options.scope, model=options.model)
        if listening is None:
            await serve_stdio(agent, read_only=read_only, tools=tools)
            return
        host, port = listening.getsockname()[:2]
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
        tell(f"memory of {options.user_id!r} at http://{address}/mcp")
        await serve_http(agent, listening, read_only=read_only, tools=tools)


def serve(
    options: Options,
    host: Annotated[
        str,
        Option(metavar="ADDRESS", help="Where to listen; beyond loopback an API key is needed."),
    ] = "127.0.0.1",
    port: Annotated[
        int, Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")
    ] = 8377,
    db: Annotated[str | None, Option(metavar="FILE", help="The store; the same as --path.")] = None,
    workers: Annotated[
        int, Option(min=1, metavar="N", help="Processes; a SQLite store takes one.")
    ] = 1,
) -> None:
    """Serve the memory over HTTP, for any number of users; made when it is not there."""
    from memagent.service.serving import serve as serve_store

    options = options if db is None else replace(options, path=db)
    settings = read_settings(options)
    path = store_path(options, settings)
    config.check_workers(workers, shared=isinstance(path, str))
    embedder, model = options.embedder, options.model
    store = build.open_store(
        settings, path=path if path is not None else ":memory:", embedder=embedder
    )
    serve_store(
        store, host=host, port=port, model=model, workers=workers, embedder=embedder, say=tell
    )


# -- the service's API keys ------------------------------------------------------------


@contextmanager
def _opened_keys(options: Options) -> Generator[KeyRing]:
    path = store_path(options, read_settings(options))
    if path is None:
        raise ConfigError("a memory in memory has no API keys; give --path a file")
    try:
        from memagent.service.data.database import ServiceDatabase
        from memagent.service.data.leases import KeyRing
        from memagent.service.hosting import service_file
    except ModuleNotFoundError as exc:
        raise MissingExtra("service", needed_for="memagent keys", cause=str(exc)) from exc
    place = path if isinstance(path, str) else service_file(path)
    with closing(ServiceDatabase(place)) as database:
        yield KeyRing(database)


def create_key(
    options: Options,
    bound_to: Annotated[
        str | None,
        Option("--for", metavar="USER", help="Bind it to one user; it reaches no other."),
    ] = None,
    name: Annotated[str, Option(metavar="TEXT", help="What it is for.")] = "",
    scope: Annotated[
        list[str] | None,
        Option(metavar="SCOPE", help="memory:read, memory:write, memory:delete, chat or admin."),
    ] = None,
) -> None:
    """Make a key and show it, this once; without --scope it may do everything but admin."""
    from memagent.memory.bank import system_clock
    from memagent.service.data.leases import SCOPES

    scopes = scope or [scope for scope in SCOPES if scope != "admin"]
    with _opened_keys(options) as keys:
        key_id, key = keys.create(name=name, scopes=scopes, user_id=bound_to, at=system_clock())
    row = {
        "id": key_id,
        "key": key,
        "name": name,
        "user": bound_to or "any",
        "scopes": sorted(set(scopes)),
    }
    emit(options, row, lambda: pairs(row))


def list_keys(options: Options) -> None:
    """List every key, without its secret."""
    with _opened_keys(options) as keys:
        rows: list[dict[str, object]] = [
            {
                "id": key.id,
                "name": key.name,
                "user": key.user_id or "any",
                "scopes": sorted(key.scopes),
                "created": f"{key.created_at:%Y-%m-%d}",
                "revoked": key.revoked,
            }
            for key in keys.stored()
        ]
    emit(options, rows, lambda: Group(*([pairs(row) for row in rows] or [plain("no API keys")])))


def revoke_key(
    options: Options, key_id: Annotated[str, Argument(metavar="ID", help="The key's id.")]
) -> None:
    """Make a key useless, at once."""
    from memagent.memory.bank import system_clock

    with _opened_keys(options) as keys:
        if not keys.revoke(key_id.removeprefix("ma_").partition("_")[0], at=system_clock()):
            raise InputError(f"no API key {key_id!r} that works; `memagent keys list` shows them")
    row = {"id": key_id, "revoked": True}
    emit(options, row, lambda: pairs(row))


_ENDINGS: dict[str, GraphFormat] = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".graphml": "graphml",
}


async def export(
    options: Options,
    file: Annotated[Path | None, Argument(metavar="FILE", help="The file to write.")] = None,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="The file to write, as an option."),
    ] = None,
    force: Force = False,
) -> None:
    """Write everything a user remembers, history included, to one portable file."""
    target = exactly_one(file, output, choices="FILE or --output FILE")
    check_free(target, force=force)
    async with reading_memory(options) as memory:
        report = await memory.export(target)
    emit(options, report, lambda: pairs(report.model_dump()))


async def graph(
    options: Options,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="The file to write.")],
    *,
    format: Annotated[
        Literal["auto", "html", "json", "graphml"],
        Option(help="A page, node-link JSON, or GraphML; auto goes by the file's name."),
    ] = "auto",
    time: TimeOptions,
    without_hidden: Annotated[
        bool, Option("--without-hidden", help="Leave out what was deleted or rewritten.")
    ] = False,
    force: Force = False,
) -> None:
    """Write the event graph with the turns it rests on: a page, JSON or GraphML."""
    as_of = time.as_of()
    chosen = _ENDINGS.get(output.suffix.lower()) if format == "auto" else format
    if chosen is None:
        raise InputError(
            f"{output} ends in none of {', '.join(_ENDINGS)}; say the format with --format"
        )
    check_free(output, force=force)
    async with reading_memory(options, vectors=True) as memory:
        report = await memory.export_graph(
            output, chosen, as_of=as_of, include_hidden=not without_hidden
        )
    written = report.model_dump(exclude={"text"})
    emit(options, written, lambda: pairs(written))


async def import_(
    options: Options,
    file: Annotated[Path, Argument(metavar="FILE", help="What `memagent export` wrote.")],
) -> None:
    """Import an export for a user who has no memories yet."""
    with opened_memory(options, write=True, make=True) as memory:
        report = await memory.import_(file)
    emit(options, report, lambda: pairs(report.model_dump()))


async def import_from(
    options: Options,
    source: Annotated[
        Path,
        Argument(
            metavar="PATH",
            help="mem0's qdrant folder or export, Letta's agent file, or edges of Zep's graph.",
        ),
    ],
) -> None:
    """Import the memories that mem0, Letta or Zep keep; what is there already is skipped."""
    from memagent.integrations.memory_import import import_memories, read_memories

    rows = read_memories(source)
    with opened(options, write=True, make=True) as store:
        report = await import_memories(store, rows, user_id=options.user)
    emit(options, report, lambda: pairs(report.model_dump()))
