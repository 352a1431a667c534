"""The commands that serve a memory: `serve`, `keys` and `mcp`.

The commands that move memories: `export`, `import`, `import-from` and `graph`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Group
from typer import Argument, Option

from memagent.cli.arguments import Force, TimeOptions, check_free, exactly_one
from memagent.cli.frame import Options, emit, pairs, plain, tell
from memagent.cli.stores import opened, opened_memory, read_settings, reading_memory, store_path
from memagent.core.errors import ConfigError, InputError, MissingExtra

if TYPE_CHECKING:
    from memagent.core.answers import GraphFormat
    from memagent.service.data.database import ServiceDatabase


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
) -> None:
    """Serve the memory to MCP clients, over standard input and output or over HTTP.

    The user is --user, whatever a client asks for.
    """
    from memagent.integrations.mcp_server import (
        REVOCABLE,
        TOOLS,
        bound_socket,
        serve_http,
        serve_stdio,
    )

    tools = TOOLS if erase else REVOCABLE

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
    from memagent.build import open_store
    from memagent.config import check_workers
    from memagent.service import serving

    options = options if db is None else replace(options, path=db)
    settings = read_settings(options)
    path = store_path(options, settings)
    check_workers(workers, shared=isinstance(path, str))
    embedder, model = options.embedder, options.model
    store = open_store(settings, path=path if path is not None else ":memory:", embedder=embedder)
    serving.serve(
        store, host=host, port=port, model=model, workers=workers, embedder=embedder, say=tell
    )


# -- the service's API keys ------------------------------------------------------------


@contextmanager
def _keys_database(options: Options) -> Generator[ServiceDatabase]:
    path = store_path(options, read_settings(options))
    if path is None:
        raise ConfigError("a memory in memory has no API keys; give --path a file")
    try:
        from memagent.service.data.database import ServiceDatabase
        from memagent.service.hosting import service_database_path
    except ModuleNotFoundError as exc:
        raise MissingExtra("service", needed_for="memagent keys", cause=str(exc)) from exc
    database = ServiceDatabase(path if isinstance(path, str) else service_database_path(path))
    try:
        yield database
    finally:
        database.close()


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
    from memagent.service.data.keys import SCOPES, KeyRing

    scopes = scope or [scope for scope in SCOPES if scope != "admin"]
    with _keys_database(options) as database:
        key_id, key = KeyRing(database).create(
            name=name, scopes=scopes, user_id=bound_to, at=system_clock()
        )
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
    from memagent.service.data.keys import KeyRing

    with _keys_database(options) as database:
        rows: list[dict[str, object]] = [
            {
                "id": key.id,
                "name": key.name,
                "user": key.user_id or "any",
                "scopes": sorted(key.scopes),
                "created": f"{key.created_at:%Y-%m-%d}",
                "revoked": key.revoked,
            }
            for key in KeyRing(database).stored()
        ]
    emit(options, rows, lambda: Group(*([pairs(row) for row in rows] or [plain("no API keys")])))


def revoke_key(
    options: Options, key_id: Annotated[str, Argument(metavar="ID", help="The key's id.")]
) -> None:
    """Make a key useless, at once."""
    from memagent.memory.bank import system_clock
    from memagent.service.data.keys import KeyRing

    with _keys_database(options) as database:
        if not KeyRing(database).revoke(
            key_id.removeprefix("ma_").partition("_")[0], at=system_clock()
        ):
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
    chosen = _format_of(output) if format == "auto" else format
    check_free(output, force=force)
    async with reading_memory(options, vectors=True) as memory:
        report = await memory.export_graph(
            output, chosen, as_of=as_of, include_hidden=not without_hidden
        )
    written = report.model_dump(exclude={"text"})
    emit(options, written, lambda: pairs(written))


def _format_of(file: Path) -> GraphFormat:
    chosen = _ENDINGS.get(file.suffix.lower())
    if chosen is None:
        raise InputError(
            f"{file} ends in none of {', '.join(_ENDINGS)}; say the format with --format"
        )
    return chosen


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
    from memagent.integrations import mem0_records as records

    rows = records.read_memories(source)
    with opened(options, write=True, make=True) as store:
        report = await records.import_memories(store, rows, user_id=options.user)
    emit(options, report, lambda: pairs(report.model_dump()))
