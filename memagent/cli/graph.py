"""`memagent graph`: the event graph of a user as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from memagent.cli.frame import Options, opened, tell_if_empty
from memagent.core.errors import InputError

if TYPE_CHECKING:
    from memagent.core.answers import AsOf
    from memagent.core.graph_document import GraphFormat

_ENDINGS: dict[str, GraphFormat] = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".graphml": "graphml",
}


async def write_graph(
    options: Options,
    file: Path,
    *,
    format: Literal["auto", "html", "json", "graphml"],
    as_of: AsOf,
    include_hidden: bool,
    force: bool,
) -> dict[str, object]:
    """Write the graph and say what is in the file.

    Raises `InputError` for a file that is there or whose name tells no format.
    """
    from memagent.memory.graph_export import export_graph

    chosen = _format_of(file) if format == "auto" else format
    _free(file, force=force)
    with opened(options, vectors=True) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        done = await export_graph(
            bank, file, format=chosen, as_of=as_of, include_hidden=include_hidden
        )
    return done.model_dump(exclude={"text"})


def _format_of(file: Path) -> GraphFormat:
    found = _ENDINGS.get(file.suffix.lower())
    if found is None:
        raise InputError(
            f"{file} ends in none of {', '.join(_ENDINGS)}; say the format with --format"
        )
    return found


def _free(file: Path, *, force: bool) -> None:
    if file.exists() and not force:
        raise InputError(f"{file} is there already; --force replaces it")
