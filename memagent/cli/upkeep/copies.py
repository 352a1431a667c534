"""The commands that copy a whole store: `backup` and `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from memagent.cli.arguments import Force
from memagent.cli.frame import Options, emit
from memagent.cli.stores import read_settings, store_path
from memagent.cli.terminal import pairs
from memagent.core.errors import StoreError

if TYPE_CHECKING:
    from memagent.journal.proof.tips import Seal


def backup(
    options: Options,
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write; it must be new.")],
) -> int:
    """Copy the whole store to a file while others use it, and verify the copy."""
    from memagent.journal.sqlite.copies import backup_store

    path, seal = _place(options)
    if not path.exists():
        raise StoreError(f"there is no memory at {path}")
    report = backup_store(path, file, seal=seal)
    emit(options, report, lambda: pairs(report.model_dump(mode="json")))
    return int(bool(report.problems))


def restore(
    options: Options,
    file: Annotated[Path, Argument(metavar="FILE", help="What `memagent backup` wrote.")],
    verify: Annotated[
        bool, Option("--verify", help="Check every hash of the backup, and write nothing.")
    ] = False,
    force: Force = False,
) -> int:
    """Verify a backup and put it in the place of the store."""
    from memagent.journal.proof.tips import Seal
    from memagent.journal.sqlite.copies import restore_store, verify_store

    if not file.exists():
        raise StoreError(f"there is no backup at {file}")
    path, seal = _place(options)
    if verify:
        report = verify_store(file, seal=Seal(key=seal.key))
    else:
        report = restore_store(file, path, seal=seal, force=force)
    emit(options, report, lambda: pairs(report.model_dump(mode="json")))
    return int(bool(report.problems))


def _place(options: Options) -> tuple[Path, Seal]:
    from memagent.config import SqliteSettings
    from memagent.open_store import seal_of

    settings = read_settings(options)
    path, store = store_path(options, settings), settings.store
    if not isinstance(path, Path):
        raise StoreError(
            "a server is copied by its own tools: pg_dump, then pg_restore, and verify with  "
            "memagent doctor --db URL"
        )
    return path, seal_of(store if isinstance(store, SqliteSettings) else SqliteSettings())
