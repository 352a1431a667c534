"""The commands that move memories: `export`, `import`, `import-mem0` and `graph`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from memagent.cli.arguments import Force, TimeOptions, check_free, exactly_one
from memagent.cli.frame import Options, emit
from memagent.cli.stores import opened, opened_memory, reading_memory
from memagent.cli.terminal import pairs
from memagent.core.errors import InputError

if TYPE_CHECKING:
    from memagent.core.graph_document import GraphFormat

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


async def import_mem0(
    options: Options,
    source: Annotated[
        Path, Argument(metavar="PATH", help="A folder of qdrant's local mode, or a JSON export.")
    ],
) -> None:
    """Import the memories of a mem0 store, each for its user; what is there already is skipped."""
    from memagent.integrations import mem0_import

    rows = mem0_import.read_mem0(source)
    with opened(options, write=True, make=True) as store:
        report = await mem0_import.import_mem0(store, rows, user_id=options.user)
    emit(options, report, lambda: pairs(report.model_dump()))
